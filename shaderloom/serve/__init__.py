"""Serves bundles, the browser runner and a page on this machine only; no page contacts another host.

``site.py`` answers requests; ``files.py`` lists the resources.
"""
