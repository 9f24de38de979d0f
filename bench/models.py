"""The models that benchmarks run, with inputs of realistic scale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from examples.ocr.pipeline import ModelPaths
from tests.support.inputs import photograph, text_line, text_picture, tokens
from tests.support.models import filled_model, locate_trained

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class BenchModel:
    """``locate`` gives the ONNX file, downloaded or filled if need be; ``other_feeds`` have other shapes.

    A program with a ``worker`` of its own runs on ours alone.
    """

    name: str
    locate: Callable[[], Path]
    feeds: Callable[[], Feeds]
    other_feeds: Callable[[], Feeds] | None = None
    worker: str = ""


def _image(name: str) -> BenchModel:
    return BenchModel(name, lambda: filled_model(name), lambda: {"input": photograph(224)})


def _text(name: str, length: int, *, mask: bool) -> BenchModel:
    def feeds() -> Feeds:
        result = {"input_ids": tokens(1, length, 1000)}
        if mask:
            result["attention_mask"] = np.ones((1, length), np.int64)
        return result

    return BenchModel(name, lambda: filled_model(name), feeds)


def one_token(past: int = 512) -> Feeds:
    """A token for ``decoder_kv`` behind a cache of ``past`` positions."""
    generator = np.random.default_rng(0)
    feeds: Feeds = {"input_ids": tokens(1, 1, 4096)}
    for layer in range(4):
        for part in ("k", "v"):
            feeds[f"past.{layer}.{part}"] = generator.standard_normal((1, 2, past, 32), dtype=np.float32)
    return feeds


MODELS = {
    model.name: model
    for model in (
        _image("squeezenet1_1"),
        _image("mobilenet_v2"),
        _image("resnet18"),
        _image("resnet50"),
        _image("efficientnet_b0"),
        _image("vit_tiny_patch16_224"),
        _text("bert_small", 128, mask=True),
        _text("gpt2_small", 64, mask=False),
        BenchModel("decoder_kv", lambda: filled_model("decoder_kv"), one_token),
        BenchModel("ppocr_det", lambda: locate_trained("ppocr_det"), lambda: {"x": text_picture(320, 480)}),
        BenchModel("ppocr_cls", lambda: locate_trained("ppocr_cls"), lambda: {"x": text_line(192)}),
        BenchModel(
            "ppocr_rec",
            lambda: locate_trained("ppocr_rec"),
            lambda: {"x": text_line(320)},
            lambda: {"x": text_line(480)},
        ),
        BenchModel("ocr program", lambda: ModelPaths.fetch().detection, dict, worker="ocr_program"),
    )
}
