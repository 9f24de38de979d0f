"""Serves bundles, the browser runner and a page on this machine alone; no page asks anything of another host.

``site.py`` answers requests; ``files.py`` says what there is to serve.
"""
