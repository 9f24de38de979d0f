"""Topological order of the nodes of an ONNX graph, nested graphs included, and cycles in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...runtime.plan.errors import ModelError
from .messages import GraphProto, NodeProto


def names_read(node: NodeProto) -> Iterator[str]:
    """Yield every name that a node reads, including (a superset of) the names its nested graphs capture."""
    yield from (name for name in node.input if name)
    for graph in graphs_of(node):
        yield from _names_in(graph)


def graphs_of(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs among the attributes of a node: the bodies of a loop or of a branch."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _names_in(graph: GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from names_read(node)
    yield from (output.name for output in graph.output)


def topological_order(nodes: Sequence[NodeProto], graph_name: str) -> list[int]:
    """Return the positions of ``nodes`` in topological order, which is the order of the file if that is sorted already.

    ONNX requires sorted nodes, but some writers violate this.  Raises :class:`ModelError` naming the nodes of a cycle.
    """
    producer = {name: position for position, node in enumerate(nodes) for name in node.output if name}
    needs = [
        {producer[name] for name in names_read(node) if name in producer} - _own(node, position, producer)
        for position, node in enumerate(nodes)
    ]
    if all(need < position for position, needed in enumerate(needs) for need in needed):
        return list(range(len(nodes)))
    import networkx  # slow to import, and few files need it

    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(nodes)))
    graph.add_edges_from((need, position) for position, needed in enumerate(needs) for need in sorted(needed))
    try:
        return list(networkx.lexicographical_topological_sort(graph))
    except networkx.NetworkXUnfeasible:
        cycle = [position for position, _ in networkx.find_cycle(graph)]
        listed = " -> ".join(_label(nodes[position], position) for position in (*cycle, cycle[0]))
        raise ModelError(f"the nodes of graph '{graph_name}' form a cycle: {listed}") from None


def _own(node: NodeProto, position: int, producer: dict[str, int]) -> set[int]:
    """Return {position} unless the node reads its own output: names in its nested graphs may merely shadow outputs."""
    return set() if any(producer.get(name) == position for name in node.input) else {position}


def _label(node: NodeProto, position: int) -> str:
    return f"{node.op_type} '{node.name}'" if node.name else f"{node.op_type} (node {position})"
