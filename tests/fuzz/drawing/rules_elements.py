"""Operands of elementwise operators, conversions, reductions and normalisations that schemas do not describe."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from shaderloom.runtime.plan.dtypes import BY_NAME

from .forms import NARROW, TYPES
from .node import NodeDraw, broadcast, rule
from .oracle import Known
from .source import Unsuitable

Found = dict[str, Any]
INTEGERS = frozenset({"bool", *(name for name in TYPES if "int" in name)})


@rule("Clip")
def clip(d: NodeDraw) -> Found:
    value = d.pick("input")
    bounds: Found = {"input": value, "min": None, "max": None}
    unsigned = value.dtype.startswith("u")
    if d.flip():
        bounds["min"] = _bound(d, value, 1 if unsigned else -1)
    if d.flip() or bounds["min"] is None:
        bounds["max"] = _bound(d, value, 3)
    return bounds


def _bound(d: NodeDraw, value: Known, number: int) -> Any:
    return float(number) if "min" in d.form.attributes else np.asarray(number).astype(value.array.dtype)


@rule("PRelu")
def prelu(d: NodeDraw) -> Found:
    value = d.pick("X")
    keep = d.integer(0, value.rank)
    return {"X": value, "slope": d.leaf("slope", [d.choose(size, 1) for size in value.shape[value.rank - keep :]])}


@rule("Div", "Mod")
def division(d: NodeDraw) -> Found:
    """No divisor is near 0, and no integer division overflows."""
    value = d.pick("A")
    right = d.partner("B", value)
    if not right.array.size or np.abs(right.array.astype(np.float64)).min() < 0.125:
        shape = right.shape
        divisors = d.growth.generator.choice([1, 2, 4, 3] if value.dtype.startswith("u") else [1, 2, -2, 4, -3], shape)
        right = d.given("B", np.asarray(divisors).astype(value.array.dtype))
    found: Found = {"A": value, "B": right}
    if d.form.name == "Mod":
        found["fmod"] = 1 if value.dtype in ("float32", "float16", "bfloat16") else d.integer(0, 1)
    return found


@rule("Pow")
def power(d: NodeDraw) -> Found:
    value = d.pick("X")
    options = [2, 3, 1, 0] if not BY_NAME[value.dtype].is_float else [2.0, 3.0, 1.0, 0.0, 0.5, -1.0, 2.5]
    shape = d.choose((), value.shape[-1:])
    exponents = np.asarray(
        d.growth.generator.choice(options, shape) if d.flip() else np.full(shape, d.choose(*options))
    )
    kind = d.type("Y") if d.has("Y") else value.dtype
    if not BY_NAME[kind].is_float and (exponents != np.rint(exponents)).any():
        raise Unsuitable
    if BY_NAME[kind].is_float is False and (exponents < 0).any():
        raise Unsuitable
    return {"X": value, "Y": exponents.astype(onnx.helper.tensor_dtype_to_np_dtype(BY_NAME[kind].onnx))}


@rule("BitShift")
def shift(d: NodeDraw) -> Found:
    value = d.pick("X")
    by = d.growth.generator.integers(0, 7, value.shape if d.flip() else value.shape[-1:])
    return {"X": value, "Y": np.asarray(by).astype(value.array.dtype)}


@rule("Cast")
def cast(d: NodeDraw) -> Found:
    value = d.pick("input")
    kinds = d.form.outputs[0].types
    wide = [kind for kind in kinds if kind not in NARROW]
    to = d.choose(*(kinds[len(wide) :] if len(wide) < len(kinds) and d.growth.narrow and d.flip() else wide))
    _fits(value, to)
    return {"input": value, "to": BY_NAME[to].onnx, **_saturates(d)}


@rule("CastLike")
def cast_like(d: NodeDraw) -> Found:
    value = d.pick("input")
    like = d.pick("target_type")
    _fits(value, like.dtype)
    return {"input": value, "target_type": like, **_saturates(d)}


def _saturates(d: NodeDraw) -> Found:
    return {"saturate": d.integer(0, 1)} if d.has("saturate") else {}


def _fits(value: Known, to: str) -> None:
    """What a conversion of a float outside an integer's range gives is not defined, nor what an integer outside that of
    a narrow type does; the scales of 8 bits have no sign, and no zero.
    """
    kind = BY_NAME[to]
    if not value.array.size:
        return
    wide = value.array.astype(np.float64)
    if to == "float8e8m0" and wide.min() <= 0:
        raise Unsuitable
    if kind.is_integer and (value.dtype not in INTEGERS or kind.narrow):
        low, high = kind.integer_range
        if wide.min() <= low - 1 or wide.max() >= high + 1:
            raise Unsuitable
        if wide.min() < 0 and not kind.is_signed:
            raise Unsuitable
        if kind.narrow and (wide != np.rint(wide)).any():
            raise Unsuitable  # it is not said which way fractions go


@rule("BitCast")
def bit_cast(d: NodeDraw) -> Found:
    """Of exact values to integers: the bits of others differ."""
    value = d.pick("input", lambda value: value.exact and value.dtype != "bool" and not BY_NAME[value.dtype].narrow)
    bits = BY_NAME[value.dtype].bits
    return {
        "input": value,
        "to": BY_NAME[d.choose(*(each for each in TYPES if BY_NAME[each].width == bits and "int" in each))].onnx,
    }


@rule("Dropout")
def dropout(d: NodeDraw) -> Found:
    """Not in training: the result is the operand.  Before version 12 nothing says what the mask is then."""
    found: Found = {"data": d.pick("data"), **({"ratio": 0.5} if "ratio" in d.form.attributes else {})}
    return found if d.version >= 12 else {**found, "_outputs": 1}


# -- reductions ------------------------------------------------------------------------------------------------------

REDUCTIONS = ("Sum", "Prod", "Max", "Min", "Mean", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")


@rule(*(f"Reduce{name}" for name in REDUCTIONS))
def reduction(d: NodeDraw) -> Found:
    empty = d.form.name in ("ReduceSum", "ReduceProd", "ReduceSumSquare")
    value = d.ranked("data", 1 if d.integer(0, 5) else 0, empty=empty)
    found: Found = {"data": value, "axes": None, "keepdims": d.integer(0, 1)}
    if value.rank and d.integer(0, 5):
        count = d.integer(1, min(value.rank, 3))
        axes = sorted({d.integer(0, value.rank - 1) for _ in range(count)})
        if d.growth.opset >= 11 and d.rarely():
            axes = [axis - value.rank for axis in axes]
        found["axes"] = np.array(axes, np.int64) if d.form.input("axes") else axes
    return found


@rule("ArgMax", "ArgMin", "Hardmax")
def arg_reduction(d: NodeDraw) -> Found:
    name = d.form.inputs[0].name
    value = d.ranked(name, 1, empty=False)
    return {name: value, "axis": d.axis(value.rank)}


@rule("Softmax", "LogSoftmax")
def softmax(d: NodeDraw) -> Found:
    value = d.ranked("input", 1)
    return {"input": value, "axis": d.axis(value.rank)}


@rule("CumSum", "CumProd")
def cumulative(d: NodeDraw) -> Found:
    value = d.ranked("x", 1)
    return {"x": value, "axis": np.array(d.axis(value.rank), d.choose("int32", "int64"))}


@rule("TopK")
def top(d: NodeDraw) -> Found:
    value = d.ranked("X", 1, empty=False)
    axis = d.axis(value.rank)
    count = d.integer(1, value.shape[axis])
    given: Found = {"k": count} if "k" in d.form.attributes else {"K": np.array([count], np.int64)}
    if d.has("sorted"):
        given["sorted"] = 1
    return {"X": value, "axis": axis, **given}


# -- normalisations --------------------------------------------------------------------------------------------------


def channel_operands(d: NodeDraw, names: tuple[str, ...], channels: int) -> Found:
    """One number a channel for each name; variances are positive."""
    return {name: d.leaf(name, (channels,), *((0.5, 2) if "var" in name else (None, None))) for name in names}


@rule("BatchNormalization")
def batch_normalization(d: NodeDraw) -> Found:
    value = d.ranked("X", 2, 5)
    names = tuple(formal.name for formal in d.form.inputs[1:5])
    return {"X": value, **channel_operands(d, names, value.shape[1]), "_outputs": 1, "spatial": _absent(d, "spatial")}


def _absent(d: NodeDraw, name: str) -> Any:
    return None if name not in d.form.attributes else 1


@rule("InstanceNormalization")
def instance_normalization(d: NodeDraw) -> Found:
    value = d.ranked("input", 3, 5, empty=False)
    return {"input": value, "epsilon": 0.1, **channel_operands(d, ("scale", "B"), value.shape[1])}


@rule("GroupNormalization")
def group_normalization(d: NodeDraw) -> Found:
    value = d.ranked("X", 3, 5, empty=False)
    channels = value.shape[1]
    groups = d.choose(*(count for count in range(1, channels + 1) if channels % count == 0))
    per = channels if d.version >= 21 else groups
    return {"X": value, "num_groups": groups, "epsilon": 0.1, **channel_operands(d, ("scale", "bias"), per)}


@rule("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def layer_normalization(d: NodeDraw) -> Found:
    value = d.ranked("X", 1, 5, empty=False)
    axis = d.axis(value.rank)
    shape = value.shape[axis:]
    names = ("Scale", "B") if d.form.name == "LayerNormalization" else ("scale",)
    found: dict[str, Any] = {name: d.leaf(name, shape if d.integer(0, 4) else shape[-1:]) for name in names}
    if len(names) == 2 and d.rarely():
        found["B"] = None
    return {"X": value, "axis": axis, "epsilon": 0.1, "_outputs": 1, **found}


@rule("LpNormalization")
def lp_normalization(d: NodeDraw) -> Found:
    value = d.ranked("input", 1, empty=False)
    return {"input": value, "axis": d.axis(value.rank), "p": d.choose(2, 1)}


@rule("MeanVarianceNormalization")
def mean_variance(d: NodeDraw) -> Found:
    value = d.ranked("X", 4, 4, empty=False)
    return {"X": value, "axes": d.choose([0, 2, 3], [2, 3], [1], [-1])}


@rule("LRN")
def local_response(d: NodeDraw) -> Found:
    value = d.ranked("X", 3, 5, empty=False)
    return {"X": value, "size": d.choose(1, 3, 5), "alpha": 0.25, "bias": 1.0}


@rule("Gelu", domain="com.microsoft")
def gelu(d: NodeDraw) -> Found:
    """Not every element is far below 0: the reference's 1 + erf(x) is 0 there in float32, where the result is not."""
    value = d.pick("X")
    if value.array.size and value.array.astype(np.float64).max() < -4:
        raise Unsuitable
    return {"X": value}


@rule("BiasGelu", domain="com.microsoft")
def bias_gelu(d: NodeDraw) -> Found:
    value = d.ranked("A", 1)
    return {"A": value, "B": d.leaf("B", value.shape[-1:])}


@rule("FastGelu", domain="com.microsoft")
def fast_gelu(d: NodeDraw) -> Found:
    value = d.ranked("X", 1)
    return {"X": value, "bias": d.leaf("bias", value.shape[-1:]) if d.flip() else None}


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_normalization(d: NodeDraw) -> Found:
    value = d.ranked("input", 3, 3, empty=False)
    found: Found = {"input": value, "skip": d.leaf("skip", value.shape), "epsilon": 0.1, "_outputs": 1}
    names = [formal.name for formal in d.form.inputs[2:]]
    for name in names:
        found[name] = d.leaf(name, value.shape[-1:]) if name == "gamma" or d.flip() else None
    return found


def agree(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """What shapes broadcast to; :class:`Unsuitable` if they do not."""
    joined: tuple[int, ...] | None = ()
    for shape in shapes:
        joined = None if joined is None else broadcast(joined, shape)
    if joined is None:
        raise Unsuitable
    return joined
