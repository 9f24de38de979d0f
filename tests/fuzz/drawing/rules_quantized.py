"""Operands of quantised operators: scales and zero points that keep results inside their types, weights of few bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from .node import NodeDraw, rule
from .oracle import Known
from .rules_products import factors
from .rules_windows import image, window
from .source import Unsuitable

Found = dict[str, Any]
MICROSOFT = "com.microsoft"
#: the scale of results: in no simple ratio to 1/8, so that no result is half way between two integers
RESULT = 0.2371


def scale(d: NodeDraw, name: str, count: int | None = None, number: float = 0.125) -> Known:
    """Positive numbers: one, or one a channel."""
    array = np.full(() if count is None else (count,), number, np.float32)
    if count:
        array = array * (1 + d.growth.generator.integers(0, 4, (count,))).astype(np.float32) / 2
    return d.given(name, array, constant=True)


def zero_point(d: NodeDraw, name: str, count: int | None = None) -> Known:
    kind = d.type(name)
    low, high = (0, 9) if kind.startswith("u") else (-5, 5)
    array = d.growth.data(kind, () if count is None else (count,), low, high)
    return d.given(name, array, constant=True)


@rule("QuantizeLinear")
@rule("QuantizeLinear", domain=MICROSOFT)
def quantize(d: NodeDraw) -> Found:
    value = d.ranked("x", 1)
    if value.dtype not in ("float32", "float16"):
        raise Unsuitable
    axis = d.integer(0, value.rank - 1) if d.flip() and d.has("axis") else None
    count = None if axis is None else value.shape[axis]
    found: Found = {"x": value, "axis": axis, "y_scale": _scale_like(d, "y_scale", value, count)}
    if d.form.domain or d.flip() or axis is not None:
        d.bind("y_zero_point", d.choose(*d.types("y_zero_point")))
        found["y_zero_point"] = zero_point(d, "y_zero_point", count)
    return {name: item for name, item in found.items() if d.has(name)} | (
        {"block_size": None} if d.has("block_size") else {}
    )


def _scale_like(d: NodeDraw, name: str, value: Known, count: int | None) -> Known:
    formal = d.form.input(name)
    kind = value.array.dtype if formal is not None and value.dtype in d.types(name) else np.dtype(np.float32)
    array = np.full(() if count is None else (count,), 0.125, kind)
    return d.given(name, array, constant=True)


@rule("DynamicQuantizeLinear")
def dynamic_quantize(d: NodeDraw) -> Found:
    return {"x": d.uneven("x", tuple(max(size, 1) for size in d.shape()))}


@rule("DequantizeLinear")
@rule("DequantizeLinear", domain=MICROSOFT)
def dequantize(d: NodeDraw) -> Found:
    value = d.ranked("x", 1)
    axis = d.integer(0, value.rank - 1) if d.flip() and d.has("axis") else None
    count = None if axis is None else value.shape[axis]
    found: Found = {"x": value, "x_scale": scale(d, "x_scale", count)}
    if d.has("axis"):
        found["axis"] = axis
    if d.has("block_size"):
        found["block_size"] = None
    if value.dtype != "int32" and (d.form.domain or d.flip()):
        found["x_zero_point"] = zero_point(d, "x_zero_point", count)
    return found


def _quantized(d: NodeDraw, found: Found) -> Found:
    """Scales and zero points, which their names tell."""
    for formal in d.form.inputs:
        if formal.name in found:
            continue
        if formal.name.endswith("scale"):
            found[formal.name] = scale(d, formal.name, number=RESULT if formal.name[0] in "yYzC" else 0.125)
        elif formal.name.endswith("zero_point"):
            # onnxruntime ends the process where an optional one is missing
            found[formal.name] = zero_point(d, formal.name)
    return found


@rule("QLinearMatMul")
def quantized_matmul(d: NodeDraw) -> Found:
    return _quantized(d, factors(d, "a", "b", empty=False))


@rule("QLinearConv")
@rule("QLinearConv", domain=MICROSOFT)
def quantized_convolution(d: NodeDraw) -> Found:
    value = image(d, "x", 4, 4)
    channels = value.shape[1]
    kernel, found = window(d, value.shape[2:])
    out = d.choose(1, 4, 5)
    found.update({"x": value, "w": d.leaf("w", (out, channels, *kernel)), "group": 1})
    per_channel = d.flip()
    found["w_scale"] = scale(d, "w_scale", out if per_channel else None)
    kind = d.type("w_zero_point")
    found["w_zero_point"] = np.zeros((out,) if per_channel else (), kind)
    found["B"] = d.leaf("B", (out,)) if d.flip() else None
    if d.has("channels_last"):
        found["channels_last"] = 0
    return _quantized(d, found)


@rule("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def quantized_arithmetic(d: NodeDraw) -> Found:
    left = d.pick("A")
    return _quantized(d, {"A": left, "B": d.partner("B", left)})


@rule("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def quantized_unary(d: NodeDraw) -> Found:
    return _quantized(d, {"X": d.pick("X")})


@rule("QLinearGlobalAveragePool", domain=MICROSOFT)
def quantized_pool(d: NodeDraw) -> Found:
    return _quantized(d, {"X": image(d, "X", 4, 4)})


@rule("QLinearAveragePool", domain=MICROSOFT)
def quantized_windows(d: NodeDraw) -> Found:
    value = image(d, "X", 4, 4)
    _, found = window(d, value.shape[2:])
    return _quantized(d, {"X": value, **found, "ceil_mode": 0, "count_include_pad": 0, "channels_last": 0})


@rule("QLinearSoftmax", domain=MICROSOFT)
def quantized_softmax(d: NodeDraw) -> Found:
    """onnxruntime rounds the inverse of the result's scale down to a whole number."""
    value = d.ranked("X", 1)
    y_scale = d.given("y_scale", np.array(0.25, np.float32), constant=True)
    return _quantized(d, {"X": value, "axis": d.axis(value.rank), "opset": 13, "y_scale": y_scale})


