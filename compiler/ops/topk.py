"""TopK: the kernel family ``rank`` gives positions, a gather the values.

Ties are in the order of positions.  Long rows of which little is wanted are cut into parts: the best of the parts are
the candidates for the best of all, in an order that keeps ties as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime.dtypes import INT32, INT64
from .. import index as ix
from ..index import Dim
from ..ir import Node, Shape, Value
from . import common
from .reduction import identity
from .registry import Builder, Case, Inferred, RawNode, Tensor, register

#: Elements of a part, and how many times more elements than candidates a cut must leave behind to pay
PART = 512
GAIN = 2


@dataclass(frozen=True, slots=True)
class TopIndicesAttributes:
    """``axis`` counts from the front; ``k`` is at most the size of that axis."""

    axis: int
    k: Dim
    largest: bool


def _infer_indices(node: Node) -> Inferred:
    return [(INT32, _kept_shape(node.operand(0).shape, node.attributes.axis, node.attributes.k))]


def _kept_shape(shape: Shape, axis: int, k: Dim) -> Shape:
    return (*shape[:axis], k, *shape[axis + 1 :])


def top_indices_array(array: np.ndarray, axis: int, k: int, largest: bool) -> np.ndarray:
    """``loom.TopIndices`` with numpy: stable, NaN above all numbers."""
    compute = array.astype(np.float32) if array.dtype.kind not in "iub" else array
    if largest:  # ranks make descending order ascending without overflow; equal elements have equal ranks
        _, ranks = np.unique(compute, return_inverse=True, equal_nan=True)
        compute = -ranks.reshape(compute.shape)
    return np.take(np.argsort(compute, axis=axis, kind="stable"), np.arange(k), axis).astype(np.int32)


register(
    name="TopIndices",
    domain="loom",
    infer=_infer_indices,
    cases=(),
    attributes=TopIndicesAttributes,
    family="rank",
    types=(common.NUMERIC,),
)


@dataclass(frozen=True, slots=True)
class TopKAttributes:
    """``sorted`` may ask for any order; sorted order is one."""

    axis: int = -1
    largest: int = 1
    sorted: int = 1


def _parameters(node: Node) -> tuple[int, Dim]:
    value = node.operand(0)
    wanted = common.static_dims(node, 1, "k of TopK")
    common.require(len(wanted) == 1, node, "k of TopK is one number")
    axis = common.normalise_axis(node, node.attributes.axis, value.rank)
    common.require(ix.less(-1, wanted[0]), node, f"k is {ix.text(wanted[0])}")
    fits = not ix.less(value.shape[axis], wanted[0])
    common.require(fits, node, f"k is {ix.text(wanted[0])}, axis {axis} has {ix.text(value.shape[axis])} elements")
    return axis, wanted[0]


def _infer(node: Node) -> Inferred:
    axis, k = _parameters(node)
    shape = _kept_shape(node.operand(0).shape, axis, k)
    return [(node.operand(0).dtype, shape), (INT64, shape)]


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    axis, k = _parameters(node)
    indices = top_indices(builder, node.operand(0), axis, k, bool(node.attributes.largest))
    values = builder.op("GatherElements", node.operand(0), indices, axis=axis)
    return [values, builder.op("Cast", indices, to=INT64.onnx)]


def top_indices(builder: Builder, value: Value, axis: int, k: Dim, largest: bool) -> Value:
    """int32 positions of the first ``k`` elements along ``axis`` in sorted order."""
    size = value.shape[axis]
    if isinstance(size, int) and isinstance(k, int) and size > PART:
        parts = -(-size // PART)
        if parts * min(k, PART) * GAIN <= size:
            return _from_parts(builder, value, axis, k, largest, parts)
    return builder.op("TopIndices", value, domain="loom", axis=axis, k=k, largest=largest)


def _from_parts(builder: Builder, value: Value, axis: int, k: int, largest: bool, parts: int) -> Value:
    """The best of each part, and the best of those.  Padding is the worst value and comes last among equals."""
    size, rank = ix.number(value.shape[axis]), value.rank
    if parts * PART > size:
        worst = builder.scalar(identity("max" if largest else "min", value.dtype), value)
        pads = np.zeros(2 * rank, np.int64)
        pads[rank + axis] = parts * PART - size
        padded = builder.op("Pad", value, builder.constant(pads), worst)
    else:
        padded = value
    shape = (*value.shape[:axis], parts, PART, *value.shape[axis + 1 :])
    split = builder.op("View", padded, domain="loom", shape=shape)
    best = min(k, PART)
    local = builder.op("TopIndices", split, domain="loom", axis=axis + 1, k=best, largest=largest)
    sides = [1] * (rank + 1)
    sides[axis] = parts
    starts = builder.constant((np.arange(parts, dtype=np.int32) * PART).reshape(sides))
    positions = builder.op("Add", local, starts)
    flat = (*value.shape[:axis], parts * best, *value.shape[axis + 1 :])
    candidates = builder.op("View", positions, domain="loom", shape=flat)
    values = builder.op("GatherElements", padded, candidates, axis=axis)
    winners = top_indices(builder, values, axis, k, largest)
    return builder.op("GatherElements", candidates, winners, axis=axis)


def _attribute_k(raw: RawNode) -> None:
    if "k" in raw.attributes:
        common.set_input(raw, 1, raw.add_constant(np.array([raw.attributes.pop("k")], np.int64)))


def _k(value: int) -> Tensor:
    return Tensor((1,), "int64", data=[value], constant=True)


register(
    name="TopK",
    infer=_infer,
    cases=(
        Case((Tensor((3, 7)), _k(3)), outputs=2),
        Case((Tensor((3, 7)), _k(7)), {"largest": 0}, outputs=2),
        Case((Tensor((5, 2, 3)), _k(2)), {"axis": 0}, outputs=2),
        Case((Tensor((2, 9), "int32", -3, 3), _k(5)), {"axis": 1}, outputs=2),
        Case((Tensor((2, 9), "int64", -(2**40), 2**40), _k(4)), {"largest": 0}, outputs=2),
        Case((Tensor((2, 1300), "int32", -100, 100), _k(9)), outputs=2),
        Case((Tensor((1100, 2), data=np.zeros((1100, 2))), _k(4)), {"axis": 0}, outputs=2),
        Case((Tensor((4, 5), "float16"), _k(2)), outputs=2),
        Case((Tensor((4, 5), "uint8", 0, 9), _k(3)), outputs=2),
        Case((Tensor((3, 7)), _k(0)), outputs=2),
        Case((Tensor((3, 7)), _k(2)), {"sorted": 1}, outputs=2, opset=11),
    ),
    attributes=TopKAttributes,
    adapters=((9, _attribute_k),),
    expand=_expand,
    types=(common.NUMERIC, common.INDICES),
    static_inputs=(1,),
)
