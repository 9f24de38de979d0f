"""Ranges of tensors, found by the kernels that store the tensors, in place of kernels that read them again.

This follows the choice of kernels, as the number of parts is that of their workgroups or threads: kernels that read the
ranges are built again.
"""

from __future__ import annotations

from ..fusion import Fusion
from ..ir.graph import Value
from ..kernels.family import family_named
from ..kernels.groups import Group
from ..ops.internal.ranges import PartialRangeAttributes
from ..ops.registry import registry
from ..rewriting.rules import operator_key
from ..symbolic import polynomial as ix
from ..target import Target
from .kernel_ranges import parts_of, why_not, with_range
from .kernel_table import KernelTable


def store_ranges(fusion: Fusion, kernels: KernelTable, target: Target) -> list[Group]:
    """Let kernels find the ranges of what they store; return the groups that are gone."""
    gone: dict[Value, Group] = {}
    for group in fusion.groups:
        producer = _producer(fusion, group)
        if producer is None:
            continue
        built = kernels[producer.output].built
        reason = why_not(built.spec, producer.output, target)
        if reason is not None:
            fusion.reasons.append((producer.nodes[-1], group.nodes[-1], reason))
            continue
        ends, parts = group.output, parts_of(built.spec, target)
        node = group.nodes[-1]
        node.attributes = PartialRangeAttributes(parts)
        ends.shape = (ix.multiply(parts, 2),)
        kernels[producer.output].built = with_range(built, ends, target)
        producer.also, producer.ranges = [*producer.also, ends], [node]
        fusion.materialised[ends] = producer
        fusion.reasons = [reason for reason in fusion.reasons if node is not reason[1]]
        kernels.remove(ends)
        gone[ends] = group
    fusion.groups = [group for group in fusion.groups if group.output not in gone]
    kernels.build(group for group in fusion.groups if not gone.keys().isdisjoint(group.reads))
    return list(gone.values())


def _producer(fusion: Fusion, group: Group) -> Group | None:
    """Return the group that stores the tensor whose range ``group`` finds, if its kernel can find it.

    Between them may be views of the whole tensor, which have its range.
    """
    if group.constant or operator_key(group.nodes[-1]) != "loom.PartialRange":
        return None
    value = group.nodes[-1].operand(0)
    while value not in fusion.materialised and value.producer is not None:
        node = value.producer
        if registry.of(node).store_map is None or node.operand(0).elements != value.elements:
            return None
        value = node.operand(0)
    producer = fusion.materialised.get(value)
    if producer is None or producer.constant or producer.output is not value or producer.updates or producer.ranges:
        return None
    return producer if family_named(producer.family).stores_once else None
