"""Reads the text of a picture with the three PP-OCR models: detection, angle classification, recognition.

The models come from a pinned package (fetch.py); pre- and post-processing are numpy and Pillow. ``python -m
examples.ocr`` is the program, pipeline.py the part to reuse.
"""
