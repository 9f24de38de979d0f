"""Whole models whose bundles are compared with sessions, in Python and in a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageDraw, ImageFont

from .model_inputs import protein
from .models import filled_model, trained_model

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class BundledModel:
    """A model, the shapes and ranges for which its bundle is compiled, and inputs of runs.

    ``tolerance`` bounds the largest difference, relative to the largest magnitude.
    """

    model: Path | onnx.ModelProto
    shapes: Mapping[str, Sequence[int]]
    feeds: Sequence[Feeds]
    dynamic: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tolerance: float = 1e-4

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of ``compile_bundle``."""
        return {"shapes": [self.shapes], "dynamic": self.dynamic or None, "ranges": self.ranges or None}


def shapes_of(feeds: Feeds) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in feeds.items()}


def captcha(text: str, seed: int) -> Feeds:
    """Coloured letters on a light band with lines across it, above the grey that fills the square, as the detector's
    own code prepares pictures: float32 [1, 3, 416, 416], blue first.
    """
    draw = np.random.default_rng(seed)
    band = Image.new("RGB", (416, 166), (240, 240, 250))
    pen = ImageDraw.Draw(band)
    for _ in range(8):
        ends = [(int(x), int(y)) for x, y in draw.integers(0, (416, 160), (2, 2))]
        pen.line(ends, tuple(map(int, draw.integers(120, 220, 3))), 2)
    for place, letter in enumerate(text):
        pen.text((20 + 95 * place, 40), letter, tuple(map(int, draw.integers(0, 120, 3))), ImageFont.load_default(70))
    picture = Image.new("RGB", (416, 416), (114, 114, 114))
    picture.paste(band, (0, 0))
    return {"images": np.asarray(picture, np.float32)[..., ::-1].transpose(2, 0, 1)[None].copy()}


