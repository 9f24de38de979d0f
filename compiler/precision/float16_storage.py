"""Half precision as storage: which values of a float32 model lie in memory as float16.

Arithmetic stays in f32: kernels convert where they load and store, sums and normalisations never leave registers.  So
this is a pass over fused groups with layouts, and it changes nothing but the ``dtype`` of values that exist in memory.
Model inputs and outputs keep their types.  A weight is converted once, when weights are made.

A value stays float32, with a reason in the plan's notes, if

* it is a vector of weights (a bias, a scale): nothing is gained;
* it is a position, computed from integers alone, or an integer is computed from it: every unit counts;
* a weight's elements, or what a run was seen to reach, lie beyond float16, or all of them below its normal numbers;
* a constant beyond the range may reach it (:mod:`.overflow_analysis`), whatever that run has seen;
* a decision of the program that the graph is a stage of is computed from it (:mod:`.control_dependence`);
* it is no tensor of the file, but a sum, a norm or a factor on the way to one;
* the kernel that computes it stores no half words, or would have to be a slower one.

Values are named by the ONNX node whose result they are, so that what was seen for one input shape counts for others.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...runtime.plan.dtypes import (
    FLOAT16,
    FLOAT16_LARGEST,
    FLOAT16_SMALLEST_NORMAL,
    FLOAT32,
    DType,
    fits_float16,
)
from ...runtime.plan.errors import ShaderloomError
from ...runtime.plan.facts import PrecisionFacts
from ...runtime.plan.notes import KeptValue, PrecisionNotes
from ..compilation import Compilation
from ..fusion import Fusion, constant_values
from ..ir.dataflow import operands, reachable
from ..ir.graph import Graph, Value
from ..kernels.context import GroupContext
from ..kernels.family import Overflow, family_named, family_of
from ..kernels.groups import Group
from ..kernels.signature import signature
from ..ops.onnx.cast import CastAttributes
from ..ops.registry import registry
from ..reference.interpreter import run_graph
from ..symbolic import polynomial as ix
from .constant_ranges import extremes_of, weight_extremes
from .overflow_analysis import NOWHERE, far_values

#: weights of one axis and no more elements are vectors
_VECTOR = 1 << 16

#: why what decides is float32
DECIDING = "a size, a choice of elements or a condition is computed from it"


@dataclass(frozen=True, slots=True)
class HalfStorage:
    """What :func:`store_halves` did."""

    facts: PrecisionFacts
    notes: PrecisionNotes


@dataclass(frozen=True)
class InterfaceConstraints:
    """What a stage of a program must know of the others, by the names of its inputs and outputs."""

    control: frozenset[str] = frozenset()  #: outputs that decisions depend on
    exact: frozenset[str] = frozenset()  #: outputs that become integers
    integral: frozenset[str] = frozenset()  #: inputs that were computed from integers
    overflowing: Mapping[str, Overflow] = field(
        default_factory=dict
    )  #: inputs that constants beyond the range may reach

    def to_json(self) -> dict[str, Any]:
        return {
            "control": sorted(self.control),
            "exact": sorted(self.exact),
            "integral": sorted(self.integral),
            "overflowing": {name: list(reach) for name, reach in sorted(self.overflowing.items())},
        }


def store_halves(
    graph: Graph,
    fusion: Fusion,
    compilation: Compilation,
    interface: InterfaceConstraints | None = None,
) -> HalfStorage:
    """Turn float32 values in memory into float16 where they fit.

    The option ``reached`` has the largest magnitude of values by :func:`name_of`, at least of those that do not fit.
    """
    return _Narrowing(graph, fusion, compilation, interface).run()


def name_of(value: Value) -> str:
    """The ONNX node whose result a value is."""
    origin = value.producer.origin if value.producer else None
    return str(origin or "")


def measure_on_host(graph: Graph, fusion: Fusion, feeds: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Run a float32 graph with numpy and give the largest finite magnitude of its values in memory, by node."""
    found: dict[str, float] = {}
    wanted = {group.output for group in fusion.groups if not group.constant and group.output.dtype is FLOAT32}

    def look(value: Value, array: np.ndarray) -> None:
        if value in wanted:
            node = name_of(value)
            found[node] = max(found.get(node, 0.0), extremes_of(array).magnitude)

    run_graph(graph, feeds, on_value=look)
    return found


