"""Constants side by side, joined where they come from: what is computed of each is computed once of all.

``Cast(a) * s`` and ``Cast(b) * t`` become ``Cast(a | b) * (s | t)``, so that weights of few bits stay in few bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.graph import Node, Value
from ..ops.onnx.views import permutation
from ..ops.registry import registry
from ..rewriting.builder import GraphBuilder
from .patterns import static_numbers


def may_join(values: Sequence[Value], axis: int) -> bool:
    """Return whether the values are computed alike, but for constants that join along ``axis`` (from the end)."""
    producers = _alike(values)
    if producers is None:
        return all(value.is_constant for value in values)
    return all(
        below is None or may_join(operands, below) for operands, below in _operands(values, producers, axis)
    ) and _same_elsewhere(values, producers, axis)


def join_constants(builder: GraphBuilder, values: Sequence[Value], axis: int) -> Value:
    """Concatenate the values along ``axis``, which counts from the end."""
    producers = _alike(values) if may_join(values, axis) else None
    if producers is None:
        return builder.op("Concat", *values, axis=axis)
    operands = [
        same[0] if below is None else join_constants(builder, same, below)
        for same, below in _operands(values, producers, axis)
    ]
    return builder.emit(registry.of(producers[0]), operands, producers[0].attributes)[0]


def _alike(values: Sequence[Value]) -> list[Node] | None:
    """Return the producers of the values if all apply the same elementwise operator or transposition, else None."""
    producers = [value.producer for value in values]
    first = producers[0]
    if first is None or len(first.outputs) != 1 or any(value is None for value in first.inputs):
        return None
    if first.op != "Transpose" and registry.of(first).element is None:
        return None
    key: Any = (first.op, first.domain, first.attributes, len(first.inputs))
    nodes = [node for node in producers if node is not None]
    same = all((node.op, node.domain, node.attributes, len(node.inputs)) == key for node in nodes)
    return nodes if same and len(nodes) == len(values) else None


def _operands(values: Sequence[Value], producers: Sequence[Node], axis: int) -> list[tuple[list[Value], int | None]]:
    """Return the operands at each position, with the axis along which they join; None where they broadcast along it."""
    result: list[tuple[list[Value], int | None]] = []
    for position in range(len(producers[0].inputs)):
        operands = [node.operand(position) for node in producers]
        below: int | None = axis
        if producers[0].op == "Transpose":
            order = permutation(producers[0])
            below = order[axis] - len(order)
        elif any(operand.rank < -axis or operand.shape[axis] == 1 for operand in operands):
            below = None
        result.append((operands, below))
    return result


def _same_elsewhere(values: Sequence[Value], producers: Sequence[Node], axis: int) -> bool:
    """Return whether operands that broadcast along the axis are equal for all values, even for values of one column."""
    for operands, below in _operands(values, producers, axis):
        if below is None and not all(_equal(operands[0], other) for other in operands[1:]):
            return False
    return True


def _equal(one: Value, other: Value) -> bool:
    if one is other:
        return True
    left, right = static_numbers(one), static_numbers(other)
    return left is not None and right is not None and left.dtype == right.dtype and np.array_equal(left, right)
