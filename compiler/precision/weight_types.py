"""The types in which kernels read weights: copies of constants in another type, made once before everything else."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.plan.dtypes import DType
from ..fusion import Fusion
from ..ir.graph import Graph, Value
from ..kernels.groups import Group
from ..ops.onnx.cast import CastAttributes
from ..ops.registry import registry
from ..symbolic import polynomial as ix


def is_table(weight: Value, fusion: Fusion) -> bool:
    """Return whether each kernel that reads ``weight`` reads fewer elements than it has."""
    return all(
        group.region is None and ix.bounds(group.output.elements)[1] < ix.bounds(weight.elements)[0]
        for group in fusion.groups
        if weight in group.reads
    )


def convert_constants(graph: Graph, fusion: Fusion, constants: Sequence[Value], dtype: DType) -> None:
    """Let the kernels of a run read copies of ``constants`` that have type ``dtype``."""
    if not constants:
        return
    running = [group for group in fusion.groups if not group.constant]
    fusion.groups[:0] = [_convert(graph, fusion, value, dtype, running) for value in constants]
    for number, group in enumerate(fusion.groups):
        group.index = number
    graph.sort()


def _convert(graph: Graph, fusion: Fusion, value: Value, dtype: DType, running: Sequence[Group]) -> Group:
    """Make ``running`` groups read a copy of a constant; return the group that computes the copy."""
    readers = [group for group in running if value in group.reads]
    origins = next((node.origins for group in readers for node in group.nodes if value in node.inputs), ())
    attributes = CastAttributes(to=dtype.onnx)
    node = graph.add_node("Cast", [value], attributes, [(value.name, dtype, value.shape)], domain="", origins=origins)
    copy = node.output
    copy.layout = value.layout
    for group in readers:
        for reader in group.nodes:
            static = registry.of(reader).static_inputs
            for position, operand in enumerate(reader.inputs):
                if operand is value and position not in static:
                    graph.set_input(reader, position, copy)
        group.reads[group.reads.index(value)] = copy
    conversion = Group(0, "map", None, copy, True, [], [value])
    fusion.materialised[copy] = conversion
    return conversion
