"""Tensors that the file declares float16 and that reach beyond it: float32 in memory, rounded nowhere.

A file of halves is often written for runtimes that compute it in float32 and round nothing inside, as onnxruntime does
on the CPU: residual streams grow beyond 65,504, masks of -65,504 are added to each other.  Stored as declared, such a
tensor is infinite, and a difference or a softmax of it is NaN.  The option ``widen`` decides:

``auto``      what a constant may carry beyond the range (:mod:`.overflow_analysis`) is float32, with a margin;
``measured``  so is what a run was seen to reach (``reached``), and a cast to float16 rounds only where its result is
              stored: what is in registers alone is in no measurement;
``all``       everything is float32: the plan that is measured;
``off``       every tensor is stored as declared.

Inputs, constants and outputs keep the types of the file, but for what goes from one stage of a program to another:
``InterfaceConstraints`` names the outputs that may be float32, the inputs that are, and those that constants of other
stages may carry beyond the range.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace

from ...runtime.plan.dtypes import FLOAT16, FLOAT16_LARGEST, FLOAT32, RANGE_MARGIN
from ...runtime.plan.notes import FullPrecisionValue
from ...runtime.plan.record import record
from ..ir.graph import Graph, Node, Value
from ..kernels.family import OverflowFlags
from ..ops.registry import registry
from ..options import CompileOptions
from ..rewriting.builder import GraphBuilder
from ..symbolic import polynomial as ix
from .exact_set import InterfaceConstraints
from .observed_range import ObservedRange, node_name
from .overflow_analysis import IN_RANGE, overflowing_outputs, overflowing_values

#: Constants beyond it may carry a sum of a few terms out of float16's range
CONSTANT_LIMIT = FLOAT16_LARGEST / RANGE_MARGIN
#: Elements of a table of masks, such as one that positions select from
_TABLE = 1 << 20


@record
class WideTensors:
    """Tensors that stay float32, with the reasons, and outputs that constants may carry beyond float16's range."""

    widened: tuple[FullPrecisionValue, ...] = ()
    overflowing: Mapping[str, OverflowFlags] = field(default_factory=dict)


def widen_tensors(graph: Graph, options: CompileOptions, interface: InterfaceConstraints | None = None) -> WideTensors:
    """Let tensors that are declared float16 and reach beyond it stay float32.

    Runs on the graph that :func:`~.declared_halves.widen_halves` has left, before storage is declared.  ``interface``
    concerns a stage of a program.
    """
    interface = interface or InterfaceConstraints()
    entering = [value for value in graph.inputs if interface.of_input(value).is_wide]
    for value in entering:
        value.storage = None
    leaving = [
        position
        for position, (name, value) in enumerate(zip(graph.output_names, graph.outputs))
        if name in interface.widenable and value.dtype is FLOAT16
    ]
    casts = [node for node in graph.nodes if _is_rounding_cast(node)]
    outputs = set(graph.outputs)
    halves = [
        value
        for node in graph.nodes
        for value in node.outputs
        if value.storage is FLOAT16 and not all(reader.outputs[0] in outputs for reader, _ in value.uses)
    ]
    if options.widen == "off" or not (casts or halves or leaving or interface.added):
        return WideTensors()
    overflow = _overflow(graph, interface)
    overflowing = overflowing_outputs(zip(map(graph.whole_name, graph.output_names), graph.outputs), overflow)
    reasons = _reasons(graph, options, entering, overflow)
    widened = {}
    for node in casts:
        passed = [position for position in leaving if graph.outputs[position] is node.output]
        inner = _inner_cast(graph, node, passed)
        if inner is None:
            continue
        reason = reasons.get(node.output)
        if reason is not None:
            inner.attributes = replace(inner.attributes, to=FLOAT32.onnx)
            inner.output.dtype = FLOAT32
            widened[inner.output] = FullPrecisionValue(node_name(inner.output), node.output.name, reason)
            for position in passed:
                graph.outputs[position], graph.output_types[position] = inner.output, FLOAT32
        elif options.widen == "measured":
            inner.attributes = replace(inner.attributes, rounds=0)
    stored = _stored(graph, leaving)
    for value in (*halves, *stored.values()):
        reason = reasons.get(value)
        if reason is not None:
            value.storage = None
            widened[value] = FullPrecisionValue(node_name(value), value.name, reason)
    for position, value in stored.items():
        if value in reasons:
            graph.outputs[position], graph.output_types[position] = value, FLOAT32
    graph.sort()
    return WideTensors(tuple(widened.values()), overflowing)


