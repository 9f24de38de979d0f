"""NonZero and Compress: results whose size depends on the data.

With operands that are known at compile time both are views.  Else they are *split* into builder: the elements are
counted, the count is read back, and ``loom.NonZeroAt`` gives that many positions.  The n-th position is found by binary
search in running counts, each on its own, so the result is the same on every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.plan.dtypes import BOOL, INT32, INT64
from ....runtime.plan.errors import NotKnownError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..registry import Builder, Inferred, NoAttributes, SplitBuilder, register
from .indexing import gather_axis

#: Rows of more elements than the first are summed in blocks of the second, so that no thread walks many
LONG, BLOCK = 1 << 15, 1 << 10
_SCALAR = np.array([], np.int64)


def running_counts(builder: Builder, ones: Value, *, exclusive: bool = False) -> Value:
    """Build the running sums of a row of int32, whose size is a number."""
    size = ix.number(ones.shape[0])
    scan: dict[str, Any] = {"domain": "loom", "kind": "sum", "reverse": False}
    if size <= LONG:
        return builder.op("Cumulate", ones, axis=0, exclusive=exclusive, **scan)
    blocks = -(-size // BLOCK)
    padded = builder.op("Pad", ones, builder.constant(np.array([0, blocks * BLOCK - size])))
    rows = builder.op("View", padded, domain="loom", shape=(blocks, BLOCK))
    inside = builder.op("Cumulate", rows, axis=1, exclusive=exclusive, **scan)
    totals = builder.op("ReduceSum", rows, builder.constant(np.array([1])), keepdims=0)
    before = running_counts(builder, totals, exclusive=True)
    sums = builder.op("Add", inside, builder.op("View", before, domain="loom", shape=(blocks, 1)))
    flat = builder.op("View", sums, domain="loom", shape=(blocks * BLOCK,))
    return builder.op("Slice", flat, *(builder.constant(np.array([number])) for number in (0, size)))


# -- positions, once their number is known --------------------------------------------------------------------------


def _infer_at(node: Node) -> Inferred:
    (count,) = checks.static_dims(node, 1, "the number of elements")
    return [(INT64, (max(node.operand(0).rank, 1), count))]


def _expand_at(builder: Builder, node: Node) -> Sequence[Value]:
    mask = node.operand(0)
    sizes: list[Dim] = list(mask.shape) or [1]

    def number(value: Dim) -> Value:
        if isinstance(value, ix.Index):
            return builder.op("Dimensions", domain="loom", elements=(value,), shape=(), dtype=INT32)
        return builder.constant(np.array(value, np.int32))

    ones = builder.op("Cast", builder.op("Reshape", mask, builder.constant(np.array([-1]))), to=INT32.onnx)
    whole = ix.product(sizes)
    total = ix.bounds(whole)[1]  # behind the elements of declared sizes there are zeros, up to the most that may be
    if isinstance(whole, ix.Index):
        room = builder.op("Dimensions", domain="loom", elements=(0, total - whole), shape=(2,), dtype=INT64)
        ones = builder.op("View", builder.op("Pad", ones, room), domain="loom", shape=(total,))
    running = running_counts(builder, ones)
    end = builder.op("Add", builder.op("Cast", node.operand(1), to=INT32.onnx), number(1))
    target = builder.op("Range", number(1), builder.op("Reshape", end, builder.constant(_SCALAR)), number(1))
    position = number(0)  # how many elements are surely in front of the one that is looked for
    for bit in reversed(range(total.bit_length())):
        ahead = builder.op("Add", position, number(1 << bit))
        last = builder.op("Min", builder.op("Sub", ahead, number(1)), number(total - 1))
        fewer = builder.op("Less", builder.op("Gather", running, last, axis=0), target)
        inside = builder.op("LessOrEqual", ahead, number(total))
        position = builder.op("Where", builder.op("And", inside, fewer), ahead, position)
    rows = []
    for axis, size in enumerate(sizes):
        stride = ix.product(sizes[axis + 1 :])
        row = builder.op("Mod", builder.op("Div", position, number(stride)), number(size))
        rows.append(builder.op("Unsqueeze", row, builder.constant(np.array([0]))))
    positions = builder.op("Concat", *rows, axis=0) if len(rows) > 1 else rows[0]
    return [builder.op("Cast", positions, to=INT64.onnx)]


register(
    name="NonZeroAt",
    domain="loom",
    infer=_infer_at,
    expand=_expand_at,
    types=(frozenset({"bool"}), checks.INDICES),
    static_inputs=(1,),
    counts_elements=True,
)


def positions(builder: SplitBuilder, value: str) -> str:
    """Build the positions of the nonzero elements of a tensor, [rank, count]; the count is read back."""
    mask = builder.apply("Cast", value, to=BOOL.onnx)
    count = builder.apply("ReduceSum", builder.apply("Cast", mask, to=INT32.onnx), keepdims=0)
    return builder.apply("NonZeroAt", mask, count, domain="loom")


# -- NonZero --------------------------------------------------------------------------------------------------------


def _nonzero_indices(node: Node) -> np.ndarray:
    elements = checks.static_elements(node, node.operand(0), "how many elements are not zero")
    if checks.is_symbolic(elements):
        raise NotKnownError("how many elements are not zero must be known", origin=node.origin)
    return np.array(np.nonzero(np.atleast_1d(elements)), np.int64)


def _infer_nonzero(node: Node) -> Inferred:
    return [(INT64, _nonzero_indices(node).shape)]


def _split_nonzero(builder: SplitBuilder, inputs: Sequence[str], outputs: Sequence[str], attributes: Any) -> None:
    builder.name(positions(builder, inputs[0]), outputs[0])


register(
    name="NonZero",
    attributes=NoAttributes,
    infer=_infer_nonzero,
    expand=lambda builder, node: [builder.constant(_nonzero_indices(node))],
    fold=lambda node, operand: _nonzero_indices(node),
    split=_split_nonzero,
    types=(checks.ANY,),
)


# -- Compress -------------------------------------------------------------------------------------------------------


@record
class CompressAttributes:
    axis: int | None = None


def _selected_indices(node: Node) -> np.ndarray:
    return np.flatnonzero(checks.static_elements(node, node.operand(1), "the condition of Compress"))


def _infer_compress(node: Node) -> Inferred:
    value = node.operand(0)
    selected = _selected_indices(node)
    if node.attributes.axis is None:
        return [(value.dtype, (len(selected),))]
    axis = gather_axis(node)
    return [(value.dtype, (*value.shape[:axis], len(selected), *value.shape[axis + 1 :]))]


def _expand_compress(builder: Builder, node: Node) -> Sequence[Value]:
    value, axis = node.operand(0), node.attributes.axis
    if axis is None:
        value, axis = builder.op("Reshape", value, builder.constant(np.array([-1]))), 0
    return [builder.op("Gather", value, builder.constant(_selected_indices(node)), axis=axis)]


def _split_compress(builder: SplitBuilder, inputs: Sequence[str], outputs: Sequence[str], attributes: Any) -> None:
    flat = builder.constant(np.array([-1]))
    coordinates = builder.apply("Reshape", positions(builder, inputs[1]), flat)
    value, axis = inputs[0], attributes.axis
    if axis is None:
        value, axis = builder.apply("Reshape", value, flat), 0
    builder.name(builder.apply("Gather", value, coordinates, axis=axis), outputs[0])


register(
    name="Compress",
    attributes=CompressAttributes,
    infer=_infer_compress,
    expand=_expand_compress,
    fold=lambda node, data, condition: np.compress(condition, data, node.attributes.axis),
    split=_split_compress,
    static_inputs=(1,),
)
