"""MelWeightMatrix against the loop of its definition.

Covers: compiler/ops.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from shaderloom.compiler.ops.onnx.mel_weights import mel_matrix

from ...support.work import calls_of


def defined_matrix(bins: int, length: int, rate: int, low: float, high: float) -> np.ndarray:
    """Return the filters as the standard's reference computes them, element by element, in float64."""
    first, last = (2595.0 * math.log10(1.0 + edge / 700.0) for edge in (low, high))
    mels = np.arange(bins + 2) * ((last - first) / (bins + 2)) + first
    corners = [int((length + 1) * 700.0 * (10.0 ** (mel / 2595.0) - 1.0) // rate) for mel in mels]
    matrix = np.zeros((length // 2 + 1, bins))
    for column, (left, centre, right) in enumerate(zip(corners, corners[1:], corners[2:])):
        for row in range(left, centre + 1):
            matrix[row, column] = (row - left) / (centre - left) if centre > left else 1.0
        for row in range(centre, right):
            matrix[row, column] = (right - row) / (right - centre)
    return matrix


@pytest.mark.parametrize(
    "numbers",
    [
        (8, 16, 8192, 0, 4096),
        (40, 512, 16000, 20, 7600),
        (80, 400, 16000, 0, 8000),
        (200, 64, 16000, 0, 7900),  # several bins between two rows
        (3, 1023, 22050, 100, 9000),
        (1, 8, 100, 0, 40),
    ],
)
def test_filters(numbers):
    result = mel_matrix(*numbers)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, defined_matrix(*numbers), rtol=1e-6, atol=0)


def test_many_bins_cost_no_more_calls():
    mel_matrix(8, 16, 16000, 0, 7000)
    assert (
        calls_of(lambda: mel_matrix(1 << 20, 16, 16000, 0, 7000))
        < calls_of(lambda: mel_matrix(8, 16, 16000, 0, 7000)) + 10
    )