def suppressing_detector() -> BundledModel:
    """A trained detector of characters (YOLOX) whose boxes are decoded and suppressed in the model.

    Its output is [1, 3549, 6]: offsets and logarithms of sizes in cells of 8, 16 and 32 pixels, and two scores whose
    product counts.
    """
    model = onnx.load(trained_model("ddddocr_det"))
    cells, strides = [], []
    for stride in (8, 16, 32):
        rows, columns = np.divmod(np.arange((416 // stride) ** 2), 416 // stride)
        cells.append(np.stack([columns, rows], 1))
        strides.append(np.full((len(rows), 1), stride))
    grid = np.concatenate(cells).astype(np.float32)[None]
    for name, array in {
        "grid": grid,
        "strides": np.concatenate(strides).astype(np.float32)[None],
        "most": np.array([20]),
        "overlap": np.array([0.45], np.float32),
        "least": np.array([0.1], np.float32),
        "last": np.array([2]),
    }.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    node = helper.make_node
    model.graph.node.extend([
        node("Split", ["output"], ["offsets", "sizes", "is_there", "is_text"], axis=2, split=[2, 2, 1, 1]),
        node("Add", ["offsets", "grid"], ["places"]),
        node("Mul", ["places", "strides"], ["centres"]),
        node("Exp", ["sizes"], ["cells_wide"]),
        node("Mul", ["cells_wide", "strides"], ["extents"]),
        node("Concat", ["centres", "extents"], ["boxes"], axis=2),
        node("Mul", ["is_there", "is_text"], ["column"]),
        node("Transpose", ["column"], ["scores"], perm=[0, 2, 1]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["selected"], center_point_box=1),
        node("Gather", ["selected", "last"], ["numbers"], axis=1),
        node("Squeeze", ["numbers"], ["flat"], axes=[1]),
        node("Squeeze", ["boxes"], ["all_boxes"], axes=[0]),
        node("Gather", ["all_boxes", "flat"], ["chosen"], axis=0),
    ])  # fmt: skip
    del model.graph.output[:]
    model.graph.output.extend([
        helper.make_tensor_value_info("selected", TensorProto.INT64, ["found", 3]),
        helper.make_tensor_value_info("chosen", TensorProto.FLOAT, ["found", 4]),
    ])  # fmt: skip
    pictures = [captcha("ab3k", 0), captcha("7", 1), captcha("", 2)]
    return BundledModel(model, shapes_of(pictures[0]), pictures)


#: Sounds of a text: how long each of its letters is decides the length of the result
VOICE = """<ir_version: 8, opset_import: ["" : 17]>
voice (int64[1, t] letters, float[1] speed) => (float[1, 1, samples] sound, int64[t] durations)
<int64 zero = {0}, int64 one = {1}, int64[1] ones = {1}, int64[1] rows = {0}, int64[1] column = {1},
 float least = {1}, float most = {9}, float turn = {0.3}> {
    embedded = Gather<axis = 0>(table, letters)
    wide = Transpose<perm = [0, 2, 1]>(embedded)
    mixed = Conv<pads = [1, 1]>(wide, mix)
    hidden = Tanh(mixed)
    logarithms = Conv(hidden, length)
    raw = Exp(logarithms)
    slow = Mul(raw, speed)
    whole = Ceil(slow)
    bounded = Clip(whole, least, most)
    counted = Cast<to = 7>(bounded)
    flat = Constant<value = int64[1] {-1}>()
    durations = Reshape(counted, flat)
    total = ReduceSum<keepdims = 0>(durations)
    frames = Range(zero, total, one)
    starts = CumSum<exclusive = 1>(durations, zero)
    places = Unsqueeze(starts, column)
    size = Unsqueeze(total, rows)
    blank = ConstantOfShape<value = int64[1] {0}>(size)
    marks = Sign(durations)
    begun = ScatterND(blank, places, marks)
    ended = CumSum(begun, zero)
    index = Sub(ended, one)
    spoken = Gather<axis = 2>(hidden, index)
    clock = Cast<to = 1>(frames)
    angle = Mul(clock, turn)
    wave = Sin(angle)
    voiced = Mul(spoken, wave)
    raised = ConvTranspose<strides = [4]>(voiced, rise)
    sound = Tanh(raised)
}
"""


def voice() -> BundledModel:
    """A text of 1 to 24 letters to sound: four samples for each frame, as many frames as its letters last."""
    model = onnx.parser.parse_model(VOICE)
    draw = np.random.default_rng(5)
    for name, shape in {"table": (40, 16), "mix": (24, 16, 3), "length": (1, 24, 1), "rise": (24, 1, 8)}.items():
        weight = (draw.standard_normal(shape) / 2).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    texts = [
        {"letters": draw.integers(0, 40, (1, size)), "speed": np.array([speed], np.float32)}
        for size, speed in ((9, 1), (24, 2.5), (1, 0.2), (13, 0.5))
    ]
    return BundledModel(model, shapes_of(texts[0]), texts, {"t": (1, 24)}, {"total": (1, 216)})


def molecules() -> BundledModel:
    """Predictions for a protein's residues; those whose target is masked out are NaN, as the model says."""
    feeds = [protein(37, 101, 9, seed) for seed in (0, 3)]
    return BundledModel(trained_model("caustic"), shapes_of(feeds[0]), feeds)


def text_encoder() -> BundledModel:
    draw = np.random.default_rng(0)
    feeds = [
        {"input_ids": draw.integers(0, 1000, (batch, size)), "attention_mask": np.ones((batch, size), np.int64)}
        for batch, size in ((1, 16), (2, 7), (1, 1))
    ]
    dynamic = {"batch": (1, 4), "sequence": (1, 64)}
    return BundledModel(filled_model("bert_small_dynamic"), shapes_of(feeds[0]), feeds, dynamic)


def denoiser() -> BundledModel:
    draw = np.random.default_rng(0)
    feeds = [{"input": draw.standard_normal((1, 3, *size)).astype(np.float32)} for size in ((64, 64), (32, 96))]
    dynamic = {"height": (32, 96, 16), "width": (32, 96, 16)}
    return BundledModel(filled_model("unet_small"), shapes_of(feeds[0]), feeds, dynamic)


def decoder() -> BundledModel:
    """A decoder with a cache: a prompt, one token behind it, and several sequences."""
    draw = np.random.default_rng(0)

    def fed(batch: int, sequence: int, past: int) -> Feeds:
        caches = {
            f"past.{layer}.{kind}": draw.standard_normal((batch, 2, past, 32)).astype(np.float32)
            for layer in range(4)
            for kind in "kv"
        }
        return {"input_ids": draw.integers(0, 4096, (batch, sequence)), **caches}

    feeds = [fed(1, 7, 0), fed(1, 1, 7), fed(2, 3, 9)]
    dynamic = {"batch": (1, 2), "sequence": (1, 16), "past": (0, 64)}
    return BundledModel(filled_model("decoder_kv"), shapes_of(feeds[2]), feeds, dynamic)


def speech_encoder() -> BundledModel:
    """The encoder of a Whisper of 64 channels, for 30 seconds of speech in 16 bands."""
    feeds = {"input_features": np.random.default_rng(0).standard_normal((1, 16, 3000)).astype(np.float32)}
    return BundledModel(filled_model("whisper_encoder"), shapes_of(feeds), [feeds])


def speech_decoder() -> BundledModel:
    """Its decoder in the merged form: without caches for the first tokens, then with them (``use_cache_branch``)."""
    draw = np.random.default_rng(0)

    def fed(tokens: int, past: int, encoded: int) -> Feeds:
        caches = {
            f"past_key_values.{layer}.{side}.{kind}": draw.standard_normal((1, 4, size, 16)).astype(np.float32)
            for layer in range(2)
            for side, size in (("decoder", past), ("encoder", encoded))
            for kind in ("key", "value")
        }
        hidden = draw.standard_normal((1, 1500, 64)).astype(np.float32)
        ids = draw.integers(4, 512, (1, tokens))
        uses_cache = np.array([past > 0])
        return {"input_ids": ids, "encoder_hidden_states": hidden, **caches, "use_cache_branch": uses_cache}

    feeds = [fed(4, 0, 0), fed(1, 4, 1500), fed(1, 60, 1500), fed(1, 0, 0)]
    dynamic = {
        "decoder_sequence_length": (1, 8),
        "past_decoder_sequence_length": (0, 63),
        "encoder_sequence_length_out": (0, 1500),
    }
    return BundledModel(filled_model("whisper_decoder_merged"), shapes_of(fed(3, 5, 1500)), feeds, dynamic)


MODELS: dict[str, Callable[[], BundledModel]] = {
    "detector": suppressing_detector,
    "voice": voice,
    "caustic": molecules,
    "bert_small_dynamic": text_encoder,
    "unet_small": denoiser,
    "decoder_kv": decoder,
    "whisper_encoder": speech_encoder,
    "whisper_decoder_merged": speech_decoder,
}


def greedy_decode(encoder: Any, decoder: Any, count: int, location: str = "cpu") -> tuple[list[int], np.ndarray]:
    """Return the tokens that sessions of the two Whisper models take in turn, and the logits of each step.

    What one run gives the next stays at ``location``: the caches of the decoder's own tokens from every run, those of
    the sound from the first.
    """
    (feeds,) = speech_encoder().feeds
    (hidden,) = encoder.run(["last_hidden_state"], feeds, outputs={"last_hidden_state": location})
    names = [port.name for port in decoder.get_outputs()]
    caches = {
        name.replace("present", "past_key_values"): np.zeros((1, 4, 0, 16), np.float32)
        for name in names
        if name != "logits"
    }
    token, tokens, logits = 3, [], []
    for step in range(count):
        fed = {
            "input_ids": np.array([[token]]),
            "encoder_hidden_states": hidden,
            "use_cache_branch": np.array([step > 0]),
        }
        locations = {name: location for name in names if name != "logits"}
        outputs = dict(zip(names, decoder.run(names, {**fed, **caches}, outputs=locations), strict=True))
        logits.append(outputs.pop("logits")[0, -1])
        token = int(logits[-1].argmax())
        tokens.append(token)
        for name, value in outputs.items():
            if step == 0 or ".decoder." in name:
                caches[name.replace("present", "past_key_values")] = value
    return tokens, np.array(logits)
