"""Operators whose sizes follow from integers that a run alone knows, split ahead of time: the device computes these
sizes, they are read, and the rest is computed for them.

These are Reshape, whose shape may hold 0 and -1, and Slice with steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.plan.dtypes import INT64
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..math.nodes import integer
from ..registry import Builder, Inferred, SplitBuilder, register

#: What a size is where there is none: it is in no range
_NO_SIZE = -1
#: No axis on a device is longer, and steps enter 32-bit arithmetic
_LONGEST = ix.UNBOUNDED - 1


def is_open(value: Value | None) -> bool:
    """Return whether an operand has elements of which a run alone knows the numbers."""
    return value is not None and (value.static_value is None or value.static_value.dtype == object)


def _sizes(builder: Builder, sizes: Sequence[Dim]) -> Value:
    """Return sizes as an int64 vector."""
    return builder.op("Dimensions", domain="loom", elements=tuple(sizes), shape=(len(sizes),), dtype=INT64)


def _integer(builder: Builder, number: int) -> Value:
    return builder.constant(np.array(number, np.int64))


def _as_int64(builder: Builder, value: Value) -> Value:
    return builder.op("Cast", value, to=INT64.onnx)


# -- Reshape ---------------------------------------------------------------------------------------------------------


@record
class ReshapedSizesAttributes:
    allowzero: int = 0


def _count(node: Node, position: int, what: str) -> int:
    value = node.operand(position)
    checks.require(value.rank == 1, node, f"{what} must be of rank 1")
    return checks.concrete(node, value.shape[0], f"how many {what}")


def _infer_reshaped(node: Node) -> Inferred:
    return [(INT64, (_count(node, 1, "sizes of Reshape"),))]


def _expand_reshaped(builder: Builder, node: Node) -> Sequence[Value]:
    """Compute the sizes of a Reshape without 0 and -1; -1 where there is no answer."""
    value, wanted = node.operand(0), _as_int64(builder, node.operand(1))
    count = _count(node, 1, "sizes of Reshape")
    zero, one, none = (_integer(builder, number) for number in (0, 1, _NO_SIZE))
    if not node.attributes.allowzero:
        copied = _sizes(builder, (*value.shape[:count], *[_NO_SIZE - 1] * (count - value.rank)))
        wanted = builder.op("Where", builder.op("Equal", wanted, zero), copied, wanted)
    is_rest = builder.op("Equal", wanted, none)
    others = builder.op("ReduceProd", builder.op("Where", is_rest, one, wanted), keepdims=0)
    rests = builder.op("ReduceSum", builder.op("Cast", is_rest, to=INT64.onnx), keepdims=0)
    has_answer = builder.op("And", builder.op("Greater", others, zero), builder.op("Less", rests, _integer(builder, 2)))
    elements = builder.op("Squeeze", _sizes(builder, (ix.product(value.shape),)))
    rest = builder.op("Where", has_answer, builder.op("Div", elements, builder.op("Max", others, one)), none)
    return [builder.op("Where", is_rest, rest, wanted)]


register(
    name="ReshapedSizes",
    domain="loom",
    attributes=ReshapedSizesAttributes,
    infer=_infer_reshaped,
    expand=_expand_reshaped,
    names_sizes=1,
)


def split_reshape(builder: SplitBuilder, inputs: Sequence[str], outputs: Sequence[str], attributes: Any) -> None:
    """Split a Reshape to sizes that a run alone knows."""
    sizes = builder.apply("ReshapedSizes", *inputs, domain="loom", allowzero=attributes.allowzero)
    builder.apply_to(outputs, "Reshape", inputs[0], sizes, allowzero=1)


def is_reshaped_ahead(inputs: Sequence[Value | None], attributes: Any) -> bool:
    """Return whether a Reshape is split: where all of its sizes are fed or computed, or one remains of symbols.

    Of sizes that are joined those alone are read which are not known.
    """
    sizes = inputs[1]
    return sizes is not None and is_open(sizes) and (sizes.producer is None or sizes.producer.op != "Concat")


# -- Slice -----------------------------------------------------------------------------------------------------------


def _bounds(builder: Builder, node: Node) -> tuple[Value, Value]:
    """Return the first coordinates of a Slice and its numbers of elements, by ONNX's rules."""
    value = node.operand(0)
    starts, ends, steps = (_as_int64(builder, node.operand(position)) for position in (1, 2, 4))
    zero, one = _integer(builder, 0), _integer(builder, 1)
    steps = _limited(builder, steps)
    size = _sizes(builder, [value.shape[axis] for axis in _axes(node)])
    starts, ends = (
        builder.op("Where", builder.op("Less", each, zero), builder.op("Add", each, size), each)
        for each in (starts, ends)
    )
    forwards = builder.op("Greater", steps, zero)
    highest = builder.op("Where", forwards, size, builder.op("Sub", size, one))
    lowest = builder.op("Where", forwards, zero, _integer(builder, -1))
    first = builder.op("Min", builder.op("Max", starts, zero), highest)
    last = builder.op("Min", builder.op("Max", ends, lowest), highest)
    distance = builder.op("Where", forwards, builder.op("Sub", last, first), builder.op("Sub", first, last))
    stride = builder.op("Max", builder.op("Abs", steps), one)
    count = builder.op("Add", builder.op("Div", builder.op("Sub", distance, one), stride), one)
    count = builder.op("Where", builder.op("Greater", distance, zero), count, zero)
    count = builder.op("Where", builder.op("Equal", steps, zero), _integer(builder, _NO_SIZE), count)
    return first, count


