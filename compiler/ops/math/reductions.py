"""Build reductions, means and norms over axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....runtime.plan.dtypes import INT64
from ...ir.graph import Shape, Value
from ...symbolic import polynomial as ix
from ..registry import Builder


def reduced_shape(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def reduce(builder: Builder, value: Value, kind: str, axes: Sequence[int], keepdims: bool = True) -> Value:
    """Build a ``loom.Reduce``; without axes return the value itself."""
    if not axes:
        return value
    return builder.op("Reduce", value, domain="loom", kind=kind, axes=tuple(sorted(axes)), keepdims=keepdims)


def divide_by_count(builder: Builder, total: Value, shape: Shape, axes: Sequence[int]) -> Value:
    """Divide ``total`` by the number of elements of ``axes``; the number may depend on dynamic dimensions."""
    count = ix.product([shape[axis] for axis in axes])
    if not isinstance(count, ix.Index):
        if total.dtype.is_float:
            # a mean of nothing is 0 / 0
            factor = 1.0 / count if count else float("nan")
            return builder.op("Mul", total, builder.scalar(factor, total))
        return builder.op("Div", total, builder.scalar(count, total))
    number = builder.op("Dimensions", domain="loom", elements=(count,), shape=(), dtype=INT64)
    return builder.op("Div", total, builder.op("Cast", number, to=total.dtype.onnx))


def mean(builder: Builder, value: Value, axes: Sequence[int], keepdims: bool = True) -> Value:
    """Build the arithmetic mean over ``axes``; without axes return the value itself."""
    if not axes:
        return value
    total = reduce(builder, value, "sum", axes, keepdims)
    return divide_by_count(builder, total, value.shape, axes)


def power_norm(builder: Builder, value: Value, p: int, reduce_powers: Callable[[Value], Value]) -> Value:
    """Build (sum |x|^p)^(1/p), where ``reduce_powers`` sums."""
    magnitudes = builder.op("Abs", value)
    if p == 1:
        return reduce_powers(magnitudes)
    if p == 2:
        return builder.op("Sqrt", reduce_powers(builder.op("Mul", value, value)))
    total = reduce_powers(builder.op("Pow", magnitudes, builder.scalar(float(p), value)))
    return builder.op("Pow", total, builder.scalar(1.0 / p, value))
