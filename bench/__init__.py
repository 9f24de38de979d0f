"""Benchmarks: models against other runtimes (``python -m bench models``) and the compiler's own speed (``compile``).

Imports nothing here: workers of other runtimes run from this package in environments of their own.
"""
