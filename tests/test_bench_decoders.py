"""Decoders of the benchmarks, as onnxruntime computes them and as their workers run them.

Covers: bench/decoders, bench/workers/decoder_shaderloom, bench/workers/decoder_onnxruntime,
bench/workers/generator_shaderloom, bench/workers/generator_onnxruntime.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from bench.decoders import Decoder, Run, Text, write_decoder, write_folder
from bench.workers import decoder_onnxruntime, decoder_shaderloom, generator_onnxruntime, generator_shaderloom
from shaderloom import Generator, InferenceSession

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


def test_texts_of_both_runtimes_have_the_same_tokens(device, tmp_path, monkeypatch) -> None:
    """Every mode of our worker, and the loop of the other one, on the processor."""
    for module in (generator_shaderloom, generator_onnxruntime):
        monkeypatch.setattr(module, "TEXT", Text(prompt=20, count=3))
    monkeypatch.setattr(onnxruntime, "copy_tensors", lambda *_: None)  # rows of no token: the processor copies none
    path = write_folder(SMALL, tmp_path, positions=128, accuracy_level=0)
    texts = []
    for model in (str(path), generator_onnxruntime.with_choice(str(path))):
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        bound = generator_onnxruntime.BoundTexts(onnxruntime, session, None, SMALL)
        first = bound.read_prompt()
        texts.append(bound.text())
    assert texts[0] == texts[1] and len(texts[0]) == 3
    generator = Generator(tmp_path, device=device, cache=False)
    opened = generator_shaderloom.opened_runtime(generator, SMALL)
    assert opened.outputs is not None
    (logits,) = opened.outputs()
    assert opened.facts["tokens"] == texts[0]
    assert int(logits.argmax()) == texts[0][0] == int(first[0, 0])
    for mode in opened.modes.values():
        mode()
    opened.close()
