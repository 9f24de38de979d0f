"""Values whose channels are the last axis, as operators with ``channels_last`` and those named Nhwc take them."""

from __future__ import annotations

from ...ir.graph import Node, Shape, Value
from ..registry import Builder


def first_shape(shape: Shape) -> Shape:
    """Permute the shape [N, spatial..., C] to [N, C, spatial...]."""
    return (shape[0], shape[-1], *shape[1:-1])


def last_shape(shape: Shape) -> Shape:
    """Permute the shape [N, C, spatial...] to [N, spatial..., C]."""
    return (shape[0], *shape[2:], shape[1])


def channels_first(builder: Builder, value: Value) -> Value:
    return builder.op("Transpose", value, perm=(0, value.rank - 1, *range(1, value.rank - 1)))


def channels_last(builder: Builder, value: Value) -> Value:
    return builder.op("Transpose", value, perm=(0, *range(2, value.rank), 1))


def channels_first_node(node: Node) -> Node:
    """Return a detached copy of ``node`` whose first operand has its channels first, for shape rules only."""
    value = node.operand(0)
    turned = Value(0, value.name, value.dtype, first_shape(value.shape))
    return Node(0, node.op, node.domain, [turned, *node.inputs[1:]], node.attributes, node.origins)
