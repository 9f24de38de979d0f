"""Results of a traced graph that need no arithmetic on elements, which PyTorch gives: views of inputs, and sizes.

No session can share memory as a view does, and a graph of sizes alone is no model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ..runtime.plan.errors import UnsupportedError
from ..runtime.plan.record import record
from .graph_inputs import placeholders


@record
class SplitGraph:
    """A graph as two: ``computed`` has the results that take arithmetic, ``views`` those of shapes alone.

    ``is_view`` tells for each result where it comes from.  Either graph is None if it has no result.
    """

    is_view: tuple[bool, ...]
    computed: torch.fx.GraphModule | None
    views: torch.fx.GraphModule | None


def split_views(graph: torch.fx.GraphModule) -> SplitGraph:
    """Return the graph with the results that are views of inputs, sizes and plain values apart."""
    inputs = {storage for node in placeholders(graph) if (storage := _storage(node)) is not None}
    results = results_of(graph)
    is_view = tuple(_is_of_shapes(result, inputs) for result in results)
    writes = any(_writes(node, inputs) for node in graph.graph.nodes)
    shared = [result for result, view in zip(results, is_view) if view]
    others = [result for result, view in zip(results, is_view) if not view]
    return SplitGraph(
        is_view,
        _with_results(graph, others) if others or writes else None,
        _only_views(_with_results(graph, shared), inputs) if shared else None,
    )


def _is_of_shapes(result: Any, inputs: set[int]) -> bool:
    """Return whether a result depends on no element of a tensor, or shares the memory of one of ``inputs``."""
    if not isinstance(result, torch.fx.Node):
        return True
    value = result.meta.get("example_value")
    if isinstance(value, torch.Tensor):
        return _storage(result) in inputs
    return not free_unbacked_symbols(value)


def results_of(graph: torch.fx.GraphModule) -> list[Any]:
    """Return the results of a traced graph, which gives a tuple: nodes, or plain values."""
    return list(graph.graph.output_node().args[0])


def _storage(node: torch.fx.Node) -> int | None:
    """Return the identity of the memory of a node's tensor; None for what is none."""
    value = node.meta.get("example_value")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def _with_results(graph: torch.fx.GraphModule, results: list[Any]) -> torch.fx.GraphModule:
    """Return a copy of the graph with these results, in a tuple."""
    part = torch.fx.GraphModule(graph, torch.fx.Graph())
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    part.graph.graph_copy(graph.graph, copies)
    part.graph.output(tuple(copies[result] if isinstance(result, torch.fx.Node) else result for result in results))
    part.recompile()
    return part


def _only_views(graph: torch.fx.GraphModule, inputs: set[int]) -> torch.fx.GraphModule:
    """Return the graph without what its results do not need; raise :class:`UnsupportedError` if it writes to inputs.

    What a session writes to the inputs, the views see.
    """
    graph.graph.eliminate_dead_code()
    graph.recompile()
    for node in graph.graph.nodes:
        if _writes(node, inputs):
            raise UnsupportedError(
                f"a result is a view of an input behind the operator '{_name(node)}', which writes to it"
            )
    return graph


def _writes(node: torch.fx.Node, inputs: set[int]) -> bool:
    """Return whether a node writes to the memory of one of ``inputs``."""
    if not node.op.startswith("call"):
        return False
    name = _name(node)
    in_place = (name.endswith("_") and not name.endswith("__")) or name in ("setitem", "__setitem__")
    targets = [*(node.args[:1] if in_place or node.kwargs.get("inplace") else ()), node.kwargs.get("out")]
    return any(isinstance(target, torch.fx.Node) and _storage(target) in inputs for target in targets)


def _name(node: torch.fx.Node) -> str:
    """Return the name of the function or method that a node calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
