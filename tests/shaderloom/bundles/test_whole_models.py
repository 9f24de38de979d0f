"""Bundles of whole models beside sessions of the models, and a decode over two bundles.

Covers: shaderloom/bundles.
"""

from __future__ import annotations

import numpy as np
import pytest

import shaderloom
from shaderloom.bundles.compile import compile_bundle

from ...support.bundle_models import MODELS, BundledModel, greedy_decode, speech_decoder, speech_encoder
from ...support.comparison import relative_error

pytestmark = pytest.mark.slow


def bundle_of(model: BundledModel, path, device):
    compile_bundle(model.model, path, **model.options)
    return shaderloom.load_bundle(path, device=device)


def session_of(model: BundledModel, device):
    return shaderloom.InferenceSession(model.model, device=device, cache=False, dynamic=model.dynamic or None)


@pytest.mark.parametrize("name", MODELS)
def test_bundles_give_what_sessions_give(name, device, tmp_path):
    model = MODELS[name]()
    with bundle_of(model, tmp_path / "b", device) as bundle, session_of(model, device) as session:
        names = [port.name for port in session.get_outputs()]
        counts = set()
        for feeds in model.feeds:
            outputs = bundle.run(names, feeds)
            for output, actual, expected in zip(names, outputs, session.run(names, feeds), strict=True):
                assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), output
                if actual.dtype.kind == "f":
                    assert relative_error(actual, expected) <= model.tolerance, output
                else:
                    np.testing.assert_array_equal(actual, expected)
            counts.add(outputs[0].shape)
    assert name not in ("detector", "voice") or len(counts) > 1, "sizes depend on the data"


@pytest.mark.parametrize("name", ["voice", "whisper_decoder_merged"])
def test_programs_in_half_precision_decide_as_sessions_in_full_precision(name, device, tmp_path):
    """Measured on the first inputs alone, which take one side of the decoder's branch."""
    model = MODELS[name]()
    options = {**model.options, "precision": "float16", "sample_inputs": model.feeds[0]}
    manifests = [
        compile_bundle(model.model, tmp_path / "half", **options),
        compile_bundle(model.model, tmp_path / "full", **model.options),
    ]
    half, full = (sum(part.length for parts in each.weights.values() for part in parts) for each in manifests)
    assert half < (full if name == "voice" else 0.75 * full), (
        "durations are exact, and so are most weights of the voice"
    )
    with shaderloom.load_bundle(tmp_path / "half", device=device) as bundle, session_of(model, device) as session:
        for feeds in model.feeds:
            for actual, expected in zip(bundle.run(None, feeds), session.run(None, feeds), strict=True):
                assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
                if actual.dtype.kind == "f":
                    assert relative_error(actual, expected) <= 5e-3
                else:
                    np.testing.assert_array_equal(actual, expected)


def test_a_detector_sees_letters(device, tmp_path):
    model = MODELS["detector"]()
    with bundle_of(model, tmp_path / "b", device) as bundle:
        boxes = [bundle.run(["chosen"], feeds)[0] for feeds in model.feeds]
    places = {round((float(box[0]) - 45) / 95) for box in boxes[0]}
    assert len(places) == len(boxes[0]) >= 3 and places <= {0, 1, 2, 3}, "letters are 95 pixels apart"
    assert len(boxes[2]) < len(boxes[0])


def test_what_is_masked_out_is_nan(device, tmp_path):
    model = MODELS["caustic"]()
    with bundle_of(model, tmp_path / "b", device) as bundle:
        for feeds in model.feeds:
            for output in bundle.run(None, feeds):
                np.testing.assert_array_equal(np.isnan(output), ~feeds["target_mask"])


def test_a_decode_over_two_bundles(device, tmp_path):
    """What the decoder caches stays on the device; tokens are those of sessions."""
    models = speech_encoder(), speech_decoder()
    with (
        bundle_of(models[0], tmp_path / "e", device) as encoder,
        bundle_of(models[1], tmp_path / "d", device) as decoder,
    ):
        tokens, logits = greedy_decode(encoder, decoder, 10, location="gpu-buffer")
    with session_of(models[0], device) as encoder, session_of(models[1], device) as decoder:
        expected_tokens, expected = greedy_decode(encoder, decoder, 10)
    assert tokens == expected_tokens and len(set(tokens)) > 1
    assert relative_error(logits, expected) <= 1e-4
