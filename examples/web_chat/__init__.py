"""A chat with a language model in a web page: a bundle of ``shaderloom compile --generate`` and ``page/``.

``python -m examples.web_chat`` compiles the bundle once, builds the page and serves both. The page has the browser
runner of Shaderloom and the packages ``@huggingface/tokenizers`` and ``@huggingface/jinja``; nothing else runs, and it
asks nothing of any other host.
"""
