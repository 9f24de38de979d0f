"""Build the nodes that many decompositions need: a cast, a view, a transposition, a slice; and their attributes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ....runtime.plan.dtypes import INT32, DType
from ...ir.graph import Value
from ...symbolic.polynomial import Dim
from ..registry import Builder


def in_type(builder: Builder, value: Value, dtype: DType) -> Value:
    """Cast ``value`` to ``dtype``; a half that is not stored is not rounded."""
    return value if value.dtype is dtype else builder.op("Cast", value, to=dtype.onnx, rounds=0)


def integer(builder: Builder, size: Dim, dtype: DType = INT32) -> Value:
    """Return a size as a scalar."""
    return builder.op("Dimensions", domain="loom", elements=(size,), shape=(), dtype=dtype)


def view(builder: Builder, value: Value, *shape: Dim) -> Value:
    return value if value.shape == shape else builder.op("View", value, domain="loom", shape=shape)


def transposed(builder: Builder, value: Value, *perm: int) -> Value:
    return builder.op("Transpose", value, perm=perm)


def part(builder: Builder, value: Value, axis: int, start: Dim, size: Dim) -> Value:
    """Slice ``size`` consecutive elements from ``start`` along ``axis``."""
    starts = tuple(start if at == axis else 0 for at in range(value.rank))
    sizes = tuple(size if at == axis else each for at, each in enumerate(value.shape))
    return builder.op("StridedSlice", value, domain="loom", starts=starts, steps=(1,) * value.rank, sizes=sizes)


def fields_of(attributes: Any, kind: type | None = None) -> dict[str, Any]:
    """Return ``attributes`` by name, as a builder takes them; with ``kind`` those that this base class declares."""
    return {field.name: getattr(attributes, field.name) for field in fields(kind or attributes)}