def _overflow(graph: Graph, interface: InterfaceConstraints) -> dict[Value, OverflowFlags]:
    """Return the values that constants, of this stage or of others, may carry beyond float16's range."""
    added = {value for name, value in zip(graph.output_names, graph.outputs) if name in interface.added}
    return overflowing_values(
        graph,
        CONSTANT_LIMIT,
        {value: interface.of_input(value).overflow for value in graph.inputs},
        [value for value in graph.constants if _is_added(value, added)],
    )


def _stored(graph: Graph, positions: Collection[int]) -> dict[int, Value]:
    """Return the values that outputs at these positions only store as halves."""
    producers = {position: graph.outputs[position].producer for position in positions}
    return {
        position: node.operand(0)
        for position, node in producers.items()
        if node is not None and _is_storing_cast(node) and node.operand(0).dtype is FLOAT32
    }


def _reasons(
    graph: Graph, options: CompileOptions, entering: Collection[Value], overflow: Mapping[Value, OverflowFlags]
) -> dict[Value, str]:
    """Return the values that are not stored as halves, and why.

    ``entering`` are inputs that are not, either.  What only moves elements, or casts them, reaches what they reach.
    """
    reasons = dict.fromkeys(entering, "another stage of the program stores it so")
    observed = ObservedRange(options.reached)
    for node in graph.nodes:
        definition = registry.of(node)
        moves = definition.is_view or node.op == "Cast"
        moved = [reasons[value] for value in definition.data_inputs(node) if value in reasons] if moves else []
        for value in node.outputs:
            reason: str | None
            if not value.dtype.is_float:
                continue
            if options.widen == "all":
                reason = "everything is float32 in a run that is measured"
            elif overflow.get(value, IN_RANGE) != IN_RANGE:
                reason = f"a constant of more than {CONSTANT_LIMIT:.0f} may carry it beyond {FLOAT16_LARGEST:.0f}"
            else:
                reason = observed.excess(value) or next(iter(moved), None)
            if reason is not None:
                reasons[value] = reason
    return reasons


def _is_added(value: Value, outputs: Collection[Value]) -> bool:
    """Return whether elementwise operators read ``value``, or what moves its elements; those of later stages read
    ``outputs``.

    Weights of products and large tables are never read here: their numbers are small.
    """
    if value in outputs:
        return True
    for node in value.users:
        definition = registry.of(node)
        moves = definition.is_view or (definition.gather is not None and ix.bounds(value.elements)[1] <= _TABLE)
        if definition.is_elementwise or (moves and any(_is_added(moved, outputs) for moved in node.outputs)):
            return True
    return False


def _is_rounding_cast(node: Node) -> bool:
    """Return whether the file casts to float16 here."""
    return node.op == "Cast" and not node.domain and bool(node.attributes.rounds) and node.output.dtype is FLOAT16


def _is_storing_cast(node: Node) -> bool:
    """Return whether a cast to float16 only stores an output (:func:`~.declared_halves.widen_halves`)."""
    return node.op == "Cast" and not node.domain and not node.attributes.rounds and node.output.dtype is FLOAT16


def _inner_cast(graph: Graph, node: Node, passed: Collection[int]) -> Node | None:
    """Return the cast to float16 with whose result nodes of the graph compute; None if there are none.

    An output of the model, and a node that reads the very bits, keep the cast: the others get one of their own.
    ``passed`` are the positions at which other stages read the result.
    """
    readers = [(reader, position) for reader, position in node.output.uses if reader.op == "Cast"]
    if not readers and not passed:
        return None
    if len(readers) == len(node.output.uses) and graph.outputs.count(node.output) == len(passed):
        return node
    copy = GraphBuilder(graph, node.origins).op("Cast", node.operand(0), to=FLOAT16.onnx)
    for reader, position in readers:
        graph.set_input(reader, position, copy)
    return copy.producer
