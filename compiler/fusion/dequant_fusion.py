"""Weights that stay narrow: dequantised in the kernel that reads them, not once for all.

``Cast(int8 weight) * scale`` depends on constants alone, so it could run once, when weights are made: four times the
memory, and four times what a product reads.  A value like it is *narrow* if it is computed element by element, by
arithmetic as cheap as dequantisation, from constants that together are at least a quarter smaller.  Kernels load the
constants and compute the value in registers.

What narrow values are computed from are their *leaves*: constants of the model, what joins several of them or moves
halves, which is as narrow in memory as they are, and what costs more to compute.
"""

from __future__ import annotations

from collections.abc import Collection

from ...runtime.plan.dtypes import FLOAT16, DType
from ..ir.graph import Graph, Node, Value
from ..ops.registry import Registry, registry
from ..symbolic import polynomial as ix

#: Operators of dequantisation, besides views
ARITHMETIC = frozenset({"Cast", "Add", "Sub", "Mul", "Div", "Neg", "loom.Dequantize"})
#: Nodes that a kernel repeats for each element at most
MOST_NODES = 12


def narrow_values(
    graph: Graph, constant: Collection[Value], operators: Registry = registry, *, converts_halves: bool = True
) -> set[Value]:
    """Return narrow values that run-time nodes read, and the narrow values between them and their leaves.

    Without ``converts_halves`` those whose codes are float16 are none.
    """
    narrow: set[Value] = set()
    for node in graph.nodes:
        if node.outputs[0] in constant:
            continue
        for value in operators.of(node).data_inputs(node):
            if value in constant and value not in narrow:
                inner, leaves = _parts(value, operators)
                if inner and _is_smaller(leaves, value, operators, converts_halves):
                    narrow |= inner
    return narrow


def is_cheap(node: Node, operators: Registry = registry) -> bool:
    """Return whether a kernel may recompute the node's result for each element that it reads."""
    key = f"{node.domain}.{node.op}" if node.domain else node.op
    if node.op == "Relayout" or len(node.outputs) != 1:
        return False
    definition = operators.of(node)
    return key in ARITHMETIC if definition.element is not None else definition.is_view


def _parts(value: Value, operators: Registry) -> tuple[set[Value], set[Value]]:
    """Return the values that a kernel would compute for ``value`` (none if too many), and those that it would load."""
    inner: set[Value] = set()
    leaves: set[Value] = set()
    stack = [value]
    while stack:
        current = stack.pop()
        if current in inner or current in leaves:
            continue
        node = current.producer
        if node is None or not is_cheap(node, operators) or _joins(node, operators) or _moves_halves(node, operators):
            leaves.add(current)
            continue
        inner.add(current)
        if len(inner) > MOST_NODES:
            return set(), leaves
        stack.extend(operators.of(node).data_inputs(node))
    return inner, leaves


def _joins(node: Node, operators: Registry) -> bool:
    """Return whether the node moves elements of several tensors to one, which a kernel chooses in each load."""
    definition = operators.of(node)
    return definition.is_view and len(definition.data_inputs(node)) > 1


def _moves_halves(node: Node, operators: Registry) -> bool:
    """Return whether the node moves halves and repeats none: they are stored once, in the order of the reader."""
    source = _moved(node.output, operators)
    return (
        source.dtype.bits < node.output.dtype.bits
        and ix.bounds(node.output.elements)[1] <= ix.bounds(source.elements)[0]
    )


def _moved(value: Value, operators: Registry) -> Value:
    """Return the tensor of which ``value`` is a view, in whose type memory has the elements of both."""
    while (node := value.producer) is not None and operators.of(node).is_view and not _joins(node, operators):
        (value,) = operators.of(node).data_inputs(node)
    return value


def _bits(value: Value, dtype: DType) -> int:
    """Return the bits of ``value`` with elements of type ``dtype``."""
    size = ix.multiply(value.elements, dtype.bits)
    assert not isinstance(size, ix.Index)  # constants have no dynamic dimensions
    return size


def _width(value: Value, operators: Registry) -> int:
    """Return the bits of an element in memory; of packed words those of a code."""
    node = value.producer
    if node is not None and node.op == "PackCodes":
        bits: int = node.attributes.bits
        return bits
    return _moved(value, operators).dtype.bits


def _is_smaller(leaves: Collection[Value], value: Value, operators: Registry, converts_halves: bool) -> bool:
    """Return whether a kernel that loads ``leaves`` reads less than one that loads ``value``.

    The largest leaf has the codes: its elements must be narrower.  Of leaves of one size that is the narrowest.
    """
    bits = {leaf: _bits(leaf, _moved(leaf, operators).dtype) for leaf in leaves}
    largest = max(leaves, key=lambda leaf: (bits[leaf], -_width(leaf, operators)))
    if _moved(largest, operators).dtype is FLOAT16 and not converts_halves:
        return False
    is_narrower = _width(largest, operators) < value.dtype.bits
    return is_narrower and 4 * sum(bits.values()) <= 3 * _bits(value, value.dtype)
