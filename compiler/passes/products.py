"""Matrix products in the shape that makes the best use of a tile: few batches, many rows."""

from __future__ import annotations

from ..ir.graph import Node, Value
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, Match, Rule
from ..symbolic import polynomial as ix
from .patterns import view


def _shared_right(node: Node, facts: GraphFacts) -> Match | None:
    """Match a product in which every batch of the left operand uses the same right matrix."""
    left, right = node.operand(0), node.operand(1)
    if left.rank == right.rank == 2 or any(size != 1 for size in right.shape[:-2]):
        return None
    return Match((node,), {"left": left, "right": right})


def _batches_as_rows(builder: GraphBuilder, match: Match) -> Value:
    left, right = match["left"], match["right"]
    rows = view(builder, left, (ix.product(left.shape[:-1]), left.shape[-1]))
    product = builder.op("MatMul", rows, view(builder, right, right.shape[-2:]), domain="loom")
    return view(builder, product, match.root.output.shape)


BATCHES_AS_ROWS = Rule("batches-as-rows", frozenset({"loom.MatMul"}), _shared_right, _batches_as_rows)

RULES = (BATCHES_AS_ROWS,)
