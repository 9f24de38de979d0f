"""Values that must stay float32: what decides, what is counted, and what becomes an integer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from ...runtime.plan.dtypes import FLOAT32
from ...runtime.plan.facts import PLAIN, ValueFacts
from ...runtime.plan.record import record
from ..fusion import constant_values
from ..ir.dataflow import operands, reachable
from ..ir.graph import Graph, Value
from ..kernels.family import family_of
from ..ops.registry import registry

#: Reason of values that control flow, sizes or selections depend on
CONTROL = "a size, a choice of elements or a condition is computed from it"
_EXACT = "positions and integers are exact"


@record(slots=False)
class InterfaceConstraints:
    """Precision constraints that other stages of a program impose, by names of inputs and outputs."""

    inputs: Mapping[str, ValueFacts] = field(default_factory=dict)
    control: frozenset[str] = frozenset()  #: outputs that decisions depend on
    exact: frozenset[str] = frozenset()  #: outputs that become integers
    widenable: frozenset[str] = frozenset()  #: outputs that are declared float16 and may be stored as float32
    added: frozenset[str] = frozenset()  #: outputs with which a model of halves computes element by element

    def of_input(self, value: Value) -> ValueFacts:
        """Return what is known of an input of the graph."""
        return self.inputs.get(value.name, PLAIN)

    def of_windows(self, wholes: Mapping[str, str]) -> InterfaceConstraints:
        """Return the constraints of a graph that has windows in place of ``wholes``: they hold of each."""

        def windows(names: frozenset[str]) -> frozenset[str]:
            return names.union(name for name, whole in wholes.items() if whole in names)

        inputs = {name: self.inputs[whole] for name, whole in wholes.items() if whole in self.inputs}
        return replace(
            self,
            inputs={**self.inputs, **inputs},
            control=windows(self.control),
            exact=windows(self.exact),
            added=windows(self.added),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": {name: str(facts) for name, facts in sorted(self.inputs.items()) if facts != PLAIN},
            "control": sorted(self.control),
            "exact": sorted(self.exact),
            "widenable": sorted(self.widenable),
            "added": sorted(self.added),
        }


@record(slots=False)
class ExactSet:
    """The values of a graph that float16 may not hold, whatever their magnitude."""

    integral: frozenset[Value]  #: computed from integers alone: positions and masks
    exact: frozenset[Value]  #: those, and what becomes a wide integer
    control: frozenset[Value]  #: what decisions of other stages are computed from

    @classmethod
    def of(cls, graph: Graph, interface: InterfaceConstraints) -> ExactSet:
        """Find them in a sorted graph."""
        outputs = list(zip(graph.output_names, graph.outputs))
        integral = _integral(graph, [value for value in graph.inputs if interface.of_input(value).is_integral])
        exact = integral | _becoming_integers(graph, [value for name, value in outputs if name in interface.exact])
        control = reachable((value for name, value in outputs if name in interface.control), operands)
        return cls(frozenset(integral), frozenset(exact), frozenset(control))

    def reason(self, value: Value) -> str | None:
        """Return why ``value`` stays float32, None if it is in no set."""
        if value in self.exact:
            return _EXACT
        return CONTROL if value in self.control else None


def _integral(graph: Graph, inputs: Iterable[Value]) -> set[Value]:
    """Return what is computed from integers of the inputs and constants alone, element by element.

    ``inputs`` are floats that are such values.  What integers look up in a table of floats is ordinary data.
    """
    constant = constant_values(graph)
    integral = {*(value for value in graph.inputs if not value.dtype.is_float), *inputs}
    for node in graph.nodes:
        definition, family = registry.of(node), family_of(node)
        if not definition.is_map and not (family is not None and family.keeps_positions):
            continue
        data = definition.data_inputs(node)
        if node.outputs[0] in constant or any(value not in integral for value in data if value not in constant):
            continue
        if definition.gather is None or not any(value in constant and value.dtype.is_float for value in data):
            integral.update(node.outputs)
    return integral


def _becoming_integers(graph: Graph, outputs: Iterable[Value]) -> set[Value]:
    """Return the float32 values that become wide integers by arithmetic on single elements; ``outputs`` do so later."""
    values = set(outputs)
    for node in reversed(graph.nodes):
        becomes = node.op == "Cast" and node.output.dtype.is_integer and node.output.dtype.bits >= 32
        if becomes or (registry.of(node).is_map and any(value in values for value in node.outputs)):
            values.update(value for value in node.inputs if value is not None and value.dtype is FLOAT32)
    return values
