"""Pictures and sounds for the jobs, drawn from numbers, and a photograph of a pinned package."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont


def text_picture(lines: tuple[str, ...] = ("Graph compiler", "Invoice 2048", "Total 37.50")) -> np.ndarray:
    """Return uint8[height, 640, 3] with lines of black text on white."""
    picture = Image.new("RGB", (640, 80 * len(lines) + 40), "white")
    draw = ImageDraw.Draw(picture)
    for number, line in enumerate(lines):
        draw.text((40, 30 + 80 * number), line, fill="black", font=ImageFont.load_default(44))
    return np.asarray(picture)


def portrait() -> np.ndarray:
    """Return uint8[600, 512, 3]: the photograph of Grace Hopper among matplotlib's samples."""
    package = importlib.util.find_spec("matplotlib")
    assert package is not None and package.origin is not None
    with Image.open(Path(package.origin).parent / "mpl-data" / "sample_data" / "grace_hopper.jpg") as picture:
        return np.asarray(picture.convert("RGB"))


def png(picture: np.ndarray) -> bytes:
    """Return a picture as the bytes of a PNG file."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


def voice(seconds: float = 2.0, rate: int = 16000) -> np.ndarray:
    """Return float32[seconds * rate]: a gliding voice of harmonics and formants in the middle, silence around it."""
    time = np.arange(int(seconds * rate)) / rate
    pitch = 140 + 40 * np.sin(2 * np.pi * 1.5 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    formants = ((700, 130), (1220, 110), (2600, 160))
    sound = np.zeros_like(time)
    for harmonic in range(1, 30):
        gain = sum(np.exp(-(((harmonic * 150 - centre) / width) ** 2)) for centre, width in formants) + 0.05
        sound += gain * np.sin(harmonic * phase) / harmonic**0.5
    loud = np.clip(np.minimum(time - 0.15 * seconds, 0.85 * seconds - time) * 20, 0, 1)
    noise = np.random.default_rng(0).standard_normal(len(time)) * 1e-3
    return (sound / np.abs(sound).max() * 0.5 * loud + noise).astype(np.float32)
