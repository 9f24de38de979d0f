"""Unique: the distinct elements of a tensor, or the distinct slices along an axis.

With an operand that is known at compile time the result is a constant.  Else the operator is *split* into builder: the
slices are sorted, those that differ from the one before are counted, and the count is read back.  ``loom.UniqueOf``
then gives the four results.  As everywhere in this compiler NaN is the largest number; elements that are NaN are one
element, slices with a NaN are all different (numpy's rules, which are those of ONNX's reference).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.plan.dtypes import BOOL, INT32, INT64, UINT8
from ....runtime.plan.errors import NotKnownError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..internal.sorting import merged
from ..registry import Builder, Inferred, SplitBuilder, register
from .indexing import gather_axis
from .nonzero import running_counts
from .topk import top_indices

_FLAT = np.array([-1])


@record
class UniqueSlicesAttributes:
    """``axis`` None: the elements of the flattened tensor."""

    axis: int | None = None


def _slices(builder: Builder, node: Node) -> tuple[Value, int]:
    """Reshape the operand to [slices, elements], and return it with the number of slices."""
    value = node.operand(0)
    if value.dtype == BOOL:
        value = builder.op("Cast", value, to=UINT8.onnx)
    count = _count(node)
    if node.attributes.axis is not None:
        axis = gather_axis(node)
        order = (axis, *(other for other in range(value.rank) if other != axis))
        value = builder.op("Transpose", value, perm=order)
    return builder.op("Reshape", value, builder.constant(np.array([count, -1]))), count


def _count(node: Node) -> int:
    value = node.operand(0)
    size = value.elements if node.attributes.axis is None else value.shape[gather_axis(node)]
    return checks.concrete(node, size, "the number of slices")


# -- the order of slices ----------------------------------------------------------------------------------------------


def _expand_order(builder: Builder, node: Node) -> Sequence[Value]:
    slices, count = _slices(builder, node)
    if slices.shape[1] == 1:
        return [top_indices(builder, builder.op("Reshape", slices, builder.constant(_FLAT)), 0, count, False)]
    first, last, step = (builder.constant(np.array(number, np.int32)) for number in (0, count, 1))
    return [
        merged(builder, slices, builder.op("Range", first, last, step), 1, axis=0, largest=False, key_axis=1),
    ]


register(
    name="SortedSlices",
    domain="loom",
    attributes=UniqueSlicesAttributes,
    infer=lambda node: [(INT32, (_count(node),))],
    expand=_expand_order,
    types=(checks.ANY,),
)


def _expand_starts(builder: Builder, node: Node) -> Sequence[Value]:
    """Compare each slice in sorted order with the one before it, and mark those that differ."""
    slices, count = _slices(builder, node)
    order = node.operand(1)
    places = builder.op("Range", *(builder.constant(np.array(number, np.int32)) for number in (0, count, 1)))
    before = builder.op(
        "Max",
        builder.op("Sub", places, builder.constant(np.array(1, np.int32))),
        builder.constant(np.array(0, np.int32)),
    )
    own = builder.op("Gather", slices, order, axis=0)
    other = builder.op("Gather", slices, builder.op("Gather", order, before, axis=0), axis=0)
    differs = builder.op("Not", builder.op("Equal", own, other))
    if node.attributes.axis is None and slices.dtype.is_float:
        both = builder.op("And", builder.op("IsNaN", own), builder.op("IsNaN", other))
        differs = builder.op("And", differs, builder.op("Not", both))
    numbers = builder.op("Cast", differs, to=INT32.onnx)
    marks = builder.op("ReduceMax", numbers, builder.constant(np.array([1])), keepdims=0)
    is_first = builder.op("Equal", places, builder.constant(np.array(0, np.int32)))
    return [builder.op("Or", is_first, builder.op("Cast", marks, to=BOOL.onnx))]


register(
    name="DistinctSlices",
    domain="loom",
    attributes=UniqueSlicesAttributes,
    infer=lambda node: [(BOOL, (_count(node),))],
    expand=_expand_starts,
    types=(checks.ANY, frozenset({"int32"})),
)


# -- the results, once their number is known --------------------------------------------------------------------------


@record
class UniqueAttributes:
    """With ``sorted`` 0 the results are in the order of their first occurrence."""

    axis: int | None = None
    sorted: int = 1


def _shapes(node: Node, count: Dim) -> Inferred:
    value = node.operand(0)
    shape: tuple[Any, ...] = (count,)
    if node.attributes.axis is not None:
        axis = gather_axis(node)
        shape = (*value.shape[:axis], count, *value.shape[axis + 1 :])
    return [(value.dtype, shape), (INT64, (count,)), (INT64, (_count(node),)), (INT64, (count,))]


def _distinct(node: Node) -> Dim:
    """Return the number of distinct slices; a plain number where first occurrences are sorted, which depends on it."""
    read = checks.static_dims if node.attributes.sorted else checks.static_integers
    (count,) = read(node, 3, "the number of distinct slices")
    return count


def _infer_of(node: Node) -> Inferred:
    return _shapes(node, _distinct(node))


def _expand_of(builder: Builder, node: Node) -> Sequence[Value]:
    value, order, starts = node.operand(0), node.operand(1), node.operand(2)
    total = _count(node)

    def wide(result: Value) -> Value:
        return builder.op("Cast", result, to=INT64.onnx)

    flat = builder.constant(_FLAT)
    places = builder.op("Reshape", builder.op("NonZeroAt", starts, node.operand(3), domain="loom"), flat)
    places = builder.op("Cast", places, to=INT32.onnx)
    firsts = builder.op("Gather", order, places, axis=0)
    following = builder.op("Slice", places, *(builder.constant(np.array([number])) for number in (1, total)))
    stops = builder.op("Concat", following, builder.constant(np.array([total], np.int32)), axis=0)
    counts = builder.op("Sub", stops, places)
    running = running_counts(builder, builder.op("Cast", starts, to=INT32.onnx))
    groups = builder.op("Sub", running, builder.constant(np.array(1, np.int32)))
    if not node.attributes.sorted:
        count = ix.number(_distinct(node))
        by_occurrence = top_indices(builder, firsts, 0, count, False)
        firsts, counts = (builder.op("Gather", each, by_occurrence, axis=0) for each in (firsts, counts))
        numbers = builder.op("Range", *(builder.constant(np.array(number, np.int32)) for number in (0, count, 1)))
        renamed = builder.op("Permute", numbers, by_occurrence, domain="loom")
        groups = builder.op("Gather", renamed, groups, axis=0)
    inverse = builder.op("Permute", groups, order, domain="loom")
    if node.attributes.axis is None:
        value, axis = builder.op("Reshape", value, flat), 0
    else:
        axis = gather_axis(node)
    return [builder.op("Gather", value, firsts, axis=axis), wide(firsts), wide(inverse), wide(counts)]


register(
    name="UniqueOf",
    domain="loom",
    attributes=UniqueAttributes,
    infer=_infer_of,
    expand=_expand_of,
    types=(checks.ANY, frozenset({"int32"}), checks.BOOLEAN, checks.INDICES),
    static_inputs=(3,),
    counts_elements=True,
)


# -- Unique -----------------------------------------------------------------------------------------------------------


def _static_results(node: Node) -> list[np.ndarray]:
    elements = checks.static_elements(node, node.operand(0), "how many elements are distinct")
    if checks.is_symbolic(elements):
        raise NotKnownError("how many elements are distinct must be known", origin=node.origin)
    return unique_arrays(elements, node.attributes.axis, bool(node.attributes.sorted))


def unique_arrays(array: np.ndarray, axis: int | None, in_order: bool) -> list[np.ndarray]:
    """Evaluate Unique with numpy. Raise :class:`ValueError` for an axis that the array lacks."""
    wide = array.astype(np.float32) if array.dtype.itemsize < 4 and array.dtype.kind not in "biu" else array
    _, firsts, inverse, counts = np.unique(wide, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not in_order:
        order = np.argsort(firsts)
        firsts, counts = firsts[order], counts[order]
        inverse = np.argsort(order)[inverse]
    values = np.take(array.reshape(-1) if axis is None else array, firsts, 0 if axis is None else axis)
    return [values, *(each.astype(np.int64) for each in (firsts, inverse, counts))]


def _infer(node: Node) -> Inferred:
    if node.attributes.axis is not None:
        gather_axis(node)
    return _shapes(node, len(_static_results(node)[1]))


def _split(builder: SplitBuilder, inputs: Sequence[str], outputs: Sequence[str], attributes: UniqueAttributes) -> None:
    value, axis = inputs[0], attributes.axis
    order = builder.apply("SortedSlices", value, domain="loom", axis=axis)
    starts = builder.apply("DistinctSlices", value, order, domain="loom", axis=axis)
    count = builder.apply("ReduceSum", builder.apply("Cast", starts, to=INT32.onnx), keepdims=0)
    builder.apply_to(
        outputs, "UniqueOf", value, order, starts, count, domain="loom", axis=axis, sorted=attributes.sorted
    )


register(
    name="Unique",
    attributes=UniqueAttributes,
    infer=_infer,
    expand=lambda builder, node: [builder.constant(each) for each in _static_results(node)],
    fold=lambda node, operand: _static_results(node),
    split=_split,
    types=(checks.ANY,),
)
