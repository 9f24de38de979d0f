"""Common subexpression elimination: equal operators on equal operands are computed once.

One walk in topological order: operands are already representatives of their class when a node is looked at, so the key
of a node is its operator, its attributes and the identities of its operands.  The first node of a class stays, with the
origins of all.
"""

from __future__ import annotations

from collections.abc import Hashable

from ..ir.graph import Graph, Node, Value
from ..ir.origins import merge_origins
from ..rewriting.rules import operator_key

#: operators whose operands may change places without changing a bit of the result
_COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal"})


def eliminate_common_subexpressions(graph: Graph) -> int:
    """Merge equal nodes and equal constants; return how many were replaced."""
    merged = _merge_constants(graph)
    outputs = {id(value) for value in graph.outputs}
    first: dict[Hashable, Node] = {}
    members: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        key = _key(node)
        if key is None:
            continue
        representative = first.setdefault(key, node)
        if representative is node:
            continue
        # Two outputs of the model stay two tensors.
        if any(id(old) in outputs and id(new) in outputs for old, new in zip(node.outputs, representative.outputs)):
            continue
        for old, new in zip(node.outputs, representative.outputs):
            graph.replace_uses(old, new)
            new.name = new.name or old.name
            if new.storage is not old.storage:  # one of them is no tensor of the file, and stays as it is computed
                new.storage = None
            if id(old) in outputs:
                outputs.add(id(new))
        members.setdefault(representative, [representative]).append(node)
    for representative, nodes in members.items():
        representative.origins = merge_origins(nodes)
        merged += len(nodes) - 1
    if merged:
        graph.remove_dead()
        graph.sort()
    return merged


def _key(node: Node) -> Hashable | None:
    """Return a key that only nodes with equal results share; None where equality cannot be decided."""
    if node.blocks or node.op.startswith("Random") or node.op in ("Multinomial", "Bernoulli"):
        return None
    try:
        hash(node.attributes)
    except TypeError:
        return None
    operands = [-1 if value is None else value.id for value in node.inputs]
    if operator_key(node) in _COMMUTATIVE:
        operands.sort()
    # The text tells 0.0 from -0.0 and 1 from True, which compare equal.
    return operator_key(node), node.attributes, repr(node.attributes), tuple(operands), len(node.outputs)


def _merge_constants(graph: Graph) -> int:
    """Let readers of equal constants read one.  Elements are compared where they are known, sources otherwise."""
    first: dict[Hashable, Value] = {}
    merged = 0
    outputs = {id(value) for value in graph.outputs}
    for value in graph.constants:
        content: Hashable = id(value.constant)
        if value.static_value is not None and value.static_value.dtype != object:
            content = value.static_value.tobytes()
        representative = first.setdefault((value.dtype.name, value.shape, content), value)
        if representative is not value and id(value) not in outputs:
            representative.name = representative.name or value.name
            graph.replace_uses(value, representative)
            merged += 1
    return merged
