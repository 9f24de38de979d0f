"""Outputs that begin a run as an input, of which the run writes a part: caches of keys and values, in place."""

from __future__ import annotations

from ..fusion import Fusion
from ..ir.graph import Graph, Node, Value
from ..ops.registry import registry
from ..symbolic import polynomial as ix
from ..symbolic.lanes import LANES


def declare_states(graph: Graph, fusion: Fusion) -> int:
    """Let groups that update inputs write the new elements alone; return the number of such results."""
    count, inputs, outputs = 0, set(graph.inputs), set(graph.outputs)
    for group in fusion.groups:
        if group.region is not None or group.constant:
            continue
        updates = [_update(inputs, outputs, value) for value in group.outputs]
        new = {node.operand(1).shape for node in updates if node is not None}
        if None not in updates and len(new) == 1:
            group.updates = [node for node in updates if node is not None]
            count += len(group.updates)
    return count


def _update(inputs: set[Value], outputs: set[Value], value: Value) -> Node | None:
    """Return the node that updates an input to give ``value``, an output, if it can do so in the input's memory.

    Nothing else may read the input, the two must be stored alike, and a thread must own whole vectors of the update.
    """
    node = value.producer
    if node is None or registry.of(node).update is None or value not in outputs:
        return None
    old, new = node.operand(0), node.operand(1)
    alike = (old.shape, old.dtype, old.layout) == (value.shape, value.dtype, value.layout)
    is_own = old in inputs and old not in outputs and len(old.uses) == 1
    innermost = value.layout.order[-1] == value.rank - 1 and not (value.layout.padding or value.layout.blocks)
    size = new.shape[-1]
    whole = innermost and size == value.shape[-1] and isinstance(size, int) and size % LANES == 0
    return node if alike and is_own and whole and ix.bounds(new.elements)[1] > 0 else None
