"""silero-vad: where there is speech in a recording, with the model for ONNX that the package ships."""

import inputs
import torch
from silero_vad import get_speech_timestamps, load_silero_vad


def run():
    model = load_silero_vad(onnx=True)
    sound = torch.from_numpy(inputs.voice(4.0))
    return {
        "speech": get_speech_timestamps(sound, model, threshold=0.3),
        "chances": model.audio_forward(sound, 16000).tolist(),
    }