@rule("QLinearConcat", domain=MICROSOFT)
def quantized_concat(d: NodeDraw) -> Found:
    """Triples of elements, scale and zero point."""
    kind = d.choose("uint8", "int8")
    shape = [d.integer(1, 4) for _ in range(d.integer(1, 4))]
    axis = d.integer(0, len(shape) - 1)
    zero = d.growth.data(kind, (), 0, 5)
    triples: list[Known] = []
    for _ in range(d.integer(1, 3)):
        shape[axis] = d.integer(1, 4)
        triples += [
            d.growth.leaf(kind, tuple(shape)),
            d.growth.given(np.array(d.choose(0.125, 0.25), np.float32), constant=True),
            d.growth.given(d.growth.data(kind, (), 0, 5), constant=True),
        ]
    return {
        "Y_scale": d.growth.given(np.array(RESULT, np.float32), constant=True),
        "Y_zero_point": d.growth.given(zero, constant=True),
        "inputs": triples,
        "axis": axis,
    }


@rule("QLinearWhere", domain=MICROSOFT)
def quantized_where(d: NodeDraw) -> Found:
    left = d.pick("X")
    return _quantized(d, {"condition": d.leaf("condition", left.shape), "X": left, "Y": d.leaf("Y", left.shape)})


@rule("QGemm", domain=MICROSOFT)
def quantized_gemm(d: NodeDraw) -> Found:
    rows, inner, columns = d.integer(1, 4), d.integer(1, 5), d.choose(1, 3, 4)
    flipped, other = d.integer(0, 1), d.integer(0, 1)
    found: Found = {
        "A": d.leaf("A", (inner, rows) if flipped else (rows, inner)),
        "B": d.leaf("B", (columns, inner) if other else (inner, columns)),
        "C": d.leaf("C", (columns,)) if d.flip() else None,
        "transA": flipped,
        "transB": other,
        "alpha": 1.0,
    }
    found["a_zero_point"], found["b_zero_point"] = zero_point(d, "a_zero_point"), zero_point(d, "b_zero_point")
    found["a_scale"], found["b_scale"] = scale(d, "a_scale"), scale(d, "b_scale")
    if d.flip():
        found["y_scale"] = found["y_zero_point"] = None
    return _quantized(d, found)


@rule("DynamicQuantizeMatMul", "MatMulIntegerToFloat", domain=MICROSOFT)
def dynamic_matmul(d: NodeDraw) -> Found:
    shape = (*d.shape(0, 1), d.integer(1, 4), d.integer(1, 5))
    left = d.uneven("A", shape) if d.form.name == "DynamicQuantizeMatMul" else d.leaf("A", shape)
    columns = d.choose(1, 3, 4)
    found: Found = {"A": left, "B": d.leaf("B", (left.shape[-1], columns))}
    found["bias"] = d.leaf("bias", (columns,)) if d.flip() else None
    return _quantized(d, found)


@rule("MatMulNBits", domain=MICROSOFT)
def packed_weights(d: NodeDraw) -> Found:
    blocks, columns, bits = d.integer(1, 3), d.choose(1, 3, 8), d.choose(4, 2, 3, 5, 6, 7, 8)
    size = 16
    inner = blocks * size - d.choose(0, 0, 2)
    left = d.leaf("A", (*d.shape(0, 1), d.integer(1, 4), inner))
    packed = d.growth.generator.integers(0, 256, (columns, blocks, size * bits // 8)).astype(np.uint8)
    found: Found = {
        "A": left,
        "B": d.given("B", packed, constant=True),
        "scales": d.leaf("scales", (columns, blocks), 0.125, 1),
        "K": inner,
        "N": columns,
        "bits": bits,
        "block_size": size,
        "accuracy_level": None,
        "weight_prepacked": None,
    }
    if d.flip():
        zeros = d.growth.generator.integers(0, 256, (columns, (blocks * bits + 7) // 8)).astype(np.uint8)
        found["zero_points"] = d.given("zero_points", zeros, constant=True)
    return found


@rule("GatherBlockQuantized", domain=MICROSOFT)
def packed_rows(d: NodeDraw) -> Found:
    rows, blocks, size = d.integer(1, 5), d.integer(1, 3), 16
    d.bind("data", "uint8")
    data = d.growth.generator.integers(0, 256, (rows, blocks * size // 2)).astype(np.uint8)
    places = d.growth.generator.integers(0, rows, d.shape(1, 2)).astype(np.int64)
    return {
        "data": d.given("data", data, constant=True),
        "indices": places,
        "scales": d.leaf("scales", (rows, blocks), 0.125, 1),
        "zero_points": None,
        "bits": 4,
        "block_size": size,
        "gather_axis": 0,
        "quantize_axis": 1,
    }
