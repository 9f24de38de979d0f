"""rapidocr-onnxruntime: the lines of a picture, with their corners."""

import inputs
from rapidocr_onnxruntime import RapidOCR


def run():
    lines, _ = RapidOCR()(inputs.text_picture())
    return [[text, float(score), [list(map(float, corner)) for corner in corners]] for corners, text, score in lines]
