"""Kernels bind no more tensors than a device allows: some of what they inline is materialised."""

from __future__ import annotations

from collections import deque

from ..ir.graph import Node, Value
from ..symbolic import polynomial as ix
from .partition import Partition


def respect_operand_limit(partition: Partition) -> None:
    """Materialise inlined values until every kernel binds at most ``max_operands`` tensors.

    A kernel that cannot get below the limit is left: the driver reports it with the node's name.
    """
    waiting = deque(partition.owners())
    inlined_by: dict[Node, list[Value]] = {}  #: inlined node -> outputs of kernels that were found to fit
    while waiting:
        owner = waiting.popleft()
        reads, inlined = partition.operands(owner)
        if len(reads) + 1 <= partition.max_operands:
            for node in inlined:
                inlined_by.setdefault(node, []).append(owner)
            continue
        victim = _to_split_off(partition, inlined)
        if victim is None:
            continue
        partition.materialise.add(victim.outputs[0])
        partition.refuse_users(victim, partition.too_many_buffers)
        waiting.extendleft((owner, victim.outputs[0], *inlined_by.pop(victim, ())))


def _to_split_off(partition: Partition, inlined: list[Node]) -> Node | None:
    """Choose the inlined node to compute in a kernel of its own.

    Prefers the node with the most operands that still fit a kernel; if none fits, the first with at least two.
    """
    room = partition.max_operands - 1
    cones: dict[Node, dict[Value, None]] = {}  #: what computing the node loads; more than fits is left out
    best: tuple[int, int, int] | None = None
    chosen: Node | None = None
    too_wide: Node | None = None
    for node in inlined:
        cone: dict[Value, None] = {}
        for value in partition.operators.of(node).data_inputs(node):
            if value.static_value is not None and value.static_value.size <= 1:
                continue
            if value.producer is None or value in partition.materialise:
                cone[value] = None
            else:
                cone.update(cones[value.producer])
            if len(cone) > room:
                break
        cones[node] = cone
        if len(cone) > room:
            too_wide = too_wide or node
        elif len(cone) >= 2:
            score = (len(cone), -ix.bounds(node.outputs[0].elements)[1], partition.rank[node])
            if best is None or score > best:
                best, chosen = score, node
    return chosen or too_wide
