"""Matrix multiplication: ``loom.MatMul``, with numpy's broadcasting of batch axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.coordinates import Sizes, broadcast_coordinates
from ...ir.graph import Node, Value
from ...ir.layout import Layout
from ...ops.onnx.matmul import matmul_array
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ...tuning.attention_tiles import FEW_ROWS
from ..context import GroupContext
from ..family import Reuse, register_family
from ..geometry import unflatten
from ..groups import Region
from .product import Product
from .product_family import ProductFamily


def product_of(context: GroupContext) -> Product:
    """Return the product of a MatMul; batch axes are flattened."""
    node = context.anchor
    left, right, result = node.operand(0), node.operand(1), node.output
    batch_shape = result.shape[:-2]

    def output(batch: Dim, m: Dim, n: Dim) -> tuple[Dim, ...]:
        return (*unflatten(batch, batch_shape), m, n)

    def terms(coordinates: Sequence[Dim], k: Dim) -> tuple[Expr, Expr]:
        *batch, m, n = coordinates
        return (
            context.operands.read(left, (*broadcast_coordinates(batch, batch_shape, left.shape[:-2]), m, k)),
            context.operands.read(right, (*broadcast_coordinates(batch, batch_shape, right.shape[:-2]), k, n)),
        )

    return Product(ix.product(list(batch_shape)), result.shape[-2], result.shape[-1], left.shape[-1], output, terms)


def constant_layout(rank: int) -> Layout:
    """Return the layout of a constant operand: rows of whole vectors."""
    return Layout(tuple(range(rank)), ((rank - 1, 4),))


class Gemm(ProductFamily):
    """``loom.MatMul``."""

    name = "gemm"
    gives_scores = True

    def reuse(self, region: Region, user: Node, operand: Value) -> Reuse:
        """Return ``FEW`` for A with few rows, which are computed again beside the loads of a column of weights."""
        if user is not region.anchor:
            return Reuse.ONCE
        few = len(region.domain) >= 2 and ix.bounds(region.domain[-2])[1] <= FEW_ROWS
        return Reuse.FEW if few and operand is user.operand(0) else Reuse.MANY

    def weight_layouts(self, node: Node) -> dict[int, Layout]:
        """Return the padded layouts of constant operands: of B whole vectors of columns, of A rows of whole vectors."""
        layouts = {}
        for position in (0, 1):
            if isinstance(node.operand(position).shape[-1], int):
                layouts[position] = constant_layout(node.operand(position).rank)
        return layouts

    def preferred_axes(self, region: Region) -> list[tuple[Value, int]]:
        """Return the axes to store innermost: k of A, n of B."""
        return [(operand, operand.rank - 1) for operand in map(region.anchor.operand, (0, 1))]

    def may_reorder(self, output: Value) -> bool:
        return True

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return matmul_array(operands[0], operands[1])

    def product(self, context: GroupContext) -> Product:
        return product_of(context)


GEMM = register_family(Gemm())
