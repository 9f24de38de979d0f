"""Replace composite operators by simpler ones until every operator left has a lowering of its own."""

from __future__ import annotations

from collections import deque

from ...runtime.plan.errors import InternalError
from ..ir.graph import Graph, Node, Value
from ..ops.misfits import misfit, refused_misfits
from ..ops.registry import registry
from ..options import DEFAULT_LIMITS, Limits
from ..rewriting.builder import GraphBuilder
from ..symbolic import polynomial as ix

#: decompositions inside decompositions: a longer chain is one that never ends
MAX_DEPTH = 32


def expand(graph: Graph, limits: Limits = DEFAULT_LIMITS) -> int:
    """Run every ``OpDef.expand`` in ``graph`` and in the bodies of its nodes; return the number of nodes replaced.

    A decomposition takes its node's position, so the order of nodes stays topological; its nodes have the origins of
    the node that they replace.
    """
    pending = deque((node, 0) for node in graph.nodes)
    graph.nodes = []
    replaced = 0
    while pending:
        node, depth = pending.popleft()
        for block in node.blocks:
            replaced += expand(block, limits)
        definition = registry.of(node)
        if definition.expand is None:
            graph.nodes.append(node)
            continue
        if depth >= MAX_DEPTH:
            raise InternalError(f"the decomposition of {node.op} does not end", origin=node.origin)
        start = len(graph.nodes)
        with refused_misfits(node.op, node.inputs, node.origin):
            results = list(definition.expand(GraphBuilder(graph, node.origins, limits), node))
        replacement = graph.nodes[start:]
        del graph.nodes[start:]
        pending.extendleft((new, depth + 1) for new in reversed(replacement))
        _replace(graph, node, results)
        replaced += 1
    graph.remove_dead()
    graph.sort()
    return replaced


def _replace(graph: Graph, node: Node, results: list[Value]) -> None:
    """Let readers of ``node`` read ``results``, and let go of its operands.

    Results of trailing outputs without readers may be omitted.
    """
    for old, new in zip(node.outputs, results):
        if old.dtype != new.dtype or not _same_shape(old, new):
            raise misfit(node.op, node.inputs, f"its decomposition gives {new!r} for {old!r}", node.origin)
        graph.replace(old, new)
    for old in node.outputs[len(results) :]:
        if old.uses or any(old is value for value in graph.outputs):
            raise InternalError(f"the decomposition of {node.op} does not give {old!r}", origin=node.origin)
    for position in range(len(node.inputs)):
        graph.set_input(node, position, None)


def _same_shape(old: Value, new: Value) -> bool:
    if old.rank != new.rank:
        return False
    try:
        return all(ix.equal(left, right) for left, right in zip(old.shape, new.shape))
    except ix.Undecidable:
        return True  # equal for some values of the dynamic dimensions: the two rules said it in different ways