class KernelChoice:
    """Whether the kernels of groups stay the same with results of other types."""

    def __init__(self, graph: Graph, fusion: Fusion, compilation: Compilation) -> None:
        self.fusion, self.compilation = fusion, compilation
        self.symbols = sorted({name for value in graph.inputs for dim in value.shape for name in ix.variables(dim)})
        self._known: dict[Hashable, bool] = {}

    def is_same(self, group: Group, dtype: DType) -> bool:
        """Whether the group, whose result is float32, has the same kernel with a result of ``dtype``."""
        own = signature(group, self.fusion.materialised)
        key = None if own is None else (own.key, dtype.name)
        found = self._known.get(key)
        if found is None:
            found = self._ask(group, dtype)
            if key is not None:
                self._known[key] = found
        return found

    def _ask(self, group: Group, dtype: DType) -> bool:
        context = GroupContext(group, self.fusion.materialised, self.compilation, symbols=self.symbols)
        try:
            return family_named(group.family).can_store(context, dtype)
        except ShaderloomError:  # a limit, which the planner reports
            return False


class _Narrowing:
    def __init__(
        self,
        graph: Graph,
        fusion: Fusion,
        compilation: Compilation,
        interface: InterfaceConstraints | None,
    ) -> None:
        self.graph, self.fusion = graph, fusion
        self.reached = dict(compilation.options.reached)
        self.choice = KernelChoice(graph, fusion, compilation)
        self.outputs = set(graph.outputs)
        known = interface or InterfaceConstraints()
        named = list(zip(graph.output_names, graph.outputs))
        self.far = far_values(
            graph,
            FLOAT16_LARGEST,
            {value: known.overflowing[value.name] for value in graph.inputs if value.name in known.overflowing},
        )
        self.positions = _positions(graph, known.integral)
        self.exact = self.positions | _behind_integers(graph, [value for name, value in named if name in known.exact])
        self.deciding = reachable((value for name, value in named if name in known.control), operands)
        self.kept: dict[Value, KeptValue] = {}
        self.converted: list[Group] = []

    def run(self) -> HalfStorage:
        running = [group for group in self.fusion.groups if not group.constant]
        weights = dict.fromkeys(value for group in running for value in group.reads if self._is_weight(value))
        halves = weight_halves = 0
        for value in weights:
            if value.dtype is not FLOAT32 or value in self.outputs:
                continue
            why = self._why_weight_stays(value)
            if why is not None:
                self._keep(value, why)
                continue
            weight_halves += 1
            if value.is_constant:
                self._convert(value, running)
            else:
                value.dtype = FLOAT16
        relying: dict[str, None] = {}
        for group in running:
            value = group.output
            if value.dtype is not FLOAT32 or value in self.outputs:
                continue
            why = self._why_activation_stays(group)
            if why is not None:
                self._keep(value, why)
                continue
            value.dtype = FLOAT16
            halves += 1
            relying[name_of(value)] = None
        self._finish()
        named = list(zip(self.graph.output_names, self.graph.outputs))
        return HalfStorage(
            PrecisionFacts(
                measured=tuple(sorted(relying)),
                positions=tuple(name for name, value in named if value in self.positions and value.dtype.is_float),
                overflowing={name: self.far[value] for name, value in named if value in self.far},
            ),
            PrecisionNotes(FLOAT16.name, halves, weight_halves, tuple(self.kept.values())),
        )

    def _is_weight(self, value: Value) -> bool:
        group = self.fusion.materialised.get(value)
        return value.is_constant or (group is not None and group.constant)

    def _keep(self, value: Value, why: str) -> None:
        self.kept[value] = KeptValue(name_of(value), value.name, why)

    # -- reasons -------------------------------------------------------------------------------------------------

    def _why_weight_stays(self, value: Value) -> str | None:
        if sum(size != 1 for size in value.shape) <= 1 and ix.bounds(value.elements)[1] <= _VECTOR:
            return "a vector of weights: nothing is gained"
        if value in self.exact:
            return "positions and integers are exact"
        if value in self.deciding:
            return DECIDING
        group = self.fusion.materialised.get(value)
        if group is not None and not self._stores_halves(group):
            return f"its kernel ({group.family}) stores no half words"
        magnitude = weight_extremes(value).magnitude
        if magnitude > FLOAT16_LARGEST:
            return f"a weight reaches {magnitude:.3g}, float16 ends at {FLOAT16_LARGEST:.0f}"
        if 0.0 < magnitude < FLOAT16_SMALLEST_NORMAL:
            return f"no weight exceeds {magnitude:.3g}: float16 has few bits left there"
        return None

    def _why_activation_stays(self, group: Group) -> str | None:
        value = group.output
        if not _is_tensor(value):
            return "it is no tensor of the file, but an intermediate result of one operator"
        if value in self.exact:
            return "positions and integers are exact"
        if value in self.deciding:
            return DECIDING
        exact = group.region and family_named(group.family).why_exact(group.region.anchor)
        if exact:
            return exact
        if self.far.get(value, NOWHERE) != NOWHERE:
            return f"a constant beyond {FLOAT16_LARGEST:.0f} may reach it"
        reached = self.reached.get(name_of(value), 0.0)
        if not fits_float16(reached):
            if reached < 1.0:
                return f"it was seen to reach {reached:.2g} only: float16 has few bits left there"
            return f"it was seen to reach {reached:.2g}, float16 ends at {FLOAT16_LARGEST:.0f}"
        if not self._stores_halves(group):
            return f"its kernel ({group.family}) stores no half words, or would be slower"
        return None

    def _stores_halves(self, group: Group) -> bool:
        """Whether the group's kernel is the same one with a float16 result."""
        return family_named(group.family).stores_halves and self.choice.is_same(group, FLOAT16)

    # -- weights that are constants of the model -----------------------------------------------------------------

    def _convert(self, value: Value, running: Sequence[Group]) -> None:
        """Let the run read a converted copy of a constant: a group of its own, which runs once."""
        readers = [group for group in running if value in group.reads]
        origins = next((node.origins for group in readers for node in group.nodes if value in node.inputs), ())
        attributes = CastAttributes(to=FLOAT16.onnx)
        node = self.graph.add_node(
            "Cast", [value], attributes, [(value.name, FLOAT16, value.shape)], domain="", origins=origins
        )
        copy = node.output
        copy.layout = value.layout
        for group in readers:
            for reader in group.nodes:
                static = registry.of(reader).static_inputs
                for position, operand in enumerate(reader.inputs):
                    if operand is value and position not in static:
                        self.graph.set_input(reader, position, copy)
            group.reads[group.reads.index(value)] = copy
        made = Group(0, "map", None, copy, True, [], [value])
        self.fusion.materialised[copy] = made
        self.converted.append(made)

    def _finish(self) -> None:
        """Conversions run before everything else."""
        if self.converted:
            self.fusion.groups[:0] = self.converted
            for number, group in enumerate(self.fusion.groups):
                group.index = number
            self.graph.sort()


