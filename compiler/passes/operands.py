"""Nodes with more operands than a kernel can bind become trees of nodes."""

from __future__ import annotations

from ..compilation import Compilation
from ..ir.graph import Graph, Value
from ..rewriting.builder import GraphBuilder


def limit_operands(graph: Graph, compilation: Compilation) -> int:
    """Split every Concat of more tensors than a kernel may bind; no other operator has as many after expansion.

    Return the number of nodes that were split.
    """
    most = compilation.target.limit("max-storage-buffers-per-shader-stage") - 1  # one is for the result
    split = 0
    for node in list(graph.nodes):
        if node.op != "Concat" or node.domain or len(node.inputs) <= most:
            continue
        builder = GraphBuilder(graph, node.origins, compilation.limits)
        parts: list[Value] = [node.operand(position) for position in range(len(node.inputs))]
        while len(parts) > most:
            runs = [parts[start : start + most] for start in range(0, len(parts), most)]
            parts = [run[0] if len(run) == 1 else builder.op("Concat", *run, axis=node.attributes.axis) for run in runs]
        result = builder.op("Concat", *parts, axis=node.attributes.axis)
        graph.replace(node.output, result)
        split += 1
    graph.remove_dead()
    graph.sort()
    return split
