"""Generates text with decoders: from a folder of an exporter to words.

``folder.py`` reads what an exporter wrote; ``decoder.py`` runs the model over ``cache.py``, ``encoded_decoder.py`` one
behind an encoder; ``sampling.py`` says how tokens are chosen, ``choice_model.py`` does it on the device; ``text.py`` is
words and chats, in processes with limits (``limited_process.py``), ``answer.py`` an answer as it comes; ``batch.py``
answers several prompts at once, ``scheduler.py`` many that come and go, in ``slots.py`` or ``groups.py``;
``generator.py`` puts them together.
"""
