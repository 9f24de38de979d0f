"""Rows of results and of operands: of which part of its operands a part of a node's result is computed.

A *row axis* is an axis of a result such that an element along it depends on elements at the same place along one axis
of an operand.  It is followed through arithmetic, products, reductions and changes of shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from ...runtime.plan.dtypes import from_onnx
from ...runtime.plan.record import record
from ..ir.graph import Node, Value
from ..ops.onnx.views import permutation
from ..ops.registry import registry
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import operator_key
from ..symbolic import polynomial as ix
from .patterns import view


@record
class RowAxis:
    """The axis of an operand along which ``scale`` elements belong to each row of a result.

    With ``blocks`` rows may begin within an element, whose block they share.  ``offset`` is the row of the result that
    is the operand's first; None where a run decides.
    """

    axis: int
    scale: Fraction = Fraction(1)
    blocks: bool = False
    offset: int | None = 0


RowAxes = dict[Value, RowAxis]


def operand_rows(node: Node, axis: int) -> RowAxes | None:
    """Return the operands with rows of their own for each row along ``axis`` of the result; the result needs all of
    the others.  None if a row of the result depends on more rows than its own, or no rule says that it does not.
    """
    if len(node.outputs) != 1:
        return None
    if registry.of(node).is_elementwise:
        return _elementwise(node, axis)
    rule = _RULES.get(operator_key(node))
    return None if rule is None else rule(node, axis)


def is_join(node: Node, axis: int) -> bool:
    """Return whether a node joins tensors along an axis of its result."""
    return operator_key(node) == "Concat" and node.attributes.axis % node.output.rank == axis


def rows_read(node: Node, axis: int) -> RowAxes | None:
    """Return what :func:`operand_rows` does, or the row axes of tensors that are joined along ``axis``; None for one
    that is joined twice.
    """
    if not is_join(node, axis):
        return operand_rows(node, axis)
    rows: RowAxes = {}
    first: ix.Dim = 0
    for position in range(len(node.inputs)):
        operand = node.operand(position)
        if operand in rows:
            return None
        rows[operand] = RowAxis(axis, offset=first if isinstance(first, int) else None)
        first = ix.add(first, operand.shape[axis])
    return rows


def emit_rows(builder: GraphBuilder, node: Node, axis: int, size: ix.Dim, inputs: Sequence[Value | None]) -> Value:
    """Append ``node`` for ``size`` rows along ``axis`` of its result; ``inputs`` are its operands, cut to these."""
    shape = (*node.output.shape[:axis], size, *node.output.shape[axis + 1 :])
    attributes = node.attributes
    key = operator_key(node)
    if key == "loom.View":
        assert inputs[0] is not None, "a view has an operand"
        return view(builder, inputs[0], shape)
    if key == "loom.StridedSlice":
        starts = tuple(0 if at == axis else start for at, start in enumerate(attributes.starts))
        attributes = replace(attributes, starts=starts, sizes=shape)
    elif key == "loom.RepeatBlocks":
        attributes = replace(attributes, size=shape[attributes.axis])
    elif key in ("loom.Broadcast", "loom.Unpack"):
        attributes = replace(attributes, shape=shape)
    return builder.emit(registry.of(node), inputs, attributes)[0]


# -- rules -----------------------------------------------------------------------------------------------------------


def _all(pairs: Sequence[tuple[Value, int]]) -> RowAxes | None:
    """Return the row axes of operands; None for one that would have two."""
    rows: RowAxes = {}
    for value, axis in pairs:
        if rows.setdefault(value, RowAxis(axis)).axis != axis:
            return None
    return rows


def _elementwise(node: Node, axis: int) -> RowAxes | None:
    operands = [(value, axis - node.output.rank + value.rank) for value in node.inputs if value is not None]
    return _all([(value, at) for value, at in operands if at >= 0 and value.shape[at] != 1])


def _product(node: Node, axis: int) -> RowAxes | None:
    left, right = node.operand(0), node.operand(1)
    if left is right:
        return None
    from_end = axis - node.output.rank
    if from_end == -1:
        return {right: RowAxis(right.rank - 1)}
    if from_end == -2:
        return {left: RowAxis(left.rank - 2)}
    batched = [(value, from_end + value.rank) for value in (left, right)]
    return _all([(value, at) for value, at in batched if at >= 0 and value.shape[at] != 1])


def _reduction(node: Node, axis: int) -> RowAxes | None:
    attributes, value = node.attributes, node.operand(0)
    left = [at for at in range(value.rank) if attributes.keepdims or at not in attributes.axes]
    return None if left[axis] in attributes.axes else {value: RowAxis(left[axis])}


def _convolution(node: Node, axis: int) -> RowAxes | None:
    """Images of the operand, and output channels of the weight."""
    if axis == 0:
        return {node.operand(0): RowAxis(0)}
    return {node.operand(1): RowAxis(0)} if axis == 1 and node.attributes.group == 1 else None


def _transposed(node: Node, axis: int) -> RowAxes:
    return {node.operand(0): RowAxis(permutation(node)[axis])}


def _reshaped(node: Node, axis: int) -> RowAxes | None:
    value, result = node.operand(0), node.output
    before, rows = ix.product(result.shape[:axis]), result.shape[axis]
    for at, size in enumerate(value.shape):
        if ix.product(value.shape[:at]) != before:
            continue
        scale = _ratio(size, rows)
        if scale is not None:
            return {value: RowAxis(at, scale)}
    return None


def _ratio(size: ix.Dim, other: ix.Dim) -> Fraction | None:
    """Return the quotient of two sizes of several elements; None where it depends on declared dimensions."""
    if size == other:
        return Fraction(1)
    if isinstance(size, int) and isinstance(other, int):
        return Fraction(size, other) if size > 1 and other > 1 else None
    for numerator, denominator in ((size, other), (other, size)):
        quotient = ix.divide(numerator, denominator) if isinstance(denominator, ix.Index) else None
        if isinstance(quotient, int) and quotient > 0:
            return Fraction(quotient) if numerator is size else Fraction(1, quotient)
    return None


def _broadcast(node: Node, axis: int) -> RowAxes:
    value = node.operand(0)
    at = axis - node.output.rank + value.rank
    return {value: RowAxis(at)} if at >= 0 and value.shape[at] != 1 else {}


def _part(node: Node, axis: int) -> RowAxes | None:
    attributes, value = node.attributes, node.operand(0)
    whole = attributes.sizes[axis] == value.shape[axis] and attributes.steps[axis] == 1
    return {value: RowAxis(axis)} if whole else None


def _joined(node: Node, axis: int) -> RowAxes | None:
    if is_join(node, axis):
        return None
    return {value: RowAxis(axis) for value in node.inputs if value is not None}


def _gathered(node: Node, axis: int) -> RowAxes | None:
    data, indices = node.operand(0), node.operand(1)
    at = node.attributes.axis % data.rank
    if axis < at:
        return {data: RowAxis(axis)}
    if axis < at + indices.rank:
        return {indices: RowAxis(axis - at)}
    return {data: RowAxis(axis - indices.rank + 1)}


def _repeated(node: Node, axis: int) -> RowAxes:
    if axis != node.attributes.axis:
        return {node.operand(0): RowAxis(axis)}
    return {node.operand(0): RowAxis(axis, Fraction(1, node.attributes.block), blocks=True)}


def _unpacked_bits(node: Node, axis: int) -> RowAxes | None:
    return None if axis == node.output.rank - 1 else {node.operand(0): RowAxis(axis)}


def _unpacked(node: Node, axis: int) -> RowAxes | None:
    """Bytes of the operand, which has one axis, for rows of the outermost axis."""
    if ix.product(node.output.shape[:axis]) != 1:
        return None
    bits = ix.number(ix.product(node.output.shape[axis + 1 :])) * from_onnx(node.attributes.to).width
    return {node.operand(0): RowAxis(0, Fraction(bits, 8))}


#: Rules of operators that are not elementwise
_RULES: dict[str, Callable[[Node, int], RowAxes | None]] = {
    "Concat": _joined,
    "Gather": _gathered,
    "Transpose": _transposed,
    "loom.Broadcast": _broadcast,
    "loom.Convolution": _convolution,
    "loom.MatMul": _product,
    "loom.Reduce": _reduction,
    "loom.RepeatBlocks": _repeated,
    "loom.StridedSlice": _part,
    "loom.Unpack": _unpacked,
    "loom.UnpackBits": _unpacked_bits,
    "loom.View": _reshaped,
}
