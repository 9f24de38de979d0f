"""Inputs of realistic scale for the models that tests run."""

from __future__ import annotations

import numpy as np

from examples.ocr.detect import DetectionConfig, preprocess
from examples.ocr.images import draw_sample
from examples.ocr.lines import line_input


def text_picture(height: int, width: int) -> np.ndarray:
    """A part of the OCR example's picture as a detector's input: float32 [1, 3, height, width], normalised."""
    picture = draw_sample()
    rows, columns = np.arange(height) % picture.shape[0], np.arange(width) % picture.shape[1]
    cut = np.ascontiguousarray(picture[rows][:, columns])
    prepared = preprocess(cut, DetectionConfig())
    if prepared.shape[2:] != (height, width):
        prepared = np.resize(prepared, (1, 3, height, width)).astype(np.float32)
    return prepared


def text_line(width: int, height: int = 48) -> np.ndarray:
    """A line of text as a recogniser's input: float32 [1, 3, height, width] in [-1, 1]."""
    picture = draw_sample()
    line = picture[: picture.shape[0] // 3]
    return line_input(line, height, width).reshape(1, 3, height, width).astype(np.float32)


def photograph(size: int, seed: int = 0) -> np.ndarray:
    """Smooth noise with the statistics of a normalised photograph: float32 [1, 3, size, size]."""
    generator = np.random.default_rng(seed)
    result = np.zeros((1, 3, size, size), np.float32)
    for octave in (7, 14, 28, 56, 112):
        coarse = generator.standard_normal((1, 3, octave, octave)).astype(np.float32)
        steps = np.arange(size) * octave // size
        result += coarse[:, :, steps][:, :, :, steps] * (14.0 / octave) ** 0.5
    return (result / result.std()).astype(np.float32)


def tokens(batch: int, length: int, vocabulary: int, seed: int = 0) -> np.ndarray:
    """Token ids: int64 [batch, length]."""
    return np.random.default_rng(seed).integers(0, vocabulary, (batch, length), dtype=np.int64)
