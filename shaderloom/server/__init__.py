"""Servers of models over HTTP: one application with shared limits, and an API for each kind of client.

``application.py`` builds the application of an :class:`.Api`; ``limits.py`` says what a client may take,
``requests.py`` reads bodies within it, ``connections.py`` closes connections that are slow; ``errors.py`` is what is
wrong with a request; ``metrics.py`` counts; ``running.py`` listens.  ``openai/`` is the API of text generation,
``kserve/`` that of tensors.
"""
