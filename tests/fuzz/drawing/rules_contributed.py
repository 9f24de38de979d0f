"""Operands of contributed operators: channels that are last, biases, positions, weights of four bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from .node import NodeDraw, rule
from .rules_windows import window
from .source import Unsuitable

Found = dict[str, Any]
MICROSOFT = "com.microsoft"


def _picture(d: NodeDraw, name: str) -> Any:
    """[N, H, W, C]"""
    shape = (d.integer(1, 2), d.integer(2, 7), d.integer(2, 7), d.choose(1, 3, 4, 8))
    return d.pick(name, lambda value: value.rank == 4 and 0 not in value.shape, lambda: shape)


@rule("NhwcMaxPool", domain=MICROSOFT)
def pool(d: NodeDraw) -> Found:
    value = _picture(d, "x")
    _, found = window(d, value.shape[1:3])
    return {"x": value, **found}


@rule("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def convolution(d: NodeDraw) -> Found:
    value = _picture(d, "X")
    n, h, w, channels = value.shape
    kernel = [d.integer(1, min(size, 3)) for size in (h, w)]
    strides = [d.choose(1, 2), d.choose(1, 2)]
    pads = [d.integer(0, size - 1) for size in kernel * 2]
    out, fused = d.choose(1, 4, 5), d.form.name == "NhwcFusedConv"
    weight = (out, channels, *kernel) if fused else (out, *kernel, channels)
    found: Found = {
        "X": value,
        "W": d.leaf("W", weight),
        "B": d.leaf("B", (out,)) if d.flip() else None,
        "strides": strides,
        "pads": pads,
        "group": 1,
        "kernel_shape": kernel,
        "auto_pad": None,
        "dilations": None,
    }
    if fused:
        rows, columns = (
            (size + pads[at] + pads[at + 2] - kernel[at]) // strides[at] + 1 for at, size in enumerate((h, w))
        )
        found["Z"] = d.leaf("Z", (n, rows, columns, out)) if d.flip() else None
        found.update(activation=d.choose("Relu", "LeakyRelu"))
        found["activation_params"] = [0.25] if found["activation"] == "LeakyRelu" else None
    return found


@rule("GroupNorm", "SkipGroupNorm", domain=MICROSOFT)
def group_norm(d: NodeDraw) -> Found:
    value = _picture(d, "X")
    last = 1 if d.form.name == "SkipGroupNorm" else d.integer(0, 1)
    channels = value.shape[3 if last else 1]
    found: Found = {
        "X": value,
        **{name: d.leaf(name, (channels,)) for name in ("gamma", "beta")},
        "groups": d.choose(*(count for count in range(1, channels + 1) if channels % count == 0)),
        "channels_last": last,
        "activation": d.integer(0, 1),
        "epsilon": 0.1,
    }
    if d.form.name == "SkipGroupNorm":
        spread = (value.shape[0], 1, 1, channels)
        found["skip"] = d.leaf("skip", d.choose(value.shape, spread, (value.shape[0], channels)))
        found["bias"] = d.leaf("bias", (channels,)) if d.flip() else None
        found["_outputs"] = d.integer(1, 2)
    return found


@rule("BiasAdd", "BiasSplitGelu", domain=MICROSOFT)
def bias(d: NodeDraw) -> Found:
    value = d.ranked("X", 3, 3, empty=False)
    found: Found = {"X": value, "bias": d.leaf("bias", value.shape[-1:])}
    if d.form.name == "BiasAdd":
        return {**found, "skip": d.leaf("skip", value.shape)}
    if value.shape[-1] % 2:
        raise Unsuitable
    return found


@rule("BiasSoftmax", domain=MICROSOFT)
def softmax(d: NodeDraw) -> Found:
    value = d.ranked("data", 2, 4, empty=False)
    axis = d.integer(1, value.rank - 1)
    inner = d.integer(0, 1)
    ones = [1] * axis if not inner else [value.shape[0], *[1] * (axis - 1)]
    return {
        "data": value,
        "bias": d.leaf("bias", (*ones, *value.shape[axis:])),
        "axis": axis,
        "is_inner_broadcast": inner,
    }


@rule("BiasDropout", domain=MICROSOFT)
def dropout(d: NodeDraw) -> Found:
    value = d.ranked("data", 1, 4, empty=False)
    return {
        "data": value,
        "bias": d.leaf("bias", value.shape[-1:]),
        "residual": d.leaf("residual", value.shape) if d.flip() else None,
        "_outputs": d.integer(1, 2),
    }


@rule("RelativePositionBias", domain=MICROSOFT)
def positions(d: NodeDraw) -> Found:
    lengths = [np.array([d.integer(1, 12)], np.int64) for _ in range(2)]
    return {
        "bias_table": d.leaf("bias_table", (d.choose(8, 32), d.integer(1, 3))),
        **dict(zip(("query_length", "key_length"), lengths)),
        "max_distance": d.choose(20, 128),
        "is_bidirectional": d.integer(0, 1),
    }


@rule("GatedRelativePositionBias", domain=MICROSOFT)
def gated_positions(d: NodeDraw) -> Found:
    batch, length, heads, size = d.integer(1, 2), d.integer(1, 4), d.integer(1, 3), d.choose(2, 4)
    return {
        "query_layer": d.leaf("query_layer", (batch, length, heads * size)),
        "query_bias": d.leaf("query_bias", (heads * size,)),
        "rel_pos": d.leaf("rel_pos", (1, heads, length, length)),
        "weight": d.leaf("weight", (size, 8), -0.5, 0.5),
        "bias": d.leaf("bias", (8,)),
        "eco_a": d.leaf("eco_a", (1, heads, 1, 1)),
        "num_heads": heads,
    }


@rule("GemmaRotaryEmbedding", domain=MICROSOFT)
def gemma(d: NodeDraw) -> Found:
    batch, heads, length, size = d.integer(1, 2), d.integer(1, 3), d.integer(1, 4), d.choose(2, 4)
    names = ("q", "q_rot", "k", "k_rot")
    return {
        "emb": d.leaf("emb", (batch, length, size)),
        **{name: d.leaf(name, (batch, heads, length, size)) for name in names},
        "_outputs": 2,
    }


@rule("QLinearReduceMean", domain=MICROSOFT)
def quantised_mean(d: NodeDraw) -> Found:
    value = d.ranked("data", 1, 4, empty=False)
    kind = d.type("data")
    return {
        "data": value,
        "data_scale": d.given("data_scale", np.array(0.125, np.float32), constant=True),
        "data_zero_point": d.given("data_zero_point", d.growth.data(kind, (), 0, 5), constant=True),
        "reduced_scale": d.given("reduced_scale", np.array(0.2371, np.float32), constant=True),
        "reduced_zero_point": d.given("reduced_zero_point", d.growth.data(kind, (), 0, 5), constant=True),
        "axes": [d.integer(0, value.rank - 1)],
        "keepdims": d.integer(0, 1),
    }


@rule("QEmbedLayerNormalization", domain=MICROSOFT)
def embed(d: NodeDraw) -> Found:
    batch, length, hidden = d.integer(1, 3), d.integer(1, 4), d.choose(3, 4, 8)
    tables = {"word_embedding": (7, hidden), "position_embedding": (5, hidden), "segment_embedding": (2, hidden)}
    found: Found = {"epsilon": 0.1, "mask": None, "_outputs": 2}
    for name, rows in (("input_ids", 7), ("segment_ids", 2)):
        found[name] = d.growth.add(d.growth.generator.integers(0, rows, (batch, length)).astype(np.int32), False)
    for name, shape in {**tables, "gamma": (hidden,), "beta": (hidden,)}.items():
        own = name if name == "segment_embedding" else f"{name}_quant"
        found[own] = d.given(own, d.growth.data(d.type(own), shape, -9, 99), constant=True)
        found[f"{name}_scale"] = d.given(f"{name}_scale", np.array(0.0625, np.float32), constant=True)
        zero = d.growth.data(d.type(own), (), 0, 5)
        found[f"{name}_zero_point"] = d.given(f"{name}_zero_point", zero, constant=True)
    return found


@rule("Trilu", "GridSample", "Pad", "GatherND", "TransposeMatMul", domain=MICROSOFT)
def as_in_the_standard(d: NodeDraw) -> Found:
    """Operators under another name, each with operands of one form."""
    square = d.integer(2, 5)
    if d.form.name == "GridSample":
        grid = d.leaf("Grid", (1, d.integer(1, 3), 2, 2), -1, 1)
        return {"X": d.leaf("X", (1, d.integer(1, 3), 4, 5)), "Grid": grid, "mode": d.choose("bilinear", "nearest")}
    if d.form.name == "Pad":
        pads = np.array([d.integer(0, 2) for _ in range(4)], np.int64)
        return {"data": d.leaf("data", (3, square)), "pads": pads, "mode": d.choose("constant", "edge", "reflect")}
    if d.form.name == "GatherND":
        places = d.growth.generator.integers(0, 2, (square, d.integer(1, 2))).astype(np.int64)
        return {"data": d.ranked("data", 2, 3, empty=False), "indices": places}
    if d.form.name == "Trilu":
        return {"X": d.ranked("X", 2, 4), "k": np.array(d.integer(-2, 2)), "upper": d.integer(0, 1)}
    return {"A": d.leaf("A", (square, 3)), "B": d.leaf("B", (square, 4)), "transA": 1, "transB": 0, "alpha": 0.5}


@rule("ExpandDims", domain=MICROSOFT)
def expand_dims(d: NodeDraw) -> Found:
    value = d.ranked("X", 0, 4)
    return {"X": value, "axis": np.array(d.integer(-value.rank - 1, value.rank), np.int32)}


@rule("CDist", domain=MICROSOFT)
def distances(d: NodeDraw) -> Found:
    size = d.integer(1, 5)
    found = {name: d.leaf(name, (d.integer(1, 4), size)) for name in "AB"}
    return {**found, "metric": d.choose("sqeuclidean", "euclidean")}


@rule("MatMulBnb4", domain=MICROSOFT)
def code_table(d: NodeDraw) -> Found:
    inner, columns, block = 16 * d.integer(1, 3), d.choose(1, 3, 8), d.choose(16, 32)
    count = inner * columns
    packed = d.growth.generator.integers(0, 256, (-(-count // 2),)).astype(np.uint8)
    return {
        "A": d.leaf("A", (*d.shape(0, 1), d.integer(1, 4), inner)),
        "B": d.given("B", packed, constant=True),
        "absmax": d.leaf("absmax", (-(-count // block),), 0.125, 1),
        "K": inner,
        "N": columns,
        "block_size": block,
        "quant_type": d.integer(0, 1),
        "transB": 1,
        "training_mode": None,
    }
