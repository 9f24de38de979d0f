"""Half precision as storage: which values of a float32 model are float16 in memory.

Arithmetic stays in f32: kernels convert where they load and store, sums and normalisations never leave registers.  So
this is a pass over fused groups with layouts, and it changes nothing but the ``dtype`` of values that exist in memory.
Model inputs and outputs keep their types.  A weight is converted once, when weights are made.

Each value in memory gets a :class:`StorageDecision`.  It stays float32 if

* it is a vector of weights (a bias, a scale): nothing is gained;
* it is no tensor of the file, but a sum, a norm or a factor on the way to one;
* it is in the :class:`~.exact_set.ExactSet`: positions, integers, what control flow depends on;
* its elements (of a weight) or its :class:`~.observed_range.ObservedRange` lie beyond float16, or all of them below the
  normal halves;
* a constant beyond the range may reach it (:mod:`.overflow_analysis`), whatever was observed;
* the kernel that computes it stores no half words, or would have to be a slower one;
* the device takes long to convert halves, but for tables of which kernels read some elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.plan.dtypes import FLOAT16, FLOAT16_LARGEST, FLOAT16_SMALLEST_NORMAL, FLOAT32
from ...runtime.plan.facts import PrecisionFacts
from ...runtime.plan.notes import FullPrecisionValue, PrecisionNotes
from ...runtime.plan.record import record
from ..compilation import Compilation
from ..fusion import Fusion
from ..ir.graph import Graph, Value
from ..kernels.family import family_named
from ..kernels.groups import Group
from ..ops.registry import registry
from ..symbolic import polynomial as ix
from .constant_ranges import weight_range
from .exact_set import ExactSet, InterfaceConstraints
from .observed_range import ObservedRange, node_name
from .overflow_analysis import IN_RANGE, overflowing_outputs, overflowing_values
from .storable import StorableTypes
from .weight_types import convert_constants, is_table

#: Weights of one axis and no more elements are vectors
_VECTOR = 1 << 16
_SLOW = "this device takes longer to convert halves than to read floats"


@record
class HalfStorage:
    """Facts and notes about the result of :func:`store_halves`."""

    facts: PrecisionFacts
    notes: PrecisionNotes


@record
class StorageDecision:
    """The storage of a value: ``reason`` is why it stays float32, None if it becomes float16."""

    value: Value
    is_weight: bool
    reason: str | None


def store_halves(
    graph: Graph, fusion: Fusion, compilation: Compilation, interface: InterfaceConstraints | None = None
) -> HalfStorage:
    """Turn float32 values in memory into float16 where they fit.

    The option ``reached`` has what a run was observed to reach; ``interface`` concerns a stage of a program.
    """
    interface = interface or InterfaceConstraints()
    rules = _HalfRules(graph, fusion, compilation, interface)
    outputs = set(graph.outputs)
    running = [group for group in fusion.groups if not group.constant]
    weights = dict.fromkeys(value for group in running for value in group.reads if rules.is_weight(value))
    decisions = [
        *(StorageDecision(value, True, rules.keeps_weight(value)) for value in weights if _may_change(value, outputs)),
        *(
            StorageDecision(group.output, False, rules.keeps_activation(group))
            for group in running
            if _may_change(group.output, outputs)
        ),
    ]
    _apply(graph, fusion, decisions)
    halves = [decision for decision in decisions if decision.reason is None]
    activations = [decision.value for decision in halves if not decision.is_weight]
    named = list(zip(map(graph.whole_name, graph.output_names), graph.outputs))
    positions = [name for name, value in named if value in rules.exact.integral and value.dtype.is_float]
    return HalfStorage(
        PrecisionFacts(
            measured=tuple(sorted(set(map(node_name, activations)))),
            positions=tuple(dict.fromkeys(positions)),
            overflowing=overflowing_outputs(named, rules.overflow),
        ),
        PrecisionNotes(
            FLOAT16.name,
            len(activations),
            len(halves) - len(activations),
            tuple(
                FullPrecisionValue(node_name(each.value), each.value.name, each.reason)
                for each in decisions
                if each.reason
            ),
        ),
    )


def _may_change(value: Value, outputs: set[Value]) -> bool:
    return value.dtype is FLOAT32 and value not in outputs


class _HalfRules:
    """The reasons for which values stay float32."""

    def __init__(self, graph: Graph, fusion: Fusion, compilation: Compilation, interface: InterfaceConstraints) -> None:
        self.fusion = fusion
        self.converts_halves = compilation.target.converts_halves
        self.exact = ExactSet.of(graph, interface)
        self.observed = ObservedRange(compilation.options.reached)
        self.overflow = overflowing_values(
            graph,
            FLOAT16_LARGEST,
            {value: interface.of_input(value).overflow for value in graph.inputs},
        )
        self.storable = StorableTypes(graph, fusion, compilation)

    def is_weight(self, value: Value) -> bool:
        """Return whether ``value`` is there before a run: a constant, or made from constants."""
        group = self.fusion.materialised.get(value)
        return value.is_constant or (group is not None and group.constant)

    def keeps_weight(self, value: Value) -> str | None:
        """Return why a weight stays float32."""
        if sum(size != 1 for size in value.shape) <= 1 and ix.bounds(value.elements)[1] <= _VECTOR:
            return "a vector of weights: nothing is gained"
        reason = self.exact.reason(value)
        if reason is not None:
            return reason
        group = self.fusion.materialised.get(value)
        if group is not None and not self._stores_halves(group):
            return f"its kernel ({group.family}) stores no half words"
        magnitude = weight_range(value).magnitude
        if magnitude > FLOAT16_LARGEST:
            return f"a weight reaches {magnitude:.3g}, float16 ends at {FLOAT16_LARGEST:.0f}"
        if 0.0 < magnitude < FLOAT16_SMALLEST_NORMAL:
            return f"no weight exceeds {magnitude:.3g}: float16 has few bits left there"
        if not self.converts_halves and not is_table(value, self.fusion):
            return _SLOW
        return None

    def keeps_activation(self, group: Group) -> str | None:
        """Return why the result of a group stays float32."""
        value = group.output
        if not _is_tensor(value):
            return "it is no tensor of the file, but an intermediate result of one operator"
        reason = self.exact.reason(value)
        if reason is None and group.region:
            reason = family_named(group.family).why_exact(group.region.anchor)
        if reason is None and self.overflow.get(value, IN_RANGE) != IN_RANGE:
            reason = f"a constant beyond {FLOAT16_LARGEST:.0f} may reach it"
        if reason is None:
            reason = self.observed.reason(value)
        if reason is None and not self._stores_halves(group):
            reason = f"its kernel ({group.family}) stores no half words, or would be slower"
        return reason or (None if self.converts_halves else _SLOW)

    def _stores_halves(self, group: Group) -> bool:
        """Return whether the group's kernel is the same one with a float16 result."""
        return family_named(group.family).stores_halves and self.storable.can_store(group, FLOAT16)


def _is_tensor(value: Value) -> bool:
    """Return whether ``value`` is a tensor that the file names, or only moves elements of such tensors."""
    if value.name or value.producer is None:
        return True
    definition = registry.of(value.producer)
    return definition.is_view and all(map(_is_tensor, definition.data_inputs(value.producer)))


def _apply(graph: Graph, fusion: Fusion, decisions: Sequence[StorageDecision]) -> None:
    """Change the types; a constant of the model is read as a converted copy, made once before everything else."""
    halves = [decision.value for decision in decisions if decision.reason is None]
    for value in halves:
        if not value.is_constant:
            value.dtype = FLOAT16
    convert_constants(graph, fusion, [value for value in halves if value.is_constant], FLOAT16)
