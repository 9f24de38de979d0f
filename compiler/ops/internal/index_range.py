"""``loom.IndexRange``: the smallest and largest index that an operand of another node holds, and the limits.

The operands are those of the node; the result is int64 [components, 5]: for each axis that the indices address the
number of the rule, the smallest index, the largest one, and the least and the greatest that are in range.

``loom.FirstOutOfRange`` takes such rows and gives the first that is out of range, else the first: int64 [1, 5].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.plan.dtypes import INT32, INT64
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from ..registry import Builder, Indices, Inferred, register, registry
from .symbolic import MAX_DIMENSIONS

#: The row of an operand that holds no indices: the smallest one is greater than the largest
ROW_WITHOUT_INDICES = np.array([[0, 0, -1, 0, 0]], np.int64)


@record
class IndexRangeAttributes:
    """The node whose indices are meant, by its operator and attributes; ``rule`` of its definition declares them.

    ``number`` says which one of the model this is.
    """

    operator: str
    domain: str
    attributes: Any
    rule: int
    number: int


def _rule(node: Node) -> tuple[Indices, Sequence[Dim]]:
    """Return the rule, and the sizes of the axes that the indices address."""
    attributes: IndexRangeAttributes = node.attributes
    rule = registry.get(attributes.operator, attributes.domain).indices[attributes.rule]
    meant = Node(0, attributes.operator, attributes.domain, node.inputs, attributes.attributes, node.origins)
    return rule, list(rule.sizes(meant))[:MAX_DIMENSIONS]


def _infer(node: Node) -> Inferred:
    _, sizes = _rule(node)
    return [(INT64, (len(sizes), len(ROW_WITHOUT_INDICES[0])))]


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    rule, sizes = _rule(node)
    count = len(sizes)
    indices = builder.op("Cast", node.operand(rule.position), to=INT64.onnx)
    tuples = builder.op("Reshape", indices, builder.constant(np.asarray([-1, count], np.int64)))
    first = builder.constant(np.asarray([0], np.int64))
    ends = [builder.op(name, tuples, first, keepdims=0) for name in ("ReduceMin", "ReduceMax")]
    least = [ix.multiply(-1, size) if rule.wraps else 0 for size in sizes]
    limits = [_dims(builder, dims) for dims in (least, [ix.add(size, -1) for size in sizes])]
    numbers = builder.constant(np.full(count, node.attributes.number, np.int64))
    last = builder.constant(np.asarray([1], np.int64))
    columns = [builder.op("Unsqueeze", each, last) for each in (numbers, *ends, *limits)]
    return [builder.op("Concat", *columns, axis=1)]


def _dims(builder: Builder, dims: Sequence[Dim]) -> Value:
    if any(isinstance(dim, ix.Index) for dim in dims):
        return builder.op("Dimensions", domain="loom", elements=tuple(dims), shape=(len(dims),), dtype=INT64)
    return builder.constant(np.asarray(dims, np.int64))


def _expand_first(builder: Builder, node: Node) -> Sequence[Value]:
    rows = builder.op("Concat", *node.inputs, axis=0)
    columns = [builder.op("Gather", rows, builder.constant(np.asarray(each, np.int64)), axis=1) for each in range(1, 5)]
    low, high, least, greatest = columns
    outside = builder.op("Or", builder.op("Less", low, least), builder.op("Greater", high, greatest))
    wrong = builder.op("And", outside, builder.op("LessOrEqual", low, high))
    position = builder.op("ArgMax", builder.op("Cast", wrong, to=INT32.onnx), axis=0, keepdims=1)
    return [builder.op("Gather", rows, position, axis=0)]


register(
    name="FirstOutOfRange",
    domain="loom",
    infer=lambda node: [(INT64, ROW_WITHOUT_INDICES.shape)],
    expand=_expand_first,
)
register(
    name="IndexRange",
    domain="loom",
    infer=_infer,
    attributes=IndexRangeAttributes,
    expand=_expand,
)
