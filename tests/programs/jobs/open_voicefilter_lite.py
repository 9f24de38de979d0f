"""open-voicefilter-lite: how loud a voice is after the filter for it, tenth by tenth of a second."""

import inputs
import numpy as np
from voicefilter_lite import StreamingVoiceFilter


def run():
    voice = inputs.voice(1.5)
    stream = StreamingVoiceFilter()
    stream.set_enrollment(inputs.voice(3.0))
    hop = stream.hop_length
    frames = [stream.step(voice[start : start + hop]) for start in range(0, len(voice) - hop, hop)]
    filtered = np.concatenate(frames)
    return [float(np.sqrt(np.mean(part**2))) for part in np.array_split(filtered, 15)]
