"""Transposed convolutions in gather form: every result sums the window positions that reach it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.coordinates import Sizes
from ...ir.graph import Node
from ...ir.layout import Layout
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ..config_key import window_of
from ..context import GroupContext
from ..family import register_family
from ..padded import read_padded
from ..sliding_reference import convolution_transpose
from .conv import ConvolutionFamily, Term, window_product
from .product import Product


def product_of(context: GroupContext) -> Product:
    """Return the product of a ConvTranspose.

    Along each axis the result at ``y`` takes input position ``(y + begin - tap * dilation) / stride`` if that is an
    integer.
    """
    node = context.anchor
    attributes = node.attributes
    value, weight = node.operand(0), node.operand(1)
    outputs = weight.shape[1]

    def factors(term: Term) -> tuple[Expr, Expr]:
        image, channel, *spatial = term.result
        positions = []
        whole = ex.const(True, "bool")
        for at, number, stride, dilation, begin in zip(
            spatial, term.taps, attributes.strides, attributes.dilations, attributes.pads
        ):
            scaled = ix.add(ix.add(at, begin), ix.multiply(ix.multiply(number, dilation), -1))
            positions.append(ix.floordiv(scaled, stride))
            rest = ix.modulo(scaled, stride)
            hit = ex.compare("eq", ex.coordinate(rest), ex.const(0, "i32"))
            if rest != 0:
                whole = hit if whole.op == "const" else ex.binary("and", whole, hit)
        element = read_padded(context, value, image, term.source, positions)
        return (
            ex.guard(whole, element, ex.const(0, element.dtype)),
            context.operands.read(weight, (term.source, ix.modulo(channel, outputs), *term.taps)),
        )

    channels = ix.floordiv(value.shape[1], attributes.group)
    return window_product(context, channels, outputs, factors, f"transposed-{window_of(attributes)}")


class TransposedConvolution(ConvolutionFamily):
    """``loom.ConvolutionTranspose``."""

    name = "conv_transpose"

    def weight_layouts(self, node: Node) -> dict[int, Layout]:
        """Return the layout of w [C, O, kernel...]: the order kernel..., C, O with whole vectors of output channels."""
        rank = node.operand(1).rank
        return {1: Layout((*range(2, rank), 0, 1), ((1, 4),))}

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return convolution_transpose(node, operands, sizes)

    def product(self, context: GroupContext) -> Product:
        return product_of(context)


register_family(TransposedConvolution())
