"""Groups from what was decided: their operands, their order, and maps that are written side by side."""

from __future__ import annotations

from ..ir.dataflow import post_order
from ..ir.graph import Value
from ..kernels.groups import Group
from ..kernels.map import MAP
from .groups import Fusion
from .partition import INLINE_LIMIT, Partition


def collect(partition: Partition) -> Fusion:
    """Return the groups in execution order."""
    pending: dict[Value, Group] = {}
    for value in partition.owners():
        assert value.producer is not None
        if value.elements == 0:
            continue  # nothing to compute
        region = partition.region_of.get(value.producer)
        family = partition.anchor_family(region) if region else MAP
        reads, inlined = partition.operands(value)
        pending[value] = Group(0, family.name, region, value, value in partition.constant, inlined, reads)
    ordered = _topological(pending)
    if partition.enabled:
        ordered = _join_outputs(partition, ordered)
    for number, group in enumerate(ordered):
        group.index = number
    for group in ordered:
        for read in group.reads:
            if read.producer is not None and group.output.producer is not None:
                partition.refuse(read.producer, group.nodes[0], "both need a kernel of their own")
    materialised = {value: group for group in ordered for value in group.outputs}
    return Fusion(ordered, materialised, list(partition.reasons.values()))


def _topological(groups: dict[Value, Group]) -> list[Group]:
    """Sort groups so that every value is written before it is read, otherwise by the order of their outputs."""
    written = post_order(groups, lambda value: [read for read in groups[value].reads if read in groups])
    return [groups[value] for value in written]


def _join_outputs(partition: Partition, ordered: list[Group]) -> list[Group]:
    """Join maps that write outputs of the model, of one shape and from a common operand, into one kernel.

    Caches of keys and values are such pairs.  Only outputs qualify: they have memory of their own and ONNX's layout, so
    that writing them together loses nothing.
    """
    place: dict[Value, int] = {group.output: number for number, group in enumerate(ordered)}
    open_groups: list[Group] = []
    gone: set[int] = set()
    for number, group in enumerate(ordered):
        if group.region or group.constant or group.output not in partition.outputs:
            continue
        first = next((other for other in open_groups if _may_join(partition, other, group, place)), None)
        if first is None:
            open_groups.append(group)
            continue
        first.also.append(group.output)
        first.reads = list(dict.fromkeys([*first.reads, *group.reads]))
        first.inlined = sorted({*first.inlined, *group.inlined}, key=partition.rank.__getitem__)
        gone.add(number)
    return [group for number, group in enumerate(ordered) if number not in gone]


def _may_join(partition: Partition, first: Group, group: Group, place: dict[Value, int]) -> bool:
    output = group.output
    if first.output.shape != output.shape or first.output.dtype is not output.dtype:
        return False
    if not any(not value.is_constant for value in set(first.reads) & set(group.reads)):
        return False
    if any(place.get(value, -1) >= place[first.output] for value in group.reads):
        return False
    bound = len({*first.reads, *group.reads}) + len(first.outputs) + 1
    return bound <= partition.max_operands and len({*first.inlined, *group.inlined}) <= INLINE_LIMIT
