"""Remove what no output of the graph depends on."""

from __future__ import annotations

from ..ir.graph import Graph


def remove_dead_code(graph: Graph) -> int:
    """Gives the number of nodes removed; constants without readers go too."""
    return graph.remove_dead()
