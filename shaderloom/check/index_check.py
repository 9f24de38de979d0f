"""Report indices of a run that are out of range, which kernels clamp silently.

The operator registry declares which operands hold indices, and into what.  The values are those that the reference
computes, in every branch that it takes and in every iteration of a loop.  References refuse what is computed from such
an index, so nodes are examined in order, and those that depend on the first are skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from ..compiler.frontend.model import ImportedGraph, ImportedModel, ImportedNode
from ..compiler.ir.graph import Node, Value
from ..compiler.ops.math.index_rule import WrongIndices, find_wrong
from ..compiler.ops.registry import Indices
from ..compiler.symbolic import polynomial as ix
from ..runtime.plan.dtypes import FLOAT32
from ..runtime.plan.errors import ShaderloomError, UnsupportedError
from ..runtime.plan.record import record
from .graph_instance import MAIN_GRAPH, GraphInstance
from .onnx_model import OnnxModel
from .references import Reference


@record(slots=False)
class IndexFault:
    """Out-of-range indices in operand ``position`` of a node; ``instance`` is their first occurrence."""

    node: str
    position: int
    tensor: str
    instance: GraphInstance
    wrong: WrongIndices
    elements: int  #: of the operand
    is_error: bool  #: opset of the model; some operators depend on it
    outside: str  #: what kernels do with such an index
    occurrences: int = 1  #: iterations of loops in which it happens

    def __str__(self) -> str:
        wrong = self.wrong
        times = f", in {self.occurrences} iterations" if self.occurrences > 1 else ""
        return (
            f"{self.node}, input {self.position} '{self.tensor}' at {list(wrong.position)}: {wrong.value}, allowed are "
            f"{wrong.low} to {wrong.high}; {wrong.count} of {self.elements} are out of range{times}; {self.outside}"
        )


class IndexCheck:
    """Checks the indices of one model for one set of inputs."""

    def __init__(
        self, model: ImportedModel, source: OnnxModel, reference: Reference, feeds: Mapping[str, np.ndarray]
    ) -> None:
        self._model, self._source, self._reference, self._feeds = model, source, reference, feeds
        self._arrays: dict[GraphInstance, dict[str, np.ndarray]] = {MAIN_GRAPH: {}}
        self._faults: dict[tuple[str, int, int], IndexFault] = {}
        self._undefined: set[int] = set()

    def run(self) -> list[IndexFault]:
        """Run the check and return the faults by node, in the order of detection."""
        self._look(self._model.graph, MAIN_GRAPH)
        return list(self._faults.values())

    @property
    def undefined(self) -> set[int]:
        """Nodes of the main graph whose results no reference has: they, or their bodies, read such an index."""
        return self._undefined

    def _look(self, graph: ImportedGraph, instance: GraphInstance) -> None:
        own = [node for node in graph.nodes if self._rules(node, graph)]
        self._ask_together([name for node in own for name in node.inputs], instance)
        for node in graph.nodes:
            if instance == MAIN_GRAPH and self._undefined and self._is_behind(node):
                continue
            for rule in self._rules(node, graph):
                self._check(node, rule, graph, instance)
            for inner, inner_instance in self._bodies(node, graph, instance):
                self._look(inner, inner_instance)

    def _rules(self, node: ImportedNode, graph: ImportedGraph) -> list[Indices]:
        """Return the index operands of a node whose values are computed at run time."""
        rules = () if node.definition is None else node.definition.indices
        return [
            rule
            for rule in rules
            if rule.position < len(node.inputs)
            and node.inputs[rule.position]
            and self._constant(node.inputs[rule.position], graph) is None
        ]

    def _is_behind(self, node: ImportedNode) -> bool:
        return bool(self._source.ancestors([name for name in node.inputs if name]) & self._undefined)

    def _check(self, node: ImportedNode, rule: Indices, graph: ImportedGraph, instance: GraphInstance) -> None:
        assert node.definition is not None, "it has a rule"
        name = node.inputs[rule.position]
        indices = self._value(name, instance)
        if indices is None or indices.dtype.kind not in "iuf":
            return
        operands: list[Value | None] = []
        for position, operand in enumerate(node.inputs):
            value = (
                self._operand(operand, graph, instance, position in node.definition.static_inputs) if operand else None
            )
            operands.append(value)
        probe = Node(0, node.op, node.domain, operands, node.attributes, (node.origin,))
        try:
            sizes = [ix.number(size) for size in rule.sizes(probe)]
        except ShaderloomError:  # the shape of an operand is not known here
            return
        wrong = find_wrong(indices, sizes, rule)
        if wrong is None:
            return
        key = node.origin.graph, node.origin.index, rule.position
        previous = self._faults.get(key)
        if previous is not None:
            self._faults[key] = replace(previous, occurrences=previous.occurrences + (previous.instance != instance))
            return
        self._faults[key] = IndexFault(
            str(node.origin), rule.position, name, instance, wrong, indices.size, rule.is_error, rule.outside
        )
        if rule.is_error:
            self._undefined.add(self._in_main(node))

    def _in_main(self, node: ImportedNode) -> int:
        """Return the index of the main-graph node that is, or contains, ``node``."""
        path, index = node.origin.graph, node.origin.index
        while self._source.graphs[path].outer is not None:
            graph = self._source.graphs[path]
            assert graph.outer is not None, "it is nested"
            path, index = graph.outer, graph.index
        return index

    # -- nested graphs -----------------------------------------------------------------------------------------------

    def _bodies(
        self, node: ImportedNode, graph: ImportedGraph, instance: GraphInstance
    ) -> Iterator[tuple[ImportedGraph, GraphInstance]]:
        """Iterate over the nested graphs of a node that contain indices, with each path at which the reference runs
        them.
        """
        if node.definition is not None or not node.blocks or node.refusal is not None:
            return
        if node.op == "If":
            condition = self._value(node.inputs[0], instance) if node.inputs else None
            if condition is None or condition.size != 1:
                return
            side = "then_branch" if condition.reshape(-1)[0] else "else_branch"
            inner = _imported(node, side)
            if inner is not None and self._has_rules(inner):
                yield inner, GraphInstance(inner.name, instance.iterations)
            return
        inner = _imported(node, "body")
        iteration = 0
        while inner is not None and self._has_rules(inner):
            inner_instance = GraphInstance(inner.name, (*instance.iterations, iteration))
            try:
                if not self._reference.reaches(self._feeds, inner_instance):
                    return
            except UnsupportedError:  # the iteration before it read an index that is out of range
                return
            yield inner, inner_instance
            iteration += 1

    def _has_rules(self, graph: ImportedGraph) -> bool:
        if any(self._rules(node, graph) for node in graph.nodes):
            return True
        inside = (_imported(node, name) for node in graph.nodes for name in node.blocks)
        return any(inner is not None and self._has_rules(inner) for inner in inside)

    # -- values ------------------------------------------------------------------------------------------------------

    def _constant(self, name: str, graph: ImportedGraph) -> Any:
        """Return the constant of this name that is visible in a graph; None if there is none or it is fed."""
        if name in graph.constants:
            return None if name in self._feeds else graph.constants[name]
        home = self._source.defining_graph(graph.name, name)
        if home is None or name not in home.sources or (home.outer is None and name in self._feeds):
            return None
        return home.sources[name]

    def _operand(self, name: str, graph: ImportedGraph, instance: GraphInstance, is_static: bool) -> Value | None:
        """Return an operand with its shape, and its elements if ``is_static``; its dtype is a placeholder."""
        constant = self._constant(name, graph)
        if isinstance(constant, onnx.SparseTensorProto):
            return None
        if isinstance(constant, onnx.TensorProto):
            array = numpy_helper.to_array(constant, str(self._source.path.absolute().parent)) if is_static else None
            value = Value(0, name, FLOAT32, tuple(constant.dims))
            value.static_value = array
            return value
        if constant is not None:
            value = Value(0, name, FLOAT32, tuple(constant.shape))
            value.static_value = constant.read() if is_static else None
            return value
        array = self._value(name, instance)
        if array is None:
            return None
        value = Value(0, name, FLOAT32, array.shape)
        value.static_value = array if is_static else None
        return value

    def _ask_together(self, names: Collection[str], instance: GraphInstance) -> None:
        """Request all tensors in one run of the reference; if it refuses, :meth:`_value` requests them one by one."""
        producers = self._source.graphs[instance.graph].producers
        wanted = [name for name in dict.fromkeys(names) if name in producers]
        if not wanted:
            return
        for other in [other for other in self._arrays if other not in (MAIN_GRAPH, instance)]:
            del self._arrays[other]
        with suppress(UnsupportedError):
            self._arrays.setdefault(instance, {}).update(self._reference.tensors(self._feeds, wanted, instance))

    def _value(self, name: str, instance: GraphInstance) -> np.ndarray | None:
        home = self._source.defining_graph(instance.graph, name)
        if home is None:
            return None
        if home.outer is None and name in self._feeds:
            return self._feeds[name]
        owner = GraphInstance(home.path, instance.iterations[: home.loops])
        arrays = self._arrays.setdefault(owner, {})
        if name not in arrays:
            try:
                arrays.update(self._reference.tensors(self._feeds, [name], owner))
            except UnsupportedError:  # it is computed from an index that is out of range
                return None
        return arrays.get(name)


def _imported(node: ImportedNode, name: str) -> ImportedGraph | None:
    """Return a nested graph, or None if its import fails; the failure is reported when the graph runs."""
    try:
        return node.blocks[name].graph if name in node.blocks else None
    except ShaderloomError:
        return None
