"""Whole models against onnxruntime on the CPU: trained ones of packages, and graphs of exporters.

Every model runs in float32 and with half-precision storage, for one or more *steps*.  A step may be fed what the
reference gave the step before (states, caches, the chosen token), so that both runtimes always see the same inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shaderloom import InferenceSession
from shaderloom.runtime.device.device import Device
from shaderloom.runtime.plan.errors import ShaderloomError

from ..support.comparison import reference, relative_error
from ..support.inputs import photograph, text_line, text_picture, tokens
from ..support.model_inputs import (
    MAGIKA_CONFIG,
    arabic_ids,
    file_bytes,
    files_of_repository,
    packaged_json,
    protein,
    speech,
)
from ..support.models import filled_model, locate_trained
from .running import Outcome

Outputs = Sequence[np.ndarray]
Feeds = dict[str, np.ndarray]
#: Step and the reference's outputs of the step before (none at the first) -> feeds
Feed = Callable[[int, Outputs], Feeds]

#: Largest error over the largest output, or four times the spread between onnxruntime's own levels of optimisation
TOLERANCE = 1e-4
HALF_TOLERANCE = 2e-2
INT8_TOLERANCE = 1e-2
STEPS = 20


@dataclass(frozen=True)
class RealModel:
    """``decide`` is the final decision that a step's outputs stand for; ``sure`` says which steps' numbers count."""

    name: str
    model: str
    feed: Feed
    steps: int = 1
    filled: bool = False  #: an exporter graph with weights drawn, instead of a trained model
    large: bool = False  #: for a GPU
    tolerance: float = TOLERANCE
    decide: Callable[[Outputs], Any] | None = None
    sure: Callable[[Outputs], bool] = lambda outputs: True
    truth: Callable[[int], Any] = lambda step: None  #: what the decision must be, where that is known

    def locate(self) -> Path:
        """The file.  Raises ModelUnavailableError."""
        return (filled_model if self.filled else locate_trained)(self.model)


def real_models() -> Iterator[RealModel]:
    yield _once("ppocr_det, 640x640", "ppocr_det", lambda: {"x": text_picture(640, 640)})
    yield _once("ppocr_det, 320x480", "ppocr_det", lambda: {"x": text_picture(320, 480)})
    yield _once("ppocr_rec, width 320", "ppocr_rec", lambda: {"x": text_line(320)})
    yield _once("ppocr_rec, width 480", "ppocr_rec", lambda: {"x": text_line(480)})
    yield _once("ppocr_cls", "ppocr_cls", lambda: {"x": text_line(192)})
    yield _once("ddddocr_det", "ddddocr_det", lambda: {"images": text_picture(416, 416)})
    sound = "serving_default_input_2:0"
    yield _once("basic_pitch", "basic_pitch", lambda: {sound: speech(43844, rate=22050).reshape(1, -1, 1)})
    yield _silero("silero_16k", "silero_16k", 16000)
    yield _silero("silero_both, 16 kHz", "silero_both", 16000)
    yield _silero("silero_both, 8 kHz", "silero_both", 8000)
    yield _magika()
    yield _once("dnsmos", "dnsmos", lambda: {"input_1": speech(144160)[None]})
    yield _once("plcmos", "plcmos", _plcmos_feeds)
    yield _once("caustic", "caustic", lambda: protein(37, 101, 9))
    yield RealModel(
        "rawi",
        "rawi",
        lambda step, _: {"input": arabic_ids(7 * step, 24)},
        STEPS,
        tolerance=INT8_TOLERANCE,
        decide=lambda outputs: outputs[0].argmax(-1).tolist(),
    )
    yield RealModel("minilm_int8", "minilm_int8", _minilm_feeds, 2, tolerance=INT8_TOLERANCE)
    for name in ("squeezenet1_1", "mobilenet_v2", "resnet18", "resnet50", "efficientnet_b0", "vit_tiny_patch16_224"):
        yield _once(name, name, lambda: {"input": photograph(224)}, filled=True)
    yield _once("bert_small", "bert_small", lambda: text_feeds(1, 128), filled=True)
    lengths = ((1, 17), (2, 64), (1, 128))
    yield RealModel(
        "bert_small_dynamic", "bert_small_dynamic", lambda step, _: text_feeds(*lengths[step]), 3, filled=True
    )
    yield _once("gpt2_small", "gpt2_small", lambda: {"input_ids": tokens(1, 64, 50257)}, filled=True)
    yield RealModel("unet_small", "unet_small", _unet_feeds, 2, filled=True)
    yield RealModel(
        "decoder_kv",
        "decoder_kv",
        _decoder_feeds,
        STEPS,
        filled=True,
        decide=lambda outputs: outputs[0][:, -1].argmax(-1).tolist(),
    )
    yield _once("vit_base_patch16_224", "vit_base_patch16_224", lambda: {"input": photograph(224)}, large=True)
    yield _once("bert_base", "bert_base", lambda: text_feeds(1, 128), large=True)
    yield _once("mlp_4096x4", "mlp_4096x4", lambda: {"input": photograph(64).reshape(1, -1)[:, :4096]}, large=True)


def _once(name: str, model: str, feeds: Callable[[], Feeds], *, filled: bool = False, large: bool = False) -> RealModel:
    return RealModel(name, model, lambda step, previous: feeds(), filled=filled or large, large=large)


def text_feeds(batch: int, length: int, vocabulary: int = 1000) -> Feeds:
    mask = np.ones((batch, length), np.int64)
    mask[-1, length - length // 4 :] = 0
    return {"input_ids": tokens(batch, length, vocabulary), "attention_mask": mask}


def _silero(name: str, model: str, rate: int) -> RealModel:
    """Frames of 32 ms with 4 ms before each, and the state of the step before."""
    step_size, before = rate * 32 // 1000, rate * 4 // 1000
    signal = speech(before + STEPS * step_size, rate=rate)

    def feed(step: int, previous: Outputs) -> Feeds:
        state = previous[1] if previous else np.zeros((2, 1, 128), np.float32)
        piece = signal[None, step * step_size : (step + 1) * step_size + before]
        return {"input": piece, "state": state, "sr": np.array(rate)}

    return RealModel(name, model, feed, STEPS, decide=lambda outputs: bool(outputs[0].item() > 0.5))


def _magika() -> RealModel:
    """Scores count where one kind is sure: between two kinds onnxruntime itself is 2e-4 from float64."""
    files = files_of_repository(STEPS)

    def decide(outputs: Outputs) -> str:
        label: str = packaged_json(MAGIKA_CONFIG)["target_labels_space"][outputs[0].argmax()]
        return label

    return RealModel(
        "magika",
        "magika",
        lambda step, _: {"bytes": file_bytes(files[step].read_bytes())},
        STEPS,
        decide=decide,
        sure=lambda outputs: bool(outputs[0].max() >= 0.9),
        truth=lambda step: "python" if files[step].suffix == ".py" and files[step].stat().st_size > 500 else None,
    )


def _plcmos_feeds() -> Feeds:
    frames = 100
    signal = speech(256 * (frames + 1))
    windows = np.lib.stride_tricks.sliding_window_view(signal, 512)[::256][:frames] * np.hamming(513)[:-1]
    power = np.maximum(np.abs(np.fft.rfft(windows, axis=-1)) ** 2, 1e-12)
    rater = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    return {"degraded_audio": (np.log(power) / 20).astype(np.float32)[None, None], "rater_embed": rater}


def _minilm_feeds(step: int, _: Outputs) -> Feeds:
    batch, length = ((2, 15), (1, 33))[step]
    return {**text_feeds(batch, length, 30000), "token_type_ids": np.zeros((batch, length), np.int64)}


def _unet_feeds(step: int, _: Outputs) -> Feeds:
    height, width = ((32, 48), (64, 40))[step]
    return {"input": np.ascontiguousarray(photograph(96)[:, :, :height, :width])}


def _decoder_feeds(step: int, previous: Outputs) -> Feeds:
    """A prompt of seven tokens, then the likeliest token of the step before with its cache."""
    names = [f"past.{layer}.{kind}" for layer in range(4) for kind in "kv"]
    if not previous:
        return {"input_ids": tokens(1, 7, 4096), **dict.fromkeys(names, np.zeros((1, 2, 0, 32), np.float32))}
    return {"input_ids": previous[0][:, -1:].argmax(-1), **dict(zip(names, previous[1:], strict=True))}


# -- measuring ---------------------------------------------------------------------------------------------------------


def measure(model: RealModel, device: Device) -> tuple[Outcome, dict[str, Any]]:
    """How the model went, and facts for its row: nodes by provider, kernels, calls, errors, decisions that agree."""
    key, path = f"real/{model.name}", model.locate()
    feeds, expected, spreads = _references(model, path)
    facts: dict[str, Any] = {}
    problems: list[str] = []
    for precision, least in (("float32", model.tolerance), ("float16", max(HALF_TOLERANCE, model.tolerance))):
        options = {"precision": precision}
        try:
            with InferenceSession(
                path, device=device, cache=False, providers=["wgpu", "cpu"], options=options
            ) as session:
                results = [session.run(None, each) for each in feeds]
                if precision == "float32":
                    facts |= _describe(session)
        except ShaderloomError as error:
            return Outcome(key, "refused", f"{precision}: {error}"), facts
        facts[precision] = 0.0
        for step, (actual, right) in enumerate(zip(results, expected)):
            errors = [relative_error(left, each) for left, each in zip(actual, right, strict=True)]
            if not model.sure(right):
                continue
            facts[precision] = max(facts[precision], *errors)
            limits = [max(least, 4 * spread) for spread in spreads[step]]
            problems += [
                f"{precision}: step {step}: error {e:.1e}" for e, limit in zip(errors, limits) if not e <= limit
            ]
        if model.decide is not None:
            agreed, wrong = _decisions(model, results, expected)
            facts[f"decisions_{precision}"] = f"{agreed} of {model.steps}"
            if precision == "float32":
                problems += wrong
    kind = "wrong" if problems else "cpu" if facts["nodes"]["cpu"] else "wgpu"
    return Outcome(key, kind, "; ".join(problems[:3])), facts


def _references(model: RealModel, path: Path) -> tuple[list[Feeds], list[Outputs], list[list[float]]]:
    """Feeds and the reference's outputs of each step, and onnxruntime's own spread for each output."""
    feeds: list[Feeds] = []
    outputs: list[Outputs] = []
    spreads: list[list[float]] = []
    for step in range(model.steps):
        feeds.append(model.feed(step, outputs[-1] if outputs else ()))
        outputs.append(reference(path, feeds[-1]))
        fast = reference(path, feeds[-1], optimised=True)
        spreads.append([relative_error(left, right) for left, right in zip(fast, outputs[-1])])
    return feeds, outputs, spreads


def _describe(session: InferenceSession) -> dict[str, Any]:
    """Nodes of the model by provider; kernels and calls of a run, where the model is one plan."""
    providers = Counter(row.provider for row in session.placement())
    counts: Mapping[str, int] = {name: providers[name] for name in ("wgpu", "cpu", "folded")}
    try:
        report = session.report()
    except ShaderloomError:  # a run has several plans
        return {"nodes": counts}
    return {"nodes": counts, "kernels": len(report["kernels"]), "calls": report["calls"]}


def _decisions(model: RealModel, results: Sequence[Outputs], expected: Sequence[Outputs]) -> tuple[int, list[str]]:
    """How many decisions are those of the reference, and what is wrong with the others."""
    assert model.decide is not None
    agreed, wrong = 0, []
    for step, (actual, right) in enumerate(zip(results, expected)):
        mine, other = model.decide(actual), model.decide(right)
        truth = model.truth(step)
        agreed += mine == other
        if mine != other or truth not in (None, mine):
            wrong.append(f"step {step} decides {mine}, onnxruntime {other}, the truth is {truth or 'not known'}")
    return agreed, wrong
