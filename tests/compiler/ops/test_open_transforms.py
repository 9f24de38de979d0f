"""Fourier transforms of lengths that a run decides, against numpy in float64.

Covers: compiler/ops/internal/rotations, compiler/ops/onnx/fourier.
"""

from __future__ import annotations

import numpy as np
import pytest

import shaderloom

from ...support.programs import numbers, parse

#: Transforms of a signal as a whole, of 512 elements of it, a real one of half a spectrum, and of windows
TRANSFORMS = """g (float[2, n, 2] z, float[2, n] s, float[24] w) => (float[2, n, 2] forward, float[2, 512, 2] padded,
        float[2, n, 2] inverse, float[2, m, 1] real, float[2, f, 13, 2] frames)
    <int64 size = {512}, int64 step = {5}> {
    forward = DFT<axis = 1>(z)  padded = DFT<axis = 1>(z, size)  inverse = DFT<axis = 1, inverse = 1>(z)
    real = DFT<axis = 1, inverse = 1, onesided = 1>(z)  frames = STFT(s, step, w) }"""


def close(actual: np.ndarray, expected: np.ndarray, terms: int) -> None:
    """Within rounding of sums of as many terms in float32."""
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, atol=1e-7 * np.sqrt(terms) * np.abs(expected).max(), rtol=0)


def opened(text: str, device, low: int, high: int) -> shaderloom.InferenceSession:
    return shaderloom.InferenceSession(parse(text), device=device, cache=False, dynamic={"n": (low, high)})


def test_a_length_that_a_run_decides(device):
    model = "g (float[1, n, 1] s) => (float[1, n, 2] y) { y = DFT<axis = 1>(s) }"
    with opened(model, device, 1, 200) as session:
        for n in (1, 2, 101, 200):
            s = numbers(1, n, 1)
            expected = np.fft.fft(s[..., 0].astype(np.float64))
            close(session.run(None, {"s": s})[0], np.stack([expected.real, expected.imag], -1), n)


@pytest.fixture(scope="module")
def session(device):
    with opened(TRANSFORMS, device, 24, 3000) as every:
        yield every


@pytest.mark.slow
@pytest.mark.parametrize("n", [24, 101, 512, 1021, 3000])
def test_transforms_of_lengths_that_runs_decide(session, n):
    z, s, w = numbers(2, n, 2), numbers(2, n, seed=1), np.hanning(24).astype(np.float32)
    forward, padded, inverse, real, frames = session.run(None, {"z": z, "s": s, "w": w})
    signal = z[..., 0].astype(np.float64) + 1j * z[..., 1]
    parts = [np.stack([each.real, each.imag], -1) for each in (
        np.fft.fft(signal), np.fft.fft(signal, 512), np.fft.ifft(signal))]  # fmt: skip
    for actual, expected in zip((forward, padded, inverse), parts, strict=True):
        close(actual, expected, n)
    # numpy leaves the imaginary part of the last number out of an even length, as its sine is zero
    close(real, np.fft.irfft(signal)[..., None], n)
    windows = np.lib.stride_tricks.sliding_window_view(s.astype(np.float64), 24, axis=1)[:, ::5] * w
    expected = np.fft.rfft(windows)
    close(frames, np.stack([expected.real, expected.imag], -1), 24)


def test_lengths_that_reach_beyond_32_bits_are_refused(device):
    model = "g (float[1, n, 1] s) => (float[1, n, 2] y) { y = DFT<axis = 1>(s) }"
    with (
        opened(model, device, 1, 60000) as session,
        pytest.raises(shaderloom.LimitError, match="a transform of 60,000 numbers to 60,000") as caught,
    ):
        session.run(None, {"s": numbers(1, 9, 1)})
    assert "DFT" in str(caught.value)
