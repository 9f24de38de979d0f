"""The KServe inference protocol, version 2, over HTTP: tensors in, tensors out.

``tensors.py`` reads and writes tensors in JSON and behind it; ``served_session.py`` runs requests, joined where the
model allows it; ``routes.py`` is the API.
"""
