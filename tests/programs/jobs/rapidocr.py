"""rapidocr: the lines of a picture, with their corners."""

import inputs
from rapidocr import RapidOCR


def run():
    found = RapidOCR()(inputs.text_picture())
    return [
        [text, float(score), corners.tolist()] for text, score, corners in zip(found.txts, found.scores, found.boxes)
    ]
