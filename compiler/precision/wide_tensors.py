"""Tensors that the file declares float16 and that reach beyond it: float32 in memory, rounded nowhere.

A file of halves is often written for runtimes that compute it in float32 and round nothing inside, as onnxruntime does
on the CPU: residual streams grow beyond 65,504, masks of -65,504 are added to each other.  Stored as declared, such a
tensor is infinite, and a difference or a softmax of it is NaN.  The option ``widen`` decides:

``auto``      what a constant may carry beyond the range (:mod:`.overflow_analysis`) is float32, with a margin;
``measured``  so is what a run was seen to reach (``reached``), and a cast to float16 rounds only where its result is
              stored: what is in registers alone is in no measurement;
``all``       everything is float32: the plan that is measured;
``off``       every tensor is stored as declared.

Inputs, constants and outputs keep the types of the file in any case.
"""

from __future__ import annotations

from dataclasses import replace

from ...runtime.plan.dtypes import FLOAT16, FLOAT16_LARGEST, FLOAT32, RANGE_MARGIN
from ...runtime.plan.notes import FullPrecisionValue
from ..ir.graph import Graph, Node, Value
from ..ops.registry import registry
from ..options import CompileOptions
from ..rewriting.builder import GraphBuilder
from .observed_range import ObservedRange, node_name
from .overflow_analysis import IN_RANGE, overflowing_values

#: Constants beyond it may carry a sum of a few terms out of float16's range
CONSTANT_LIMIT = FLOAT16_LARGEST / RANGE_MARGIN


def widen_tensors(graph: Graph, options: CompileOptions) -> list[FullPrecisionValue]:
    """Let tensors that are declared float16 and reach beyond it stay float32; return them with the reasons.

    Runs on the graph that :func:`~.declared_halves.widen_halves` has left, before storage is declared.
    """
    casts = [node for node in graph.nodes if _is_rounding_cast(node)]
    outputs = set(graph.outputs)
    halves = [
        value
        for node in graph.nodes
        for value in node.outputs
        if value.storage is FLOAT16 and not all(reader.outputs[0] in outputs for reader, _ in value.uses)
    ]
    if options.widen == "off" or not (casts or halves):
        return []
    rules = _WideRules(graph, options)
    widened = []
    for node in casts:
        inner = _inner_cast(graph, node)
        if inner is None:
            continue
        reason = rules.reason(inner.output)
        if reason is not None:
            inner.attributes = replace(inner.attributes, to=FLOAT32.onnx)
            inner.output.dtype = FLOAT32
            widened.append(FullPrecisionValue(node_name(inner.output), node.output.name, reason))
        elif options.widen == "measured":
            inner.attributes = replace(inner.attributes, rounds=0)
    for value in halves:
        reason = rules.reason(value)
        if reason is not None:
            value.storage = None
            widened.append(FullPrecisionValue(node_name(value), value.name, reason))
    graph.sort()
    return widened


class _WideRules:
    """The reasons for which tensors stay float32."""

    def __init__(self, graph: Graph, options: CompileOptions) -> None:
        self._all = options.widen == "all"
        self._observed = ObservedRange(options.reached)
        added = [value for value in graph.constants if _is_added(value)]
        self._overflow = overflowing_values(graph, CONSTANT_LIMIT, constants=added)

    def reason(self, value: Value) -> str | None:
        """Return why ``value`` is not stored as a half, None if it is."""
        if self._all:
            return "everything is float32 in a run that is measured"
        if self._overflow.get(value, IN_RANGE) != IN_RANGE:
            return f"a constant of more than {CONSTANT_LIMIT:.0f} may carry it beyond {FLOAT16_LARGEST:.0f}"
        return self._observed.excess(value)


def _is_added(value: Value) -> bool:
    """Return whether elementwise operators read ``value``, or what moves its elements.

    Weights of products and tables are never read here: they are large, and their numbers small.
    """
    definitions = [(registry.of(node), node) for node in value.users]
    return any(
        definition.is_elementwise or (definition.is_view and any(map(_is_added, node.outputs)))
        for definition, node in definitions
    )


def _is_rounding_cast(node: Node) -> bool:
    """Return whether the file casts to float16 here."""
    return node.op == "Cast" and not node.domain and bool(node.attributes.rounds) and node.output.dtype is FLOAT16


def _inner_cast(graph: Graph, node: Node) -> Node | None:
    """Return the cast to float16 with whose result nodes of the graph compute; None if there are none.

    An output of the model, and a node that reads the very bits, keep the cast: the others get one of their own.
    """
    readers = [(reader, position) for reader, position in node.output.uses if reader.op == "Cast"]
    if not readers:
        return None
    if len(readers) == len(node.output.uses) and node.output not in graph.outputs:
        return node
    copy = GraphBuilder(graph, node.origins).op("Cast", node.operand(0), to=FLOAT16.onnx)
    for reader, position in readers:
        graph.set_input(reader, position, copy)
    return copy.producer
