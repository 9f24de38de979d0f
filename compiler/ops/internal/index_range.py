"""``loom.IndexRange``: the smallest and largest index that an operand of another node holds, and the limit.

The operands are those of the node; the result is int64 [components, 4]: for each axis that the indices address the
number of the rule, the smallest index, the largest one, and the size of the axis.
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
from ..registry import Builder, Indices, Inferred, register, registry
from .symbolic import MAX_DIMENSIONS


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
    return [(INT64, (len(sizes), 4))]


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    rule, sizes = _rule(node)
    count = len(sizes)
    indices = builder.op("Cast", node.operand(rule.position), to=INT64.onnx)
    tuples = builder.op("Reshape", indices, builder.constant(np.asarray([-1, count], np.int64)))
    first = builder.constant(np.asarray([0], np.int64))
    ends = [builder.op(name, tuples, first, keepdims=0) for name in ("ReduceMin", "ReduceMax")]
    if any(isinstance(size, ix.Index) for size in sizes):
        limits = builder.op("Dimensions", domain="loom", elements=tuple(sizes), shape=(count,), dtype=INT64)
    else:
        limits = builder.constant(np.asarray(sizes, np.int64))
    numbers = builder.constant(np.full(count, node.attributes.number, np.int64))
    last = builder.constant(np.asarray([1], np.int64))
    columns = [builder.op("Unsqueeze", each, last) for each in (numbers, *ends, limits)]
    return [builder.op("Concat", *columns, axis=1)]


register(
    name="IndexRange",
    domain="loom",
    infer=_infer,
    attributes=IndexRangeAttributes,
    expand=_expand,
)
