"""openwakeword: the scores of its wake words over a recording, a chunk at a time."""

import inputs
import numpy as np
from openwakeword.model import Model


def run():
    clip = (inputs.voice() * 32767).astype(np.int16)
    frames = Model(inference_framework="onnx").predict_clip(clip)
    return [{name: float(score) for name, score in frame.items()} for frame in frames]
