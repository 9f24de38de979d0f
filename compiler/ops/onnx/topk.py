"""TopK: the kernel family ``rank`` gives positions, a gather the values.

Ties are in the order of positions.  Long rows are cut into runs.  Where little is wanted, the best of the runs are the
candidates for the best of all, in an order that keeps ties as they were; else sorted runs are merged
(:mod:`.sorting`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import INT32, INT64
from ....runtime.plan.record import record
from ...ir.graph import Node, Shape, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..internal.sorting import merged
from ..registry import Builder, Inferred, RawNode, register

#: Elements of a run, and how many times more elements than candidates a cut must leave behind to pay
RUN = 512
GAIN = 2


@record
class TopIndicesAttributes:
    """``axis`` counts from the front; ``k`` is at most the size of that axis.

    With ``run`` the axis is taken in runs of so many elements, ``k`` of each (of the last run, all if it has fewer).
    Positions count from the start of the axis all the same.
    """

    axis: int
    k: Dim
    largest: bool
    run: int | None = None


def _infer_indices(node: Node) -> Inferred:
    shape, attributes = node.operand(0).shape, node.attributes
    axis, k = attributes.axis, attributes.k
    if attributes.run is not None:
        whole, rest = divmod(ix.number(shape[axis]), attributes.run)
        k = whole * k + min(rest, k)
    return [(INT32, _indices_shape(shape, axis, k))]


def _indices_shape(shape: Shape, axis: int, k: Dim) -> Shape:
    return (*shape[:axis], k, *shape[axis + 1 :])


def top_indices_array(array: np.ndarray, axis: int, k: int, largest: bool, run: int | None = None) -> np.ndarray:
    """Evaluate ``loom.TopIndices`` with numpy: stable, NaN above all numbers."""
    size = array.shape[axis]
    if run is not None and size > run:
        starts = range(0, size, run)
        parts = [np.take(array, np.arange(start, min(start + run, size)), axis) for start in starts]
        indices = [top_indices_array(part, axis, min(k, part.shape[axis]), largest) for part in parts]
        return np.concatenate([part + start for part, start in zip(indices, starts)], axis).astype(np.int32)
    compute = array.astype(np.float32) if array.dtype.kind not in "iub" else array
    if largest:  # ranks make descending order ascending without overflow; equal elements have equal ranks
        _, ranks = np.unique(compute, return_inverse=True, equal_nan=True)
        compute = -ranks.reshape(compute.shape)
    return np.take(np.argsort(compute, axis=axis, kind="stable"), np.arange(k), axis).astype(np.int32)


register(
    name="TopIndices",
    domain="loom",
    infer=_infer_indices,
    attributes=TopIndicesAttributes,
    family="rank",
    types=(checks.NUMERIC,),
)


@record
class TopKAttributes:
    """``sorted`` may ask for any order; sorted order is one."""

    axis: int = -1
    largest: int = 1
    sorted: int = 1


def _parameters(node: Node) -> tuple[int, Dim]:
    value = node.operand(0)
    wanted = checks.static_dims(node, 1, "k of TopK")
    checks.require(len(wanted) == 1, node, "k of TopK is one number")
    axis = checks.normalise_axis(node, node.attributes.axis, value.rank)
    checks.require(ix.less(-1, wanted[0]), node, f"k is {ix.text(wanted[0])}")
    fits = not ix.less(value.shape[axis], wanted[0])
    checks.require(fits, node, f"k is {ix.text(wanted[0])}, axis {axis} has {ix.text(value.shape[axis])} elements")
    return axis, wanted[0]


def _infer(node: Node) -> Inferred:
    axis, k = _parameters(node)
    shape = _indices_shape(node.operand(0).shape, axis, k)
    return [(node.operand(0).dtype, shape), (INT64, shape)]


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    axis, k = _parameters(node)
    indices = top_indices(builder, node.operand(0), axis, k, bool(node.attributes.largest))
    values = builder.op("GatherElements", node.operand(0), indices, axis=axis)
    return [values, builder.op("Cast", indices, to=INT64.onnx)]


def top_indices(builder: Builder, value: Value, axis: int, k: Dim, largest: bool) -> Value:
    """Build the int32 positions of the first ``k`` elements along ``axis`` in sorted order."""
    size = value.shape[axis]
    if not isinstance(size, int) or not isinstance(k, int) or size <= RUN:
        return builder.op("TopIndices", value, domain="loom", axis=axis, k=k, largest=largest)
    best = min(k, RUN)
    runs = builder.op("TopIndices", value, domain="loom", axis=axis, k=best, largest=largest, run=RUN)
    if ix.number(runs.shape[axis]) * GAIN <= size:
        candidates = builder.op("GatherElements", value, runs, axis=axis)
        winners = top_indices(builder, candidates, axis, k, largest)
        return builder.op("GatherElements", runs, winners, axis=axis)
    if best < RUN:
        runs = builder.op("TopIndices", value, domain="loom", axis=axis, k=RUN, largest=largest, run=RUN)
    order = merged(builder, value, runs, RUN, axis=axis, largest=largest)
    first = (builder.constant(np.array([number])) for number in (0, k, axis))
    return order if k == size else builder.op("Slice", order, *first)


def _attribute_k(raw: RawNode) -> None:
    if "k" in raw.attributes:
        checks.set_input(raw, 1, raw.add_constant(np.array([raw.attributes.pop("k")], np.int64)))


register(
    name="TopK",
    infer=_infer,
    attributes=TopKAttributes,
    adapters=((9, _attribute_k),),
    expand=_expand,
    types=(checks.NUMERIC, checks.INDICES),
    static_inputs=(1,),
)
