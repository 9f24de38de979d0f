"""Programs from PyPI that were written for onnxruntime and ship their models, run on it and on this package.

``programs.toml`` has them with their pinned packages, ``jobs`` a file with the main job of each.  ``./dev programs``
runs them and writes docs/guide/programs.md; the light ones are tests of the full tier.
"""
