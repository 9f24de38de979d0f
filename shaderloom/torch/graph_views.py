"""Results of a traced graph that are views of its inputs: PyTorch computes them, as no session can share memory so."""

from __future__ import annotations

from typing import Any

import torch

from ..runtime.plan.errors import UnsupportedError
from ..runtime.plan.record import record
from .graph_inputs import placeholders


@record
class SplitGraph:
    """A graph as two: ``computed`` has the results that take arithmetic, ``views`` those that share an input's memory.

    ``is_view`` tells for each result where it comes from.  Either graph is None if it has no result.
    """

    is_view: tuple[bool, ...]
    computed: torch.fx.GraphModule | None
    views: torch.fx.GraphModule | None


def split_views(graph: torch.fx.GraphModule) -> SplitGraph:
    """Return the graph with the results that are views of inputs apart."""
    inputs = {storage for node in placeholders(graph) if (storage := _storage(node)) is not None}
    results = results_of(graph)
    is_view = tuple(isinstance(result, torch.fx.Node) and _storage(result) in inputs for result in results)
    if not any(is_view):
        return SplitGraph(is_view, graph, None)
    views = _with_results(graph, [result for result, view in zip(results, is_view) if view])
    return SplitGraph(
        is_view,
        _with_results(graph, [result for result, view in zip(results, is_view) if not view]),
        None if views is None else _only_views(views),
    )


def results_of(graph: torch.fx.GraphModule) -> list[Any]:
    """Return the results of a traced graph, which gives a tuple: nodes, or plain values."""
    return list(graph.graph.output_node().args[0])


def _storage(node: torch.fx.Node) -> int | None:
    """Return the identity of the memory of a node's tensor; None for what is none."""
    value = node.meta.get("example_value")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def _with_results(graph: torch.fx.GraphModule, results: list[Any]) -> torch.fx.GraphModule | None:
    """Return a copy of the graph with these results, in a tuple; None if there are none."""
    if not results:
        return None
    part = torch.fx.GraphModule(graph, torch.fx.Graph())
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    part.graph.graph_copy(graph.graph, copies)
    part.graph.output(tuple(copies[result] if isinstance(result, torch.fx.Node) else result for result in results))
    part.recompile()
    return part


def _only_views(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return the graph without what its results do not need; raise :class:`UnsupportedError` if it writes in place.

    What a session writes to the inputs, the views see.
    """
    graph.graph.eliminate_dead_code()
    graph.recompile()
    for node in graph.graph.nodes:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if node.op.startswith("call") and name.endswith("_") and not name.endswith("__"):
            raise UnsupportedError(f"a result is a view of an input behind the operator '{name}', which writes to it")
    return graph
