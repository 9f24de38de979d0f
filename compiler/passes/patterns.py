"""Small questions that several rules ask."""

from __future__ import annotations

import numpy as np

from ..ir.dataflow import operands, preorder
from ..ir.graph import Node, Shape, Value
from ..ops.checks import broadcast_dim
from ..ops.registry import Builder
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, operator_key
from ..symbolic import polynomial as ix


def produced_by(value: Value | None, *operators: str) -> Node | None:
    """Return the producer of ``value`` if it is one of ``operators``, else None."""
    if value is None or value.producer is None or operator_key(value.producer) not in operators:
        return None
    return value.producer


def static_numbers(value: Value | None) -> np.ndarray | None:
    """Return the elements of a constant if the compiler has read them, else None."""
    if value is None or value.static_value is None or value.static_value.dtype == object:
        return None
    return value.static_value


def is_narrow(weight: Value, bits: int) -> bool:
    """Return whether a weight is computed from as many numbers of fewer than ``bits`` bits."""
    elements = ix.bounds(weight.elements)
    return any(
        value.dtype.bits < bits and ix.bounds(value.elements) == elements for value in preorder([weight], operands)
    )


def is_filled_with(value: Value | None, number: float) -> bool:
    """Return whether every element is known to be ``number``; the sign of a zero counts."""
    array = static_numbers(value)
    if array is None or not array.size:
        return False
    if not bool(np.all(array == number)):
        return False
    return array.dtype.kind in "iub" or number != 0.0 or bool(np.all(np.signbit(array) == np.signbit(number)))


def broadcast(left: Shape, right: Shape) -> Shape | None:
    """Return the shape of an elementwise result; None unless the shapes are known to broadcast."""
    rank = max(len(left), len(right))
    merged = []
    for one, other in zip((1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right):
        size = broadcast_dim(one, other)
        if size is None:
            return None
        merged.append(size)
    return tuple(merged)


def split_constant(node: Node, facts: GraphFacts) -> tuple[Value, Value] | None:
    """Return the varying and the constant operand of a binary node whose result has the shape of the varying one."""
    left, right = node.operand(0), node.operand(1)
    if facts.is_constant(right) and not facts.is_constant(left):
        varying, constant = left, right
    elif facts.is_constant(left) and not facts.is_constant(right):
        varying, constant = right, left
    else:
        return None
    return (varying, constant) if varying.shape == node.output.shape else None


def varies_along(value: Value, rank: int, axis: int) -> bool:
    """Return whether ``value``, broadcast to ``rank`` axes, varies along no axis but ``axis``."""
    first = rank - value.rank
    return first >= 0 and all(size == 1 for at, size in enumerate(value.shape, first) if at != axis)


def view(builder: Builder | GraphBuilder, value: Value, shape: Shape) -> Value:
    """Reshape ``value`` to another shape with as many elements."""
    return value if value.shape == shape else builder.op("View", value, domain="loom", shape=tuple(shape))
