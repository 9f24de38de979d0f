"""Models of packages and of exporters on the device: sound, text, graphs, transformers; all nodes on wgpu.

Covers: shaderloom/session, compiler/driver.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import shaderloom
from shaderloom.runtime.plan.errors import ShapeError

from ...support.comparison import assert_model_close, reference, relative_error
from ...support.inputs import photograph, tokens
from ...support.model_inputs import (
    MAGIKA_CONFIG,
    arabic_ids,
    file_bytes,
    files_of_repository,
    packaged_json,
    protein,
    speech,
)
from ...support.models import filled_model, trained_model
from ...support.sessions import Feeds, assert_all_on_device, check_on_device, run_session

#: Largest error over the largest output for models whose weights or activations are int8
INT8_TOLERANCE = 1e-2


def spectrum(frames: int) -> np.ndarray:
    """Log power of windows of speech, as plcmos is fed: float32 [1, 1, frames, 257]."""
    signal = speech(256 * (frames + 1))
    windows = np.lib.stride_tricks.sliding_window_view(signal, 512)[::256][:frames] * np.hamming(513)[:-1]
    power = np.maximum(np.abs(np.fft.rfft(windows, axis=-1)) ** 2, 1e-12)
    return (np.log(power) / 20).astype(np.float32)[None, None]


def rater() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)


TRAINED: dict[str, tuple[str, Callable[[], Feeds]]] = {
    "basic_pitch": ("basic_pitch", lambda: {"serving_default_input_2:0": speech(43844, rate=22050).reshape(1, -1, 1)}),
    "dnsmos": ("dnsmos", lambda: {"input_1": speech(144160)[None]}),
    "plcmos": ("plcmos", lambda: {"degraded_audio": spectrum(100), "rater_embed": rater()}),
    "caustic": ("caustic", lambda: protein(37, 101, 9)),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", TRAINED)
def test_trained_model(case: str, device) -> None:
    name, make_feeds = TRAINED[case]
    check_on_device(trained_model(name), make_feeds(), device)


# -- models that decide ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_magika_names_the_kinds_of_20_files(device) -> None:
    """Scores are compared where one kind is sure: between two kinds onnxruntime itself is 2e-4 from float64."""
    path, labels = trained_model("magika"), packaged_json(MAGIKA_CONFIG)["target_labels_space"]
    files = [file for file in files_of_repository(20) if file.is_file()]
    named = set()
    with shaderloom.InferenceSession(path, device=device, cache=False) as session:
        for file in files:
            feeds = {"bytes": file_bytes(file.read_bytes())}
            (result,), (expected,) = session.run(None, feeds), reference(path, feeds)
            assert expected.max() < 0.9 or relative_error(result, expected) <= 1e-4, file
            assert result.argmax() == expected.argmax(), file
            named.add((file.suffix, labels[result.argmax()]))
        assert_all_on_device(session.report())
    assert len(files) == 20
    assert (".py", "python") in named
    assert len({label for _, label in named}) > 1


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rate"), [("silero_16k", 16000), ("silero_both", 16000), ("silero_both", 8000)])
def test_silero_hears_speech_in_20_frames(name: str, rate: int, device) -> None:
    """Frames of 32 ms with 4 ms before each, and the state of the run before; silero_both branches on the rate."""
    step, before = rate * 32 // 1000, rate * 4 // 1000
    path, signal = trained_model(name), speech(before + 20 * step, rate=rate)
    state = np.zeros((2, 1, 128), np.float32)
    with shaderloom.InferenceSession(path, device=device, cache=False) as session:
        for frame in range(20):
            begin = frame * step
            feeds = {"input": signal[None, begin : begin + before + step], "state": state, "sr": np.array(rate)}
            results, expected = session.run(None, feeds), reference(path, feeds)
            assert_model_close(results, path, feeds)
            assert (results[0] > 0.5) == (expected[0] > 0.5)
            state = results[1]
        if name == "silero_16k":
            assert_all_on_device(session.report())
        else:
            assert {placement.provider for placement in session.placement()} <= {"wgpu", "folded"}


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "size"), [(16000, 512), (8000, 256)])
def test_silero_of_both_rates_takes_the_branch_of_the_rate(rate: int, size: int, device) -> None:
    """The rate is an input: an If around the whole model, whose condition the host computes."""
    path, ahead = trained_model("silero_both"), size // 8
    signal = speech(ahead + 20 * size)
    state = np.zeros((2, 1, 128), np.float32)
    with shaderloom.InferenceSession(path, device=device, cache=False) as session:
        for frame in range(20):
            piece = signal[None, frame * size : (frame + 1) * size + ahead]
            feeds = {"input": piece, "state": state, "sr": np.array(rate)}
            results, expected = session.run(None, feeds), reference(path, feeds)
            assert_model_close(results, path, feeds)
            assert (results[0] > 0.5) == (expected[0] > 0.5)
            state = results[1]
        assert session.stats.misses == 1
        assert session.stats.steps == ["wgpu"]
        assert session.stats.crossings == []
        assert {row.provider for row in session.placement()} == {"wgpu", "folded"}


@pytest.mark.slow
def test_rawi_sets_the_signs_of_20_lines(device) -> None:
    path = trained_model("rawi")
    with shaderloom.InferenceSession(path, device=device, cache=False) as session:
        for line in range(20):
            feeds = {"input": arabic_ids(7 * line, 24)}
            (result,), (expected,) = session.run(None, feeds), reference(path, feeds)
            assert relative_error(result, expected) <= INT8_TOLERANCE
            np.testing.assert_array_equal(result.argmax(-1), expected.argmax(-1))
        assert_all_on_device(session.report())


# -- transformers and other exports ----------------------------------------------------------------------------------


def text(batch: int, length: int, vocabulary: int = 1000) -> Feeds:
    mask = np.ones((batch, length), np.int64)
    mask[-1, length - length // 4 :] = 0
    return {"input_ids": tokens(batch, length, vocabulary), "attention_mask": mask}


@pytest.mark.slow
def test_minilm_of_two_lengths(device) -> None:
    path = trained_model("minilm_int8")
    with shaderloom.InferenceSession(path, device=device, cache=False) as session:
        for batch, length in ((2, 15), (1, 33)):
            feeds = {**text(batch, length, 30000), "token_type_ids": np.zeros((batch, length), np.int64)}
            (result,), (expected,) = session.run(None, feeds), reference(path, feeds)
            assert relative_error(result, expected) <= INT8_TOLERANCE
        assert_all_on_device(session.report())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "vocabulary"), [("bert_small", 1000), ("gpt2_small", 50257)])
def test_language_model(name: str, vocabulary: int, device) -> None:
    path = filled_model(name)
    feeds = text(1, 128, vocabulary) if name == "bert_small" else {"input_ids": tokens(1, 64, vocabulary)}
    results, report = run_session(path, feeds, device)
    assert_all_on_device(report)
    assert_model_close(results, path, feeds)


@pytest.mark.slow
def test_unet_of_two_sizes(device) -> None:
    path = filled_model("unet_small")
    with shaderloom.InferenceSession(path, device=device, cache=False) as session:
        for height, width in ((32, 48), (64, 40)):
            feeds = {"input": np.ascontiguousarray(photograph(96)[:, :, :height, :width])}
            assert_model_close(session.run(None, feeds), path, feeds)
        assert_all_on_device(session.report())
        assert session.stats.misses == 2


def test_unet_of_declared_sizes(device) -> None:
    """Twice halved and twice doubled: a plan for all multiples of 4, and an error that says so without the step."""
    path = filled_model("unet_small")
    dynamic = {"height": (8, 96, 4), "width": (8, 96, 4)}
    with shaderloom.InferenceSession(path, device=device, cache=False, dynamic=dynamic) as session:
        for height, width in ((32, 48), (96, 8), (12, 20)):
            feeds = {"input": np.ascontiguousarray(photograph(96)[:, :, :height, :width])}
            assert_model_close(session.run(None, feeds), path, feeds)
        assert_all_on_device(session.report())
        assert session.stats.misses == 1
        with pytest.raises(shaderloom.InputError, match=r"'height', is 34; .* 8 to 96 in steps of 4"):
            session.run(None, {"input": np.zeros((1, 3, 34, 48), np.float32)})
    for declared in ({"height": (8, 96), "width": (8, 96)}, {"height": (8, 96, 2), "width": (8, 96, 2)}):
        with (
            shaderloom.InferenceSession(path, device=device, cache=False, dynamic=declared) as session,
            pytest.raises(ShapeError, match=r'"height": \(8, 96, 4\), "width": \(8, 96, 4\)'),
        ):
            session.run(None, feeds)


# -- a decoder that keeps its cache on the device --------------------------------------------------------------------

CACHES = [f"{layer}.{kind}" for layer in range(4) for kind in "kv"]


@pytest.mark.parametrize("declared", [False, True], ids=["shape keys", "declared dims"])
def test_decoder_writes_tokens_one_by_one(declared: bool, device) -> None:
    """The cache of the run before is fed as it is; the tokens and logits are those of one run over the whole text."""
    path, prompt, count = filled_model("decoder_kv"), tokens(1, 7, 4096), 64 if declared else 4
    dynamic = {"past": (0, 128), "sequence": (1, 16)} if declared else None
    with shaderloom.InferenceSession(path, device=device, cache=False, dynamic=dynamic) as session:
        caches = [shaderloom.Tensor.empty((1, 2, 0, 32), np.float32, device) for _ in CACHES]
        text, fed, steps = prompt, prompt, []
        for _ in range(count):
            feeds = {"input_ids": fed, **{f"past.{name}": cache for name, cache in zip(CACHES, caches)}}
            names = ["logits", *(f"present.{name}" for name in CACHES)]
            logits, *caches = session.run(names, feeds, outputs=dict.fromkeys(names[1:], "gpu-buffer"))
            assert all(isinstance(cache, shaderloom.Tensor) for cache in caches)
            steps.append(logits[:, -1])
            fed = logits[:, -1:].argmax(-1)
            text = np.concatenate([text, fed], axis=1)
        assert_all_on_device(session.report())
        if declared:
            assert [key.split(",")[0] for key in session.stats.keys] == ["input_ids=1xsequence", "input_ids=1x1"]
    empty = np.zeros((1, 2, 0, 32), np.float32)
    whole = {"input_ids": text[:, :-1], **{f"past.{name}": empty for name in CACHES}}
    expected = reference(path, whole)
    assert relative_error(np.stack(steps, axis=1), expected[0][:, 6:]) <= 1e-4
    np.testing.assert_array_equal(text[:, 7:], expected[0][:, 6:].argmax(-1))
    for cache, present in zip(caches, expected[1:], strict=True):
        assert relative_error(cache.numpy(), present) <= 1e-4
