"""The option ``check_indices``: one more output of a model, with the ranges of the indices that its nodes were given.

Every index operand of a node that the operator registry declares, and that is no constant, gets a ``loom.IndexRange``;
their rows are one tensor, :data:`INDEX_RANGES`, by which a session tells what is out of range.  A node that goes to the
cpu, which checks its indices by itself, has no rows in it.

A body of If, Loop or Scan reduces its rows to one, the first that is out of range (``loom.FirstOutOfRange``), which is
one more result of its node (:mod:`.checked_bodies`).  Bodies are imported for that; those that cannot be, and those of
Scan as opset 8 had it, stay as they are, and their nodes are listed for a notice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...runtime.plan.checked_operand import INDEX_RANGES, CheckedOperand
from ...runtime.plan.dtypes import INT64
from ...runtime.plan.errors import ShaderloomError
from ..ir.constants import InlineSource
from ..ops.internal.index_range import ROW_WITHOUT_INDICES, IndexRangeAttributes
from ..ops.registry import registry
from .checked_bodies import NO_INDICES, can_give_row, no_rows, with_row
from .messages import GraphProto
from .model import ImportedGraph, ImportedNode, ImportedPort
from .topology import graphs_of, names_read


def with_index_ranges(graph: ImportedGraph) -> tuple[ImportedGraph, tuple[CheckedOperand, ...], tuple[str, ...]]:
    """Return the graph with the output, what its rows are about, and the nodes in bodies that it says nothing about.

    It is the graph itself if it has no such indices.
    """
    ranges = _IndexRanges()
    extended, rows = ranges.extend(graph, frozenset())
    if rows:
        joined = _join("Concat", "", rows, INDEX_RANGES, graph.nodes[-1], axis=0)
        extended = replace(
            extended,
            nodes=(*extended.nodes, joined),
            outputs=(*graph.outputs, ImportedPort(INDEX_RANGES, INT64, None)),
            constants={**graph.constants, NO_INDICES: InlineSource(ROW_WITHOUT_INDICES)},
        )
    return extended, tuple(ranges.operands), tuple(ranges.unchecked)


class _IndexRanges:
    """Adds nodes that compute rows; collects the operands that these are about, and the nodes that have none."""

    def __init__(self) -> None:
        self.operands: list[CheckedOperand] = []
        self.unchecked: list[str] = []
        self._names = 0

    def extend(self, graph: ImportedGraph, outer: Collection[str]) -> tuple[ImportedGraph, list[str]]:
        """Return ``graph`` with nodes that compute rows, and the names of the rows: int64 [n, 5] each.

        ``outer`` are the constants of the graphs around it.
        """
        own = {*(port.name for port in graph.inputs), *(name for node in graph.nodes for name in node.outputs)}
        constants = frozenset(outer).difference(own).union(graph.constants)
        needed = set(map(id, _needed(graph)))
        nodes: list[ImportedNode] = []
        added: list[ImportedNode] = []
        rows: list[str] = []
        for node in graph.nodes:
            held = node
            if id(node) in needed and node.refusal is None:
                ranges = list(self._ranges(node, constants))
                added += ranges
                rows += [name for each in ranges for name in each.outputs]
                held = self._with_bodies(node, constants, rows) if node.proto is not None else node
            nodes.append(held)
        return (replace(graph, nodes=(*nodes, *added)) if rows else graph), rows

    def _ranges(self, node: ImportedNode, constants: Collection[str]) -> Iterator[ImportedNode]:
        """Yield a node for each operand of ``node`` that holds indices."""
        define = registry.get("IndexRange", "loom")
        for place, rule in enumerate(() if node.definition is None else node.definition.indices):
            name = node.inputs[rule.position] if rule.position < len(node.inputs) else ""
            if not rule.is_error or not name or name in constants:
                continue
            output = self._name()
            attributes = IndexRangeAttributes(node.op, node.domain, node.attributes, place, len(self.operands))
            self.operands.append(CheckedOperand(str(node.origin), rule.position, name))
            yield replace(
                node,
                op=define.name,
                domain=define.domain,
                definition=define,
                outputs=(output,),
                attributes=attributes,
                proto=no_rows(output, 0),
                added=True,
            )

    def _with_bodies(self, node: ImportedNode, constants: Collection[str], rows: list[str]) -> ImportedNode:
        """Return ``node`` with a row as one more result, whose name it appends to ``rows``.

        It is ``node`` itself if no body of it has rows, or if it cannot give one.
        """
        operands, unchecked = len(self.operands), len(self.unchecked)
        bodies = self._bodies(node, constants)
        if bodies is None:
            del self.operands[operands:], self.unchecked[unchecked:]
            self.unchecked += _nodes_in_bodies(node, constants)
            return node
        if not any(ranges for _, ranges in bodies.values()):
            return node
        state, result = self._name(), self._name()
        graphs = {name: self._first(graph, ranges, node, state) for name, (graph, ranges) in bodies.items()}
        rows.append(result)
        return with_row(node, graphs, state, result)

    def _bodies(
        self, node: ImportedNode, constants: Collection[str]
    ) -> dict[str, tuple[ImportedGraph, list[str]]] | None:
        """Return the bodies with their rows; None if ``node`` cannot give a row, or a body cannot be imported."""
        try:
            if can_give_row(node):
                return {name: self.extend(block.graph, constants) for name, block in node.blocks.items()}
        except ShaderloomError:  # of a branch that is never taken, or raised again when the body is wanted
            pass
        return None

    def _first(
        self, body: ImportedGraph, rows: Sequence[str], node: ImportedNode, state: str
    ) -> tuple[ImportedGraph, str]:
        """Return ``body`` with one row for all, and its name.

        In a loop the row of the iterations before, ``state``, comes first.
        """
        if not rows:
            return body, NO_INDICES
        name = self._name()
        first = _join("FirstOutOfRange", "loom", [NO_INDICES if node.op == "If" else state, *rows], name, node)
        return replace(body, nodes=(*body.nodes, first)), name

    def _name(self) -> str:
        self._names += 1
        return f"{INDEX_RANGES} {self._names}"


def _join(op: str, domain: str, rows: Sequence[str], name: str, near: ImportedNode, **attributes: Any) -> ImportedNode:
    """Return a node that makes one tensor of rows."""
    define = registry.get(op, domain)
    typed = define.attributes(**attributes)
    return ImportedNode(op, domain, define, tuple(rows), (name,), typed, near.origin, added=True)


def _nodes_in_bodies(node: ImportedNode, constants: Collection[str]) -> Iterator[str]:
    """Yield the nodes in bodies of ``node`` with indices that are no constants, each with the node's own name."""
    for body in graphs_of(node.proto) if node.proto is not None else ():
        for label in _with_indices(body, constants):
            yield f"{label} in a body of {node.origin}"


def _with_indices(body: GraphProto, constants: Collection[str]) -> Iterator[str]:
    own = {tensor.name for tensor in body.initializer}
    own |= {name for node in body.node if node.op_type == "Constant" for name in node.output}
    constants = own.union(constants)
    for node in body.node:
        definition = registry.find(node.op_type, node.domain)
        rules = () if definition is None else definition.indices
        names = [node.input[rule.position] for rule in rules if rule.is_error and rule.position < len(node.input)]
        if any(name and name not in constants for name in names):
            yield f"{node.op_type} '{node.name or node.output[0]}'"
        for nested in graphs_of(node):
            yield from _with_indices(nested, constants)


def _needed(graph: ImportedGraph) -> list[ImportedNode]:
    """Return the nodes that an output depends on, in order: onnxruntime runs no others."""
    wanted = {port.name for port in graph.outputs}
    nodes = []
    for node in reversed(graph.nodes):
        if wanted.intersection(node.outputs):
            nodes.append(node)
            wanted.update(node.inputs, () if node.proto is None else names_read(node.proto))
    return nodes[::-1]
