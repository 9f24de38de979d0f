"""livekit-plugins-silero: the events of speech in a recording that arrives in pieces of 20 ms."""

import asyncio

import inputs
import numpy as np
from livekit import rtc
from livekit.plugins import silero

PIECE = 320


async def events():
    sound = (inputs.voice(4.0) * 32767).astype(np.int16)
    stream = silero.VAD.load(force_cpu=True).stream()
    for start in range(0, len(sound), PIECE):
        stream.push_frame(rtc.AudioFrame(sound[start : start + PIECE].tobytes(), 16000, 1, PIECE))
    stream.end_input()
    return [(str(event.type), event.samples_index, float(event.probability)) async for event in stream]


def run():
    return {"events": asyncio.run(events())}
