"""Graph to fused groups: which nodes share a kernel, and which values exist in memory.

A *group* becomes one kernel.  It has at most one *anchor* (a matrix product, a convolution, a reduction ...) and grows
in two directions:

*Epilogue.*  From the anchor's result forward, a :class:`~.kernels.groups.Region` takes elementwise consumers (and the
reductions and elementwise nodes of a normalisation) as long as one value is left that others read: the *exit*
(:mod:`.epilogues`; the rules are in :mod:`.epilogue_rules`).  A region with a single exit is convex, so groups never
form a cycle.

*Prologue.*  A node that computes each element on its own (``OpDef.is_map``) and that no region took is either
materialised by a kernel of its own or *inlined* into its consumers, composed into their load expressions
(:mod:`.prologues`, rules in :mod:`.prologue_rules`; :mod:`.operand_limit` for the kernels that would then bind too
much).

Every decision that keeps two neighbours apart is recorded in ``Fusion.reasons``.
"""

from __future__ import annotations

from ..ir.graph import Graph
from ..ops.registry import Registry, registry
from .collect import collect
from .epilogues import grow_regions
from .groups import Fusion
from .operand_limit import respect_operand_limit
from .partition import Partition, constant_values
from .prologues import place_maps

__all__ = ["Fusion", "constant_values", "fuse"]


def fuse(
    graph: Graph,
    *,
    enabled: bool = True,
    max_operands: int = 8,
    operators: Registry = registry,
    converts_halves: bool = True,
    longest_own_row: int = 8192,
) -> Fusion:
    """Group the nodes of an expanded graph.

    With ``enabled`` off every node is its own kernel.  Without ``converts_halves`` no kernel dequantises float16.
    A thread reduces several rows for a word that it stores if they have at most ``longest_own_row`` elements.
    """
    partition = Partition(graph, enabled, max_operands, operators, converts_halves, longest_own_row)
    grow_regions(partition)
    place_maps(partition)
    respect_operand_limit(partition)
    return collect(partition)
