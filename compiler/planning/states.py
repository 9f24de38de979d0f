"""Outputs that begin a run as an input, of which the run writes a part: caches of keys and values, in place.

A group of their own writes what is new, or the one that reads the caches, if its kernel can do both.
"""

from __future__ import annotations

from ..compilation import Compilation
from ..fusion import Fusion
from ..ir.graph import Graph, Node, Value
from ..kernels.context import GroupContext
from ..kernels.family import family_named
from ..kernels.groups import Group
from ..ops.registry import registry
from ..symbolic import polynomial as ix
from ..symbolic.lanes import LANES


def declare_states(graph: Graph, fusion: Fusion, compilation: Compilation) -> int:
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
    for group in [group for group in fusion.groups if group.updates]:
        reader = _reader(fusion, group, compilation)
        if reader is not None:
            _join(fusion, group, reader)
    return count


def _reader(fusion: Fusion, group: Group, compilation: Compilation) -> Group | None:
    """Return the only group that reads the results of ``group``, if its kernel can write them as well."""
    outputs = set(group.outputs)
    readers = [other for other in fusion.groups if outputs & set(other.reads)]
    if len(readers) != 1 or not outputs <= set(readers[0].reads) or readers[0].also:
        return None
    (reader,) = readers
    buffers = len(_reads_of_both(group, reader)) + len(group.outputs) + 1
    if buffers > compilation.target.limit("max-storage-buffers-per-shader-stage"):
        return None
    context = GroupContext(reader, fusion.materialised, compilation)
    return reader if family_named(reader.family).may_update(context, group.updates) else None


def _reads_of_both(group: Group, reader: Group) -> list[Value]:
    """Return what a kernel loads that reads the results of ``group`` where it writes them."""
    gone = {*group.outputs, *(node.operand(0) for node in group.updates)}
    return [value for value in dict.fromkeys([*reader.reads, *group.reads]) if value not in gone]


def _join(fusion: Fusion, group: Group, reader: Group) -> None:
    """Let ``reader`` write the results of ``group``."""
    reader.reads = _reads_of_both(group, reader)
    reader.inlined = list(dict.fromkeys([*group.inlined, *reader.inlined]))
    reader.also, reader.updates = group.outputs, group.updates
    fusion.materialised.update(dict.fromkeys(group.outputs, reader))
    fusion.groups.remove(group)


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
