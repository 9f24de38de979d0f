"""Operators that are kernels of a family: the rows of operands that a row of their result is computed of.

A rule gives, for an axis of the result, the operands that have the same rows along an axis of theirs; the result needs
all of the others.  None: a row of the result depends on more than its own.  Products, convolutions and reductions have
their rules in :mod:`~..passes.row_axes`; an operator without a rule mixes rows, as far as is known here.
"""

from __future__ import annotations

from collections.abc import Callable

from ..ir.graph import Node, Value
from ..passes.row_axes import operand_rows
from ..rewriting.rules import operator_key

#: The axis of each operand that has rows of its own
OperandAxes = dict[Value, int]


def kernel_rows(node: Node, axis: int) -> OperandAxes | None:
    """Return the axes of the operands with a row for each row along ``axis`` of the result; None if rows mix."""
    rule = _RULES.get(operator_key(node))
    if rule is not None:
        return rule(node, axis)
    rows = operand_rows(node, axis)
    if rows is None or any(each.scale != 1 for each in rows.values()):
        return None
    return {value: each.axis for value, each in rows.items()}


def _images(node: Node, axis: int) -> OperandAxes | None:
    return {node.operand(0): 0} if axis == 0 else None


def _planes(node: Node, axis: int) -> OperandAxes | None:
    """Return images, or channels of each."""
    return {node.operand(0): axis} if axis < 2 else None


def _extremum(node: Node, axis: int) -> OperandAxes | None:
    reduced = node.attributes.axis
    if not node.attributes.keepdims:
        return {node.operand(0): axis + (axis >= reduced)}
    return None if axis == reduced else {node.operand(0): axis}


def _along_other(node: Node, axis: int) -> OperandAxes | None:
    """Return the lines along the axis of the operator, each of which is computed on its own."""
    return None if axis == node.attributes.axis else {node.operand(0): axis}


def _merged(node: Node, axis: int) -> OperandAxes | None:
    keys, order, key_axis = node.operand(0), node.operand(1), node.attributes.key_axis
    of_keys = axis if key_axis is None else axis + (axis >= key_axis)
    return None if of_keys == node.attributes.axis else {keys: of_keys, order: axis}


def _scattered(node: Node, axis: int) -> OperandAxes | None:
    """Return the lines of all operands: elements of one go to one of the result.

    Tuples of indices send whole parts of the axes behind those that they address, to the same places for all rows.
    """
    data, indices, updates = (node.operand(position) for position in range(3))
    if node.attributes.axis is not None:
        return None if axis == node.attributes.axis else dict.fromkeys((data, indices, updates), axis)
    addressed = indices.shape[-1]
    if not isinstance(addressed, int) or axis < addressed:
        return None
    behind = axis - addressed + indices.rank - 1
    return {data: axis, updates: behind} if data is not updates or behind == axis else None


def _linear_attention(node: Node, axis: int) -> OperandAxes | None:
    """Return the sequences: each has a state of its own."""
    return {value: 0 for value in node.inputs if value is not None} if axis == 0 else None


def _recurrent(node: Node, axis: int) -> OperandAxes | None:
    """Return the sequences of the layer: of gates [directions, steps, batch, ...], lengths [batch] and states."""
    if axis != 2:
        return None
    axes = ((0, 2), (2, 0), (3, 1), (4, 1))
    inputs = [*node.inputs, *[None] * 5]
    return {value: at for position, at in axes if (value := inputs[position]) is not None}


_RULES: dict[str, Callable[[Node, int], OperandAxes | None]] = {
    "loom.ArgReduce": _extremum,
    "loom.ConvolutionTranspose": _images,
    "loom.Cumulate": _along_other,
    "loom.LinearAttention": _linear_attention,
    "loom.MergeRuns": _merged,
    "loom.Pool": _planes,
    "loom.Recurrent": _recurrent,
    "loom.Scatter": _scattered,
    "loom.TopIndices": _along_other,
    "loom.TreeLeaves": _images,
}
