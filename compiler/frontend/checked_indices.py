"""The option ``check_indices``: one more output of a model, with the ranges of the indices that its nodes were given.

Every index operand of a node of the main graph that the operator registry declares, and that is no constant, gets a
``loom.IndexRange``; their rows are one tensor, :data:`INDEX_RANGES`, by which a session tells what is out of range.
A node that goes to the cpu, which checks its indices by itself, has no rows in it.
Indices in the bodies of loops and branches are not among them: a range would leave a body as one more result of its
node, which the other side of a branch does not have, nor the message of the node, by which the cpu runs it and stages
know what it captures.  :func:`unchecked_nodes` lists them, for a notice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from ...runtime.plan.checked_operand import INDEX_RANGES, CheckedOperand
from ...runtime.plan.dtypes import INT64
from ..ops.internal.index_range import IndexRangeAttributes
from ..ops.registry import registry
from .messages import AttributeProto, GraphProto, NodeProto, TensorProto
from .model import ImportedGraph, ImportedNode, ImportedPort
from .topology import graphs_of, names_read


def with_index_ranges(graph: ImportedGraph) -> tuple[ImportedGraph, tuple[CheckedOperand, ...]]:
    """Return the graph with the output, and what its rows are about; the graph itself if it has no such indices."""
    nodes: list[ImportedNode] = []
    operands: list[CheckedOperand] = []
    define, join = registry.get("IndexRange", "loom"), registry.get("Concat")
    for node in _needed(graph):
        rules = () if node.definition is None or node.refusal is not None else node.definition.indices
        for place, rule in enumerate(rules):
            name = node.inputs[rule.position] if rule.position < len(node.inputs) else ""
            if not rule.is_error or not name or name in graph.constants:
                continue
            number = len(operands)
            attributes = IndexRangeAttributes(node.op, node.domain, node.attributes, place, number)
            output = f"{INDEX_RANGES} {number}"
            nodes.append(
                replace(
                    node,
                    op=define.name,
                    domain=define.domain,
                    definition=define,
                    outputs=(output,),
                    attributes=attributes,
                    proto=_no_rows(output),
                    added=True,
                )
            )
            operands.append(CheckedOperand(str(node.origin), rule.position, name, rule.wraps))
    if not nodes:
        return graph, ()
    names = tuple(output for node in nodes for output in node.outputs)
    attributes = join.attributes(axis=0)
    joined = ImportedNode("Concat", "", join, names, (INDEX_RANGES,), attributes, nodes[-1].origin, added=True)
    port = ImportedPort(INDEX_RANGES, INT64, None)
    return replace(graph, nodes=(*graph.nodes, *nodes, joined), outputs=(*graph.outputs, port)), tuple(operands)


def unchecked_nodes(graph: ImportedGraph) -> tuple[str, ...]:
    """Return the nodes in bodies of ``graph`` with indices that are no constants, each with the node whose body it is
    in: what :func:`with_index_ranges` leaves out."""
    return tuple(
        f"{label} in a body of {node.origin}"
        for node in graph.nodes
        if node.proto is not None
        for body in graphs_of(node.proto)
        for label in _with_indices(body, graph.constants)
    )


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


def _no_rows(output: str) -> NodeProto:
    """Return what the cpu computes in place of a range: no rows, as it checks the indices of its nodes by itself."""
    empty = TensorProto(data_type=TensorProto.INT64, dims=(0, 4))
    attribute = AttributeProto(name="value", type=AttributeProto.TENSOR, t=empty)
    return NodeProto(op_type="Constant", output=[output], attribute=[attribute])


def _needed(graph: ImportedGraph) -> list[ImportedNode]:
    """Return the nodes that an output depends on, in order: onnxruntime runs no others."""
    wanted = {port.name for port in graph.outputs}
    nodes = []
    for node in reversed(graph.nodes):
        if wanted.intersection(node.outputs):
            nodes.append(node)
            wanted.update(node.inputs, () if node.proto is None else names_read(node.proto))
    return nodes[::-1]
