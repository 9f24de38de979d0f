"""Matrix multiplication: ``loom.MatMul``, with numpy's broadcasting of batch axes."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.coordinates import broadcast_coordinates
from ...ir.graph import Node
from ...ir.layout import Layout, contiguous
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ..context import Built, GroupContext, unflatten
from .product import Product, build_product


def weight_layouts(node: Node) -> dict[int, Layout]:
    """A constant B has whole vectors of columns; a constant A rows of whole vectors."""
    layouts = {}
    for position in (0, 1):
        rank = node.operand(position).rank
        if isinstance(node.operand(position).shape[-1], int):
            layouts[position] = Layout(tuple(range(rank)), ((rank - 1, 4),))
    return layouts


def preferred_axes(node: Node) -> dict[int, int]:
    """A is read along k, B along n."""
    return {0: node.operand(0).rank - 1, 1: node.operand(1).rank - 1}


def output_layout(node: Node) -> Layout:
    return contiguous(node.output.rank)


def build(context: GroupContext) -> Built:
    return build_product(context, product_of(context))


def product_of(context: GroupContext) -> Product:
    """The product of a MatMul; batch axes are flattened."""
    node = context.anchor
    left, right, result = node.operand(0), node.operand(1), node.output
    batch_shape = result.shape[:-2]

    def output(batch: Dim, m: Dim, n: Dim) -> tuple[Dim, ...]:
        return (*unflatten(batch, batch_shape), m, n)

    def terms(where: Sequence[Dim], k: Dim) -> tuple[Expr, Expr]:
        *batch, m, n = where
        return (
            context.read(left, (*broadcast_coordinates(batch, batch_shape, left.shape[:-2]), m, k)),
            context.read(right, (*broadcast_coordinates(batch, batch_shape, right.shape[:-2]), k, n)),
        )

    return Product(ix.product(list(batch_shape)), result.shape[-2], result.shape[-1], left.shape[-1], output, terms)
