"""Reads the text of a picture in a web page: the pipeline of ``examples/ocr`` with its three models as shader bundles.

``python -m examples.web_ocr`` compiles the bundles once and serves the page. ``page/`` is the whole program: JavaScript
that mirrors ``examples/ocr`` module for module, and the browser runner of Shaderloom; nothing else runs.
"""
