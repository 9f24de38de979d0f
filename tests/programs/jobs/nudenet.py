"""nudenet: the parts that it sees in a portrait."""

import inputs
from nudenet import NudeDetector


def run():
    found = NudeDetector().detect(inputs.png(inputs.portrait()))
    return [[each["class"], float(each["score"]), list(map(int, each["box"]))] for each in found]
