"""swift-f0: the pitch of a gliding voice, frame by frame."""

import inputs
from swift_f0 import SwiftF0


def run():
    found = SwiftF0().detect(inputs.voice(), 16000)
    return {"pitch": found.pitch_hz.tolist(), "confidence": found.confidence.tolist()}
