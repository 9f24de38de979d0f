"""What the kernel of a product of few rows with a packed weight computes beside it.

Each of its workgroups reads all activations, so two things cost little: another product of the same activations (a gate
and its partner), and the sum over a row of activations that a normalisation multiplies the results by.
"""

from __future__ import annotations

from ...ir.graph import Node, Value
from ...ops.internal.packed_weights import has_few_rows
from ...ops.registry import registry

#: Elementwise nodes between a sum and the factor of rows that is computed from it
_STEPS = 6


def partners(anchor: Node) -> list[tuple[Node, ...]]:
    """Return sets of nodes that the kernel of ``anchor`` can compute as well, the best first."""
    if not has_few_rows(anchor):
        return []
    other = next((user for user in anchor.operand(0).users if user is not anchor and _alike(user, anchor)), None)
    total = _total_behind(anchor)
    sets = [tuple(node for node in each if node is not None) for each in ((other, total), (other,), (total,))]
    return list(dict.fromkeys(each for each in sets if each))


def _alike(node: Node, anchor: Node) -> bool:
    """Return whether a node is a product like ``anchor``, with another weight."""
    if node.op != anchor.op or node.domain != anchor.domain or node.attributes != anchor.attributes:
        return False
    pairs = [(node.operand(position), anchor.operand(position)) for position in range(4)]
    zero, other = pairs[3]
    return all(one.shape == other.shape and one.dtype is other.dtype for one, other in pairs) and (
        bool(zero.rank) or zero.static_value == other.static_value
    )


def _total_behind(anchor: Node) -> Node | None:
    """Return the sum over rows that a factor of the product's results is computed from, or None."""
    factors = (value for user in anchor.output.users for value in user.inputs if value is not None)
    totals = (row_total(factor, anchor.operand(0)) for factor in factors if factor is not anchor.output)
    return next((total for total in totals if total is not None), None)


def row_total(factor: Value, activations: Value) -> Node | None:
    """Return the sum over the rows of a tensor shaped like ``activations`` that ``factor``, a number for each row, is
    computed from; None if it is anything else."""
    for _ in range(_STEPS):
        node = factor.producer
        if node is None or not factor.rank or factor.shape[-1] != 1:
            return None
        if node.op == "Reduce":
            value, attributes = node.operand(0), node.attributes
            sums_rows = (attributes.kind, attributes.axes, attributes.keepdims) == ("sum", (value.rank - 1,), True)
            return node if sums_rows and value.shape == activations.shape and value.dtype.compute == "f32" else None
        operands = [each for each in node.inputs if each is not None and each.producer is not None]
        if not registry.of(node).is_elementwise or len(operands) != 1:
            return None
        (factor,) = operands
    return None
