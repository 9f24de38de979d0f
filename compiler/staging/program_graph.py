"""The nodes of a program: those of a model's graphs with names that are unique, and some that no file has.

Values have *qualified* names: those of the main graph are as in the file, those of nested graphs begin with the path of
the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from ...runtime.plan.errors import ModelError, Origin
from ...runtime.plan.record import record
from ..frontend.model import ImportedGraph, ImportedNode
from ..frontend.topology import names_read
from ..ir.constants import InlineSource, TensorSource
from ..ops.registry import registry


def transposed_operands(nodes: Iterable[onnx.NodeProto], outer: Mapping[str, str] = MappingProxyType({})) -> set[str]:
    """Return the names of what products of these nodes, and of graphs within them, multiply by the transpose of.

    ``outer`` has the operands of transpositions around them, by the names of the results.
    """
    operands = dict(outer)
    multiplied: set[str] = set()
    for node in nodes:
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                multiplied |= transposed_operands(graph.node, operands)
            if node.op_type == "Gemm" and attribute.name == "transB" and attribute.i:
                multiplied.update(node.input[1:2])
        if node.op_type == "Transpose":
            operands.update(zip(node.output[:1], node.input))
        elif node.op_type == "MatMul":
            multiplied.update(operands[name] for name in node.input[1:2] if name in operands)
    return multiplied


def _transposed_constants(graph: ImportedGraph) -> Set[str]:
    return transposed_operands(node.proto for node in graph.nodes if node.proto is not None) & graph.constants.keys()


class ProgramScope:
    """The names of one graph in a program.  ``prefix`` makes them unique."""

    def __init__(self, graph: ImportedGraph, outer: ProgramScope | None = None, prefix: str = "") -> None:
        self.graph = graph
        self.outer = outer
        self.prefix = prefix
        self.constants: dict[str, TensorSource] = {} if outer is None else outer.constants
        self.foreign: dict[str, onnx.TensorProto | onnx.SparseTensorProto] = {} if outer is None else outer.foreign
        #: constants of the main graph by whose transpose a product of some stage may multiply
        self.transposed: Set[str] = _transposed_constants(graph) if outer is None else outer.transposed
        self._own = {
            *(port.name for port in graph.inputs),
            *graph.constants,
            *graph.foreign,
            *(name for node in graph.nodes for name in node.outputs),
        }
        self.constants.update((prefix + name, source) for name, source in graph.constants.items())
        self.foreign.update((prefix + name, proto) for name, proto in graph.foreign.items())

    def find(self, name: str) -> str | None:
        """Return the qualified name, or None if neither this graph nor an enclosing one defines the name."""
        if name in self._own:
            return self.prefix + name
        return None if self.outer is None else self.outer.find(name)

    def qualify(self, name: str) -> str:
        """Return the qualified name, ``""`` for an omitted operand; raise :class:`ModelError` for an undefined name."""
        if not name:
            return ""
        qualified = self.find(name)
        if qualified is None:
            raise ModelError("a node reads a value that nothing defines", tensor=name)
        return qualified

    def nodes(self) -> list[PendingNode]:
        """Return the nodes of the graph, in order."""
        return [PendingNode.of(node, self) for node in self.graph.nodes]


@record(eq=False, slots=False)
class PendingNode:
    """A node of a program with qualified names; ``captured`` are those that its nested graphs read.

    A ``synthetic`` node is in no file; its ``proto`` has qualified names already.
    """

    node: ImportedNode
    scope: ProgramScope
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    captured: tuple[str, ...] = ()
    synthetic: bool = False

    @classmethod
    def of(cls, node: ImportedNode, scope: ProgramScope) -> PendingNode:
        captured: list[str] = []
        if node.proto is not None and any(item.HasField("g") or item.graphs for item in node.proto.attribute):
            own = set(node.outputs)
            qualified = (scope.find(name) for name in dict.fromkeys(names_read(node.proto)) if name not in own)
            captured = [name for name in qualified if name is not None]
        inputs = tuple(map(scope.qualify, node.inputs))
        captures = tuple(name for name in captured if name not in inputs)
        return cls(node, scope, inputs, tuple(map(scope.qualify, node.outputs)), captures)

    @property
    def reads(self) -> Iterator[str]:
        yield from (name for name in self.inputs if name)
        yield from self.captured

    @property
    def origin(self) -> Origin:
        return self.node.origin

    @property
    def is_loop(self) -> bool:
        return self.node.definition is None and self.node.refusal is None and self.node.op in ("Loop", "Scan")

    @property
    def is_branch(self) -> bool:
        return self.node.definition is None and self.node.refusal is None and self.node.op == "If"


def make_node(
    op: str,
    scope: ProgramScope,
    inputs: Sequence[str],
    outputs: Sequence[str],
    origin: Origin,
    domain: str = "",
    **attributes: Any,
) -> PendingNode:
    """Create a synthetic node (one that is in no file) on qualified names."""
    definition = registry.get(op, domain)
    present = {name: value for name, value in attributes.items() if value is not None}
    proto = onnx.helper.make_node(op, list(inputs), list(outputs), **present)
    typed = definition.attributes(**attributes) if attributes else definition.attributes()
    node = ImportedNode(op, domain, definition, tuple(inputs), tuple(outputs), typed, origin, proto=proto)
    return PendingNode(node, scope, tuple(inputs), tuple(outputs), synthetic=True)


def alias_node(scope: ProgramScope, source: str, target: str, origin: Origin) -> PendingNode:
    """Create an Identity that gives a value another name."""
    return make_node("Identity", scope, [source], [target], origin)


class SplitNodes:
    """The nodes that an operator is split into; see :class:`~.registry.SplitBuilder`."""

    def __init__(self, item: PendingNode) -> None:
        self.item = item
        self.nodes: list[PendingNode] = []
        self._base = f"{item.scope.prefix}{item.node.op}_{item.origin.index}"

    def apply(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        output = f"{self._base}.{len(self.nodes)}"
        proto = make_node(op, self.item.scope, inputs, [output], self.item.origin, domain, **attributes)
        self.nodes.append(proto)
        return output

    def apply_to(self, outputs: Sequence[str], op: str, *inputs: str, domain: str = "", **attributes: Any) -> None:
        self.nodes.append(make_node(op, self.item.scope, inputs, outputs, self.item.origin, domain, **attributes))

    def constant(self, array: np.ndarray) -> str:
        name = f"{self._base}.constant{list(array.reshape(-1))}"
        self.item.scope.constants[name] = InlineSource(array)
        return name

    def joined(self, value: str) -> list[tuple[str, np.ndarray | None]]:
        scope = self.item.scope
        names = next(
            (
                tuple(map(scope.qualify, node.inputs))
                for node in scope.graph.nodes
                if node.op == "Concat" and scope.qualify(node.outputs[0]) == value
            ),
            (value,),
        )
        return [(name, scope.constants[name].read() if name in scope.constants else None) for name in names]

    def name(self, value: str, output: str) -> None:
        self.nodes.append(alias_node(self.item.scope, value, output, self.item.origin))


def branch_nodes(item: PendingNode, taken: bool) -> list[PendingNode]:
    """Return the nodes of the taken branch of an If, followed by an Identity for each output.

    The other branch is not inspected.
    """
    side = "then_branch" if taken else "else_branch"
    block = item.node.blocks.get(side)
    if block is None:
        raise ModelError(f"If needs the attribute '{side}'", origin=item.origin)
    graph = block.graph
    scope = ProgramScope(graph, item.scope, f"{item.scope.prefix}If_{item.origin.index}.{side}/")
    nodes = scope.nodes()
    if len(graph.outputs) < len(item.outputs):
        raise ModelError(f"the branch has {len(graph.outputs)} outputs", origin=item.origin)
    nodes += [
        alias_node(item.scope, scope.qualify(port.name), name, item.origin)
        for port, name in zip(graph.outputs, item.outputs)
        if name
    ]
    return nodes
