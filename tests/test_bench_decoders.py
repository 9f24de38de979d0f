"""Decoders of the benchmarks, as onnxruntime computes them and as their workers run them.

Covers: bench/decoders, bench/workers/decoder_shaderloom, bench/workers/decoder_onnxruntime.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from bench.decoders import Decoder, Run, write_decoder
from bench.workers import decoder_onnxruntime, decoder_shaderloom
from shaderloom import InferenceSession

SMALL = Decoder("small", 128, 320, 2, 4, 2, 32, 1024, is_tied=True, has_bias=True)


@pytest.mark.parametrize(
    "decoder", [SMALL, replace(SMALL, is_tied=False, shared=4, has_bias=False)], ids=["tied", "own"]
)
@pytest.mark.parametrize("run", [Run("token", 1, 41, 64), Run("prompt", 9, 0, 9)], ids=lambda run: run.name)
def test_decoders_run_in_place_as_in_onnxruntime(device, tmp_path, decoder: Decoder, run: Run) -> None:
    path = write_decoder(decoder, tmp_path, positions=128, accuracy_level=0)
    reference = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    expected = decoder_onnxruntime._logits(reference, decoder, run)
    assert 1 < expected.std(dtype=np.float32) < 10  # activations keep their scale from layer to layer
    with InferenceSession(path, device=device) as session:
        once = decoder_shaderloom._lazy(run, decoder, session, device, {})
        for _ in range(2):  # the second run writes the same rows again
            np.testing.assert_allclose(once().numpy(), expected, atol=0.02 * np.abs(expected).max())
