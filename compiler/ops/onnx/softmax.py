"""Softmax and its relatives: reductions along one axis with elementwise operations around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from .. import checks
from ..checks import FLOATS, same_as_input
from ..math.reductions import reduce
from ..math.softmax import shifted, softmax
from ..registry import Builder, Inferred, RawNode, register


@record
class SoftmaxAttributes:
    """``flatten`` keeps the meaning before version 13: all axes from ``axis`` on are one."""

    axis: int = -1
    flatten: int = 0


def flatten_before_13(raw: RawNode) -> None:
    raw.attributes.setdefault("axis", 1)
    raw.attributes["flatten"] = 1


def _axes(node: Node) -> tuple[int, ...]:
    rank = node.operand(0).rank
    attributes: SoftmaxAttributes = node.attributes
    if attributes.flatten:
        return tuple(range(checks.normalise_axis(node, attributes.axis, rank), rank))
    return (checks.normalise_axis(node, attributes.axis, rank),)


def _infer(node: Node) -> Inferred:
    _axes(node)
    return same_as_input()(node)


def _softmax(builder: Builder, node: Node) -> Sequence[Value]:
    return [softmax(builder, node.operand(0), _axes(node))]


def _log_softmax(builder: Builder, node: Node) -> Sequence[Value]:
    axes = _axes(node)
    difference = shifted(builder, node.operand(0), axes)
    total = reduce(builder, builder.op("Exp", difference), "sum", axes)
    return [builder.op("Sub", difference, builder.op("Log", total))]


def _hardmax(builder: Builder, node: Node) -> Sequence[Value]:
    """Build 1 at the first largest element of each row, 0 elsewhere."""
    value = node.operand(0)
    attributes: SoftmaxAttributes = node.attributes
    rows = value
    axis = attributes.axis
    if attributes.flatten:
        rows = builder.op("Flatten", value, axis=axis)
        axis = 1
    axis = checks.normalise_axis(node, axis, rows.rank)
    places = builder.op("ArgReduce", rows, domain="loom", kind="max", axis=axis, keepdims=True, select_last_index=False)
    size = builder.op("Gather", builder.op("Shape", rows), builder.constant(np.array(axis, np.int64)))
    start, step = (builder.constant(np.array(number, np.int64)) for number in (0, 1))
    others = np.array([other for other in range(rows.rank) if other != axis], np.int64)
    positions = builder.op("Unsqueeze", builder.op("Range", start, size, step), builder.constant(others))
    chosen = builder.op("Cast", builder.op("Equal", places, positions), to=value.dtype.onnx)
    if not attributes.flatten:
        return [chosen]
    return [builder.op("Reshape", chosen, builder.op("Shape", value))]


_OPERATORS: tuple[tuple[str, Callable[[Builder, Node], Sequence[Value]]], ...] = (
    ("Softmax", _softmax),
    ("LogSoftmax", _log_softmax),
    ("Hardmax", _hardmax),
)

for _name, _expand in _OPERATORS:
    register(
        name=_name,
        infer=_infer,
        attributes=SoftmaxAttributes,
        adapters=((12, flatten_before_13),),
        expand=_expand,
        types=(FLOATS,),
    )
