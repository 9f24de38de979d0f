"""Convolutions of any spatial rank, with groups, as products with an implicit matrix of patches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ....runtime.plan.record import record
from ...ir.coordinates import Sizes
from ...ir.graph import Node, Shape, Value
from ...ir.layout import Layout, channels_last
from ...ops.math.windows import WindowAttributes
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.lanes import LANES
from ...symbolic.polynomial import Dim
from ..config_key import window_of
from ..context import GroupContext
from ..draft import BuiltKernel
from ..family import Reuse, register_family
from ..geometry import unflatten
from ..groups import Region
from ..padded import read_padded
from ..sliding_reference import convolution
from . import depthwise
from .product import Product, divides
from .product_family import ProductFamily


@record
class Term:
    """One term of a result: ``inner`` is the input channel within its group, ``source`` among all channels."""

    result: tuple[Dim, ...]
    taps: tuple[Dim, ...]
    inner: Dim
    source: Dim


def window_product(
    context: GroupContext,
    taps: Sequence[int],
    channels: Dim,
    outputs: Dim,
    factors: Callable[[Term], tuple[Expr, Expr]],
    window: str,
    groups: int = 1,
) -> Product:
    """Return the product of pixels of the result times output channels, one batch a group.

    k runs over the ``taps`` of a result, then over the ``channels`` of a group, which has ``outputs`` output channels.
    """
    shape = context.anchor.output.shape
    pixels = [shape[0], *shape[2:]]
    steps = [*taps, channels]

    def output(group: Dim, m: Dim, n: Dim) -> tuple[Dim, ...]:
        image, *spatial = unflatten(m, pixels)
        return (image, ix.add(ix.multiply(group, outputs), n), *spatial)

    def terms(coordinates: Sequence[Dim], k: Dim) -> tuple[Expr, Expr]:
        *numbers, inner = unflatten(k, steps)
        source = ix.add(ix.multiply(ix.floordiv(coordinates[1], outputs), channels), inner)
        return factors(Term(tuple(coordinates), tuple(numbers), inner, source))

    return Product(groups, ix.product(pixels), outputs, ix.product(steps), output, terms, window)


def positions_of(attributes: WindowAttributes, spatial: Sequence[Dim], taps: Sequence[Dim]) -> list[Dim]:
    """Return the positions in the input of elements ``taps`` of the kernel, for the results at ``spatial``."""
    return [
        ix.add(ix.add(ix.multiply(at, stride), ix.multiply(number, dilation)), -begin)
        for at, number, stride, dilation, begin in zip(
            spatial, taps, attributes.strides, attributes.dilations, attributes.pads
        )
    ]


def product_of(context: GroupContext) -> Product:
    """Return the product of a Conv."""
    node = context.anchor
    attributes = node.attributes
    value, weight = node.operand(0), node.operand(1)

    def factors(term: Term) -> tuple[Expr, Expr]:
        image, channel, *spatial = term.result
        return (
            read_padded(context, value, image, term.source, positions_of(attributes, spatial, term.taps)),
            context.operands.read(weight, (channel, term.inner, *term.taps)),
        )

    outputs = ix.floordiv(node.output.shape[1], attributes.group)
    window = window_of(attributes)
    return window_product(context, attributes.kernel, weight.shape[1], outputs, factors, window, attributes.group)


def fills_vectors(anchor: Node) -> bool:
    """Return whether vectors of output channels end where groups do, if there are several."""
    groups = anchor.attributes.group
    return bool(groups == 1 or divides(LANES, ix.floordiv(anchor.output.shape[1], groups)))


class ConvolutionFamily(ProductFamily):
    """Base of convolutions and transposed convolutions."""

    def vector_axis(self, anchor: Node) -> int | None:
        """Return the axis of channels."""
        return 1

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

    def vector_axis(self, anchor: Node) -> int | None:
        return super().vector_axis(anchor) if depthwise.suits(anchor) or fills_vectors(anchor) else None

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

    def build(self, context: GroupContext) -> BuiltKernel:
        return depthwise.build(context) if depthwise.applies(context) else super().build(context)


register_family(Convolution())
