"""Transposed convolutions: every result sums the taps that reach it.

Along an axis of stride s and dilation d, tap k adds input i to the result at y if ``y + begin = s*i + d*k``.  With
``g = gcd(s, d)`` and ``k = p + (s/g)*j``, the right side is ``s*(i + (d/g)*j) + d*p``.  So p, rest and period in
``y + begin = s*period + d*p + rest`` with ``p < s/g`` and ``rest < g`` name each result once, and the taps that reach
it are those of its p, with the inputs ``i = period - (d/g)*j``; where rest is not 0 there are none.  The s pairs of p
and rest are the *residues* of a period.  They read the same inputs: they are columns of the product, beside the
channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....runtime.plan.record import record
from ...ir.coordinates import Sizes
from ...ir.graph import Node, Value
from ...ir.layout import Layout
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.lanes import LANES
from ...symbolic.polynomial import Dim
from ..config_key import window_of
from ..context import GroupContext
from ..family import Reuse, register_family
from ..geometry import unflatten
from ..groups import Region
from ..padded import read_padded
from ..sliding_reference import convolution_transpose
from .conv import ConvolutionFamily, Term, fills_vectors, window_product
from .product import Product, divides


@record
class PeriodicAxis:
    """A spatial axis of ``size`` results, after ``begin`` that the padding cuts off."""

    kernel: int
    stride: int
    dilation: int
    begin: int
    size: Dim

    @property
    def common(self) -> int:
        """The largest common divisor of stride and dilation."""
        return math.gcd(self.stride, self.dilation)

    @property
    def spacing(self) -> int:
        """Distance of the taps that reach the same result."""
        return self.stride // self.common

    @property
    def taps(self) -> int:
        """Taps of a residue; of some residues the last is beyond the kernel."""
        return -(-self.kernel // self.spacing)

    @property
    def first_period(self) -> int:
        """The first period with a result in range."""
        span = (self.spacing - 1) * self.dilation + self.common - 1  # from the first residue of a period to the last
        return -((span - self.begin) // self.stride)

    @property
    def periods(self) -> Dim:
        """Number of periods from the first to the last with a result in range."""
        last = ix.floordiv(ix.add(self.size, self.begin - 1), self.stride)
        return ix.add(last, 1 - self.first_period)

    @property
    def is_clipped(self) -> bool:
        """Whether some residues of the periods are out of range."""
        if self.result(0, 0) != 0:
            return True
        last = self.result(ix.add(self.periods, -1), self.stride - 1)
        return ix.add(last, 1) != self.size

    def result(self, period: Dim, residue: Dim) -> Dim:
        """Return the position of a result; periods are counted from the first."""
        first, rest = ix.modulo(residue, self.spacing), ix.floordiv(residue, self.spacing)
        start = ix.add(ix.multiply(ix.add(period, self.first_period), self.stride), -self.begin)
        return ix.add(start, ix.add(ix.multiply(first, self.dilation), rest))

    def reaching(self, at: Dim, number: Dim) -> tuple[Dim, Dim, Dim]:
        """Return, for tap ``number`` of the result ``at``: the input's position, the tap in the kernel, and rest."""
        whole = ix.add(at, self.begin)
        rest, whole = ix.modulo(whole, self.common), ix.floordiv(whole, self.common)
        step = self.dilation // self.common
        first = ix.modulo(ix.multiply(whole, pow(step, -1, self.spacing)), self.spacing)
        period = ix.floordiv(ix.add(whole, ix.multiply(first, -step)), self.spacing)
        position = ix.add(period, ix.multiply(number, -step))
        return position, ix.add(first, ix.multiply(number, self.spacing)), rest


def axes_of(node: Node) -> list[PeriodicAxis]:
    """Return the spatial axes of a ``loom.ConvolutionTranspose``."""
    attributes = node.attributes
    return [
        PeriodicAxis(*each)
        for each in zip(
            attributes.kernel, attributes.strides, attributes.dilations, attributes.pads, node.output.shape[2:]
        )
    ]


def _residues_are_lanes(node: Node) -> bool:
    """Return whether four neighbouring columns are residues of the last axis, for they are no output channels."""
    return node.attributes.strides[-1] % LANES == 0 and not divides(LANES, node.operand(1).shape[1])


def product_of(context: GroupContext) -> Product:
    """Return the product of a ConvTranspose: its rows are periods, its columns residues and output channels."""
    node = context.anchor
    value, weight = node.operand(0), node.operand(1)
    outputs = weight.shape[1]
    axes = axes_of(node)

    def factors(term: Term) -> tuple[Expr, Expr]:
        image, channel, *spatial = term.result
        reached = [axis.reaching(at, number) for axis, at, number in zip(axes, spatial, term.taps)]
        positions, taps, rests = zip(*reached)
        exists = ex.const(True, "bool")
        for axis, tap, rest in zip(axes, taps, rests):
            exists = ex.binary("and", exists, ex.in_range(tap, 0, axis.kernel))
            exists = ex.binary("and", exists, ex.in_range(rest, 0, 1))
        factor = context.operands.read(weight, (term.source, ix.modulo(channel, outputs), *taps))
        return (
            read_padded(context, value, image, term.source, positions),
            ex.guard(exists, factor, ex.const(0, factor.dtype)),
        )

    periods = [node.output.shape[0], *(axis.periods for axis in axes)]
    columns: list[Dim] = [axis.stride for axis in axes]
    inner = len(columns) - 1 if _residues_are_lanes(node) else len(columns)
    columns.insert(inner, outputs)

    def output(group: Dim, m: Dim, n: Dim) -> tuple[Dim, ...]:
        image, *period = unflatten(m, periods)
        residues = unflatten(n, columns)
        channel = residues.pop(inner)
        spatial = (axis.result(*each) for axis, *each in zip(axes, period, residues))
        return (image, ix.add(ix.multiply(group, outputs), channel), *spatial)

    channels = ix.floordiv(value.shape[1], node.attributes.group)
    taps = [axis.taps for axis in axes]
    window, group = f"transposed-{window_of(node.attributes)}", node.attributes.group
    product = window_product(context, taps, channels, outputs, factors, window, group)
    clipped = tuple(number for number, axis in enumerate(axes, 2) if axis.is_clipped)
    return replace(product, m=ix.product(periods), n=ix.product(columns), output=output, clipped=clipped)


class TransposedConvolution(ConvolutionFamily):
    """``loom.ConvolutionTranspose``."""

    name = "conv_transpose"

    def vector_axis(self, anchor: Node) -> int | None:
        return super().vector_axis(anchor) if fills_vectors(anchor) else None

    def weight_layouts(self, node: Node) -> dict[int, Layout]:
        """Return the layout of w [C, O, kernel...]: the order kernel..., C, O with whole vectors of columns."""
        rank = node.operand(1).rank
        if _residues_are_lanes(node):
            return {1: Layout((*range(2, rank - 1), 0, 1, rank - 1), ((rank - 1, LANES),))}
        return {1: Layout((*range(2, rank), 0, 1), ((1, LANES),))}

    def reuse(self, region: Region, user: Node, operand: Value) -> Reuse:
        """Return ``MANY`` where a result has one tap, as kernels of the strides' size have."""
        reuse = super().reuse(region, user, operand)
        one_tap = all(axis.taps == 1 for axis in axes_of(region.anchor))
        return Reuse.MANY if reuse is Reuse.WINDOW and one_tap else reuse

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return convolution_transpose(node, operands, sizes)

    def product(self, context: GroupContext) -> Product:
        return product_of(context)


register_family(TransposedConvolution())
