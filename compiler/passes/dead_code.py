"""Remove what no output of the graph depends on."""

from __future__ import annotations

from ..ir.graph import Graph


def remove_dead_code(graph: Graph) -> int:
    """Remove nodes and constants without readers; return the number of nodes removed."""
    return graph.remove_dead()
