"""basic-pitch: the notes of a voice that glides."""

import tempfile
from pathlib import Path

import inputs
import soundfile
from basic_pitch import ICASSP_2022_MODEL_PATH
from basic_pitch.inference import predict


def run():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "voice.wav"
        soundfile.write(path, inputs.voice(3.0, 22050), 22050)
        _, _, notes = predict(path, Path(ICASSP_2022_MODEL_PATH).with_suffix(".onnx"))
    return sorted([float(start), float(end), int(pitch), float(loud)] for start, end, pitch, loud, _ in notes)
