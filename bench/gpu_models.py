"""The models that a GPU is measured with: exporter graphs filled with seeded weights, and inputs for them.

Needs numpy and onnx alone, so that it runs on a machine whose interpreter comes with other packages than ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .quantised_models import QUANTISERS
from .recurrent_models import recurrent, sequence
from .sentence_encoder import sentence_encoder, sentences

if TYPE_CHECKING:
    import onnx

Feeds = dict[str, np.ndarray]

#: The exporters' graphs, without weights
SKELETONS = Path(__file__).resolve().parents[1] / "tests" / "data" / "models"


@dataclass(frozen=True)
class GpuModel:
    """``skeleton`` names the graph's file without weights, or what ``build`` makes; ``torch`` is what the worker of
    PyTorch calls it."""

    name: str
    skeleton: str
    feeds: Callable[[], Feeds]
    torch: str = ""
    batch: int = 0  #: what the graph's first dimensions are changed to
    quantised: str = ""  #: a key of :data:`bench.quantised_models.QUANTISERS`; "": float32
    build: Callable[[], onnx.ModelProto] | None = None


def _pictures(batch: int) -> Callable[[], Feeds]:
    return lambda: {"input": np.random.default_rng(0).standard_normal((batch, 3, 224, 224), dtype=np.float32)}


def _rows(batch: int) -> Callable[[], Feeds]:
    return lambda: {"input": np.random.default_rng(0).standard_normal((batch, 4096), dtype=np.float32)}


def _sentences(batch: int) -> Callable[[], Feeds]:
    def feeds() -> Feeds:
        ids = np.random.default_rng(0).integers(0, 30000, (batch, 128), dtype=np.int64)
        return {"input_ids": ids, "attention_mask": np.ones((batch, 128), np.int64)}

    return feeds


def _one_token() -> Feeds:
    """One token behind a cache of 512."""
    generator = np.random.default_rng(0)
    feeds: Feeds = {"input_ids": generator.integers(0, 4096, (1, 1), dtype=np.int64)}
    for layer in range(4):
        for part in ("k", "v"):
            feeds[f"past.{layer}.{part}"] = generator.standard_normal((1, 2, 512, 32), dtype=np.float32)
    return feeds


GPU_MODELS = {
    model.name: model
    for model in (
        GpuModel("squeezenet1_1", "squeezenet1_1", _pictures(1), "squeezenet1_1"),
        GpuModel("mobilenet_v2", "mobilenet_v2", _pictures(1), "mobilenet_v2"),
        GpuModel("resnet18", "resnet18", _pictures(1), "resnet18"),
        GpuModel("resnet50", "resnet50", _pictures(1), "resnet50"),
        GpuModel("resnet50 batch 8", "resnet50", _pictures(8), "resnet50", batch=8),
        GpuModel("efficientnet_b0", "efficientnet_b0", _pictures(1), "efficientnet_b0"),
        GpuModel("vit_base_patch16_224", "vit_base_patch16_224", _pictures(1), "vit_b_16"),
        GpuModel("bert_base 128 tokens", "bert_base", _sentences(1), "bert_base"),
        GpuModel("mlp_4096x4 batch 1", "mlp_4096x4", _rows(1), "mlp_4096x4"),
        GpuModel("mlp_4096x4 batch 256", "mlp_4096x4", _rows(256), "mlp_4096x4"),
        GpuModel("decoder_kv past 512", "decoder_kv", _one_token),
    )
}

#: Models of 8 bits, each beside the float32 model that it was
INT8_MODELS = {
    model.name: model
    for model in (
        GpuModel("resnet50 batch 8", "resnet50", _pictures(8), "resnet50", batch=8),
        GpuModel("resnet50 batch 8 static", "resnet50", _pictures(8), batch=8, quantised="static"),
        GpuModel("resnet50 batch 8 operators", "resnet50", _pictures(8), batch=8, quantised="operators"),
        GpuModel("resnet50 batch 8 dynamic", "resnet50", _pictures(8), batch=8, quantised="dynamic"),
        GpuModel("mobilenet_v2 batch 8", "mobilenet_v2", _pictures(8), "mobilenet_v2", batch=8),
        GpuModel("mobilenet_v2 batch 8 static", "mobilenet_v2", _pictures(8), batch=8, quantised="static"),
        GpuModel("mobilenet_v2 batch 8 dynamic", "mobilenet_v2", _pictures(8), batch=8, quantised="dynamic"),
        GpuModel("bert_base 128 tokens", "bert_base", _sentences(1), "bert_base"),
        GpuModel("bert_base 128 tokens dynamic", "bert_base", _sentences(1), quantised="dynamic"),
        GpuModel("bert_small batch 8", "bert_small_dynamic", _sentences(8), batch=8),
        GpuModel("bert_small batch 8 static", "bert_small_dynamic", _sentences(8), batch=8, quantised="static"),
        GpuModel("bert_small batch 8 dynamic", "bert_small_dynamic", _sentences(8), batch=8, quantised="dynamic"),
        GpuModel("minilm", "minilm", partial(sentences, 8), batch=8, build=sentence_encoder),
        GpuModel("minilm_int8", "minilm", partial(sentences, 8), batch=8, quantised="weights", build=sentence_encoder),
        GpuModel("vit_base_patch16_224", "vit_base_patch16_224", _pictures(1), "vit_b_16"),
        GpuModel("vit_base_patch16_224 dynamic", "vit_base_patch16_224", _pictures(1), quantised="dynamic"),
    )
}

#: Models whose files have halves, each beside what float32 takes and ``precision="float16"``
HALF_MODELS = {name: replace(model, quantised="float16") for name, model in GPU_MODELS.items()}

#: Recurrent layers
RECURRENT_MODELS = {
    model.name: model
    for model in (
        GpuModel("LSTM 3x768, 80 steps", "LSTM", sequence, "LSTM", build=partial(recurrent, "LSTM")),
        GpuModel(
            "LSTM 3x768, 80 steps dynamic", "LSTM", sequence, quantised="dynamic", build=partial(recurrent, "LSTM")
        ),
        GpuModel("GRU 3x768, 80 steps", "GRU", sequence, "GRU", build=partial(recurrent, "GRU")),
    )
}


def fill(model: GpuModel, target: Path) -> Path:
    """Write the model with weights, with its batch size and quantised, into the folder ``target``; return the file."""
    filled = fill_float32(model, target)
    if not model.quantised:
        return filled
    quantised = filled.with_name(f"{filled.stem}-{model.quantised}.onnx")
    if not quantised.is_file():
        partial = quantised.with_suffix(".partial")
        QUANTISERS[model.quantised](filled, partial, [model.feeds()])
        partial.rename(quantised)
    return quantised


def fill_float32(model: GpuModel, target: Path) -> Path:
    """Do what :func:`fill` does, but leave the model as it was exported."""
    filled = target / f"{model.skeleton}{f'-{model.batch}' if model.batch else ''}.onnx"
    if not filled.is_file():
        import onnx

        from tests.support.weights import fill_weights

        target.mkdir(parents=True, exist_ok=True)
        if model.build is not None:
            proto = model.build()
        else:
            proto = onnx.load(SKELETONS / f"{model.skeleton}.onnx")
            fill_weights(proto)
        if model.batch:
            del proto.graph.value_info[:]
            for port in (*proto.graph.input, *proto.graph.output):
                port.type.tensor_type.shape.dim[0].dim_value = model.batch
        partial = filled.with_suffix(".partial")
        onnx.save(proto, partial)
        partial.rename(filled)
    return filled
