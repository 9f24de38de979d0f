"""Operators on shapes: their results are known once the shapes of their operands are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan import dtypes
from ....runtime.plan.record import record
from ...ir.graph import Node, Shape
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ..registry import Inferred, Read, register


def dims_array(shape: Sequence[Dim]) -> np.ndarray:
    """Return sizes as an int64 array, or as an object array where some are symbolic."""
    symbolic = any(isinstance(size, ix.Index) for size in shape)
    array = np.empty(len(shape), object if symbolic else np.int64)
    for axis, size in enumerate(shape):
        array[axis] = size
    return array


@record
class ShapeAttributes:
    start: int = 0
    end: int | None = None


def _selected(node: Node) -> Shape:
    """Return the sizes from ``start`` to ``end``; out-of-range ends are clamped, as in Python's slices."""
    return node.operand(0).shape[node.attributes.start : node.attributes.end]


def _infer_shape(node: Node) -> Inferred:
    return [(dtypes.INT64, (len(_selected(node)),))]


def _gather_shape(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    sizes = _selected(node)
    result = ex.cast(ex.coordinate(sizes[-1]), "i64")
    for axis in reversed(range(len(sizes) - 1)):
        here = ex.in_range(coordinates[0], 0, axis + 1)
        result = ex.select(here, ex.cast(ex.coordinate(sizes[axis]), "i64"), result)
    return result


register(
    name="Shape",
    attributes=ShapeAttributes,
    infer=_infer_shape,
    gather=_gather_shape,
    fold_shapes=lambda node: dims_array(_selected(node)),
    reads=0,
)


def _gather_size(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    return ex.cast(ex.coordinate(node.operand(0).elements), "i64")


def _scalar(value: Dim) -> np.ndarray:
    array = np.empty((), object if isinstance(value, ix.Index) else np.int64)
    array[()] = value
    return array


register(
    name="Size",
    infer=lambda node: [(dtypes.INT64, ())],
    gather=_gather_size,
    fold_shapes=lambda node: _scalar(node.operand(0).elements),
    reads=0,
)
