"""Inputs and outputs of a plan, and outputs that no kernel computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...runtime.plan.plan import ConstantOutput, OutputAlias, Port
from ..fusion import Fusion
from ..ir.graph import Graph, PortWindow, Value
from ..symbolic.dimensions import serialise
from .sizes import stored_bytes
from .weight_transforms import Weights, source_of


@dataclass
class Outputs:
    """The outputs of a plan: all ports, those known at compile time, and those that equal another buffer."""

    ports: list[Port] = field(default_factory=list)
    constants: list[ConstantOutput] = field(default_factory=list)
    aliases: list[OutputAlias] = field(default_factory=list)


def computed_outputs(graph: Graph, fusion: Fusion) -> dict[Value, str]:
    """Return the values that kernels of the run compute for outputs, each with the first name that it has."""
    outputs: dict[Value, str] = {}
    for value, name in zip(graph.outputs, graph.output_names, strict=True):
        group = fusion.materialised.get(value)
        if value.producer is not None and (value.elements == 0 if group is None else not group.constant):
            outputs.setdefault(value, name)
    return outputs


def port_of(value: Value, name: str) -> Port:
    """Return the port of a value."""
    return Port(name, value.dtype.name, tuple(serialise(dim) for dim in value.shape))


def whole_ports(windows: Mapping[str, PortWindow], values: Iterable[tuple[Value, str]]) -> list[Port]:
    """Return the ports of inputs or outputs of the model for those of a graph with their names, in order."""
    ports: dict[str, Port] = {}
    for value, name in values:
        port, window = port_of(value, name), windows.get(name)
        if window is not None:
            port = replace(port, name=window.whole, shape=tuple(map(serialise, window.shape)))
        ports.setdefault(port.name, port)
    return list(ports.values())


def output_ports(graph: Graph, computed: Mapping[Value, str], weights: Weights) -> Outputs:
    """Return the outputs of the plan of ``graph``; ``computed`` is that of :func:`computed_outputs`."""
    named = list(zip(graph.outputs, graph.output_names, strict=True))
    result = Outputs(whole_ports(graph.windows, named))
    for value, name in named:
        size = serialise(stored_bytes(value))
        if value in computed:
            if computed[value] != name:
                result.aliases.append(OutputAlias(name, f"output:{computed[value]}", size))
        elif value in graph.inputs:
            result.aliases.append(OutputAlias(name, f"input:{value.name}", size))
        elif value.is_constant and (reference := source_of(value)).data is not None:
            result.constants.append(ConstantOutput(name, reference))
        else:
            result.aliases.append(OutputAlias(name, f"weight:{weights.key_of(value)}", size))
    return result