def _limited(builder: Builder, steps: Value) -> Value:
    return builder.op("Max", builder.op("Min", steps, _integer(builder, _LONGEST)), _integer(builder, -_LONGEST))


def _axes(node: Node) -> tuple[int, ...]:
    value = node.operand(0)
    axes: Sequence[int] = range(_count(node, 4, "steps of Slice"))
    if node.optional(3) is not None:
        axes = checks.static_integers(node, 3, "axes of Slice")
    return checks.normalise_axes(node, axes, value.rank)


def _infer_bounds(node: Node) -> Inferred:
    counts = {_count(node, position, "bounds of Slice") for position in (1, 2, 4)} | {len(_axes(node))}
    checks.require(len(counts) == 1, node, "starts, ends, axes and steps of Slice differ in number")
    return [(INT64, (counts.pop(),))]


for _name, _position in (("SliceFirsts", 0), ("SliceCounts", 1)):
    register(
        name=_name,
        domain="loom",
        infer=_infer_bounds,
        expand=lambda builder, node, position=_position: [_bounds(builder, node)[position]],
        static_inputs=(3,),
    )


def _infer_stepped(node: Node) -> Inferred:
    value, shape = node.operand(0), list(node.operand(0).shape)
    for axis, size in zip(_axes(node), checks.static_dims(node, 2, "the sizes of Slice")):
        shape[axis] = size
    return [(value.dtype, tuple(shape))]


def _expand_stepped(builder: Builder, node: Node) -> Sequence[Value]:
    value = node.operand(0)
    firsts, steps = node.operand(1), _limited(builder, _as_int64(builder, node.operand(4)))
    counts = checks.static_dims(node, 2, "the sizes of Slice")
    for at, (axis, count) in enumerate(zip(_axes(node), counts)):
        position = _integer(builder, at)
        first, step = (builder.op("Gather", each, position, axis=0) for each in (firsts, steps))
        number = builder.op("Range", _integer(builder, 0), integer(builder, count, INT64), _integer(builder, 1))
        places = builder.op("Add", builder.op("Mul", number, step), first)
        value = builder.op("Gather", value, places, axis=axis)
    return [value]


register(
    name="SteppedSlice",
    domain="loom",
    infer=_infer_stepped,
    expand=_expand_stepped,
    static_inputs=(2, 3),
)


def split_slice(builder: SplitBuilder, inputs: Sequence[str], outputs: Sequence[str], attributes: Any) -> None:
    """Split a Slice with steps that a run alone knows."""
    value, _, _, axes, steps = inputs
    firsts, counts = (builder.apply(name, *inputs, domain="loom") for name in ("SliceFirsts", "SliceCounts"))
    builder.apply_to(outputs, "SteppedSlice", value, firsts, counts, axes, steps, domain="loom")
