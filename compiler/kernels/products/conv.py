"""Convolutions of any spatial rank, with groups, as products with an implicit matrix of patches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...ir.coordinates import Sizes
from ...ir.graph import Node, Shape, Value
from ...ir.layout import Layout, channels_last
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ..config_key import window_of
from ..context import GroupContext
from ..draft import Built
from ..family import Reuse, register_family
from ..geometry import unflatten
from ..groups import Region
from ..padded import read_padded
from ..sliding_reference import convolution
from . import depthwise
from .product import Product, ProductFamily


def output_of(pixels: Sequence[Dim], outputs: Dim) -> Callable[[Dim, Dim, Dim], tuple[Dim, ...]]:
    """Return a function from group, pixel and output channel to the coordinates of a result.

    ``pixels`` are the sizes of the image axis and of the spatial axes, ``outputs`` the number of channels of a group.
    """

    def output(group: Dim, m: Dim, n: Dim) -> tuple[Dim, ...]:
        image, *spatial = unflatten(m, pixels)
        return (image, ix.add(ix.multiply(group, outputs), n), *spatial)

    return output


def product_of(context: GroupContext) -> Product:
    """Return the product of a Conv: pixels times output channels, one batch a group.

    k runs over the window, then over the group's channels.
    """
    node = context.anchor
    attributes = node.attributes
    value, weight, result = node.operand(0), node.operand(1), node.output
    channels = weight.shape[1]
    outputs = ix.floordiv(result.shape[1], attributes.group)
    pixels = (result.shape[0], *result.shape[2:])

    def terms(coordinates: Sequence[Dim], k: Dim) -> tuple[Expr, Expr]:
        image, channel, *spatial = coordinates
        *taps, inner = unflatten(k, [*attributes.kernel, channels])
        group = ix.floordiv(channel, outputs)
        source = ix.add(ix.multiply(group, channels), inner)
        positions = [
            ix.add(ix.add(ix.multiply(at, stride), ix.multiply(tap, dilation)), -begin)
            for at, tap, stride, dilation, begin in zip(
                spatial, taps, attributes.strides, attributes.dilations, attributes.pads
            )
        ]
        return (
            read_padded(context, value, image, source, positions),
            context.operands.read(weight, (channel, inner, *taps)),
        )

    k = ix.product([*attributes.kernel, channels])
    pixel_count = ix.product(list(pixels))
    output = output_of(pixels, outputs)
    return Product(attributes.group, pixel_count, outputs, k, output, terms, window_of(attributes))


class ConvolutionFamily(ProductFamily):
    """Base of convolutions and transposed convolutions."""

    def output_layout(self, node: Node) -> Layout:
        return channels_last(node.output.rank)

    def preferred_axes(self, region: Region) -> list[tuple[Value, int]]:
        """Return the channels of the input as the axis to store innermost."""
        return [(region.anchor.operand(0), 1)]

    def reuse(self, region: Region, user: Node, operand: Value) -> Reuse:
        """Return ``WINDOW`` for windows of several positions, else ``MANY``: each result channel computes elements
        again.
        """
        if user is not region.anchor:
            return Reuse.ONCE
        return Reuse.WINDOW if math.prod(region.anchor.attributes.kernel) > 1 else Reuse.MANY


class Convolution(ConvolutionFamily):
    """``loom.Convolution``."""

    name = "conv"

    def weight_layouts(self, node: Node) -> dict[int, Layout]:
        """Return the layout of w [O, I, kernel...]: the order kernel..., I, O with whole vectors of output channels."""
        rank = node.operand(1).rank
        return {1: Layout((*range(2, rank), 1, 0), ((0, 4),))}

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return convolution(node, operands, sizes)

    def product(self, context: GroupContext) -> Product:
        return product_of(context)

    def stored_run(self, context: GroupContext) -> Shape | None:
        anchor = context.anchor
        return depthwise.stored_run(anchor) if depthwise.suits(anchor) else super().stored_run(context)

    def build(self, context: GroupContext) -> Built:
        return depthwise.build(context) if depthwise.applies(context) else super().build(context)


register_family(Convolution())