def _is_tensor(value: Value) -> bool:
    """Return whether ``value`` is a tensor that the file names, or only moves elements of such tensors."""
    if value.name or value.producer is None:
        return True
    definition = registry.of(value.producer)
    return definition.is_view and all(map(_is_tensor, definition.data_inputs(value.producer)))


def _positions(graph: Graph, given: Collection[str]) -> set[Value]:
    """Values that are computed from integers of the input and constants alone, element by element: positions, masks.

    ``given`` names inputs that are such values.  What integers look up in a table of floats is ordinary data.
    """
    constant = constant_values(graph)
    found = {value for value in graph.inputs if not value.dtype.is_float or value.name in given}
    for node in graph.nodes:
        definition = registry.of(node)
        operands = [value for value in definition.data_inputs(node) if value not in constant]
        family = family_of(node)
        if not definition.is_map and not (family is not None and family.keeps_positions):
            continue
        if node.outputs[0] in constant or any(value not in found for value in operands):
            continue
        table = definition.gather is not None and any(
            value in constant and value.dtype.is_float for value in definition.data_inputs(node)
        )
        if not table:
            found.update(node.outputs)
    return found


def _behind_integers(graph: Graph, becoming: Iterable[Value]) -> set[Value]:
    """Float values that become wide integers by arithmetic on single elements; ``becoming`` do so later."""
    found = set(becoming)
    for node in reversed(graph.nodes):
        becomes = node.op == "Cast" and node.output.dtype.is_integer and node.output.dtype.bits >= 32
        if becomes or (registry.of(node).is_map and any(value in found for value in node.outputs)):
            found.update(value for value in node.inputs if value is not None and value.dtype is FLOAT32)
    return found
