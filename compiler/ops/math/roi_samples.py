"""RoiAlign with as many samples in a bin as it has pixels, whose number is known at run time only.

Samples are a grid: what they are along one axis does not depend on the other.  So each axis is looked at on its own,
and the two are put together by products: in a mean the weight of an element is that of its row times that of its
column; the largest of weighted elements is where the product of two weights is the largest, or for negative elements
the smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ...ir.graph import Node, Value
from ...symbolic import expr as ex
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ..internal.reduction import reduce
from ..onnx.activations import number
from ..registry import Builder, Inferred, Read, register
from .positions import as_float, extent, within
from .roi_axes import RoiAxisAttributes, span


@dataclass(frozen=True, slots=True)
class RoiAxisSamplesAttributes(RoiAxisAttributes):
    """``kind``, for every element of the axis and every bin:

    ``mean``      what the element counts in a mean of the samples
    ``largest``   the largest weight that it has in a sample, -1 where no sample is near
    ``smallest``  the smallest one
    ``outside``   1 where the bin has a sample outside of the axis, or none at all; one number for all elements
    """

    kind: str
    shift: float
    at_least_one: bool  #: regions are at least one pixel in size


def _infer(node: Node) -> Inferred:
    attributes: RoiAxisSamplesAttributes = node.attributes
    size = 1 if attributes.kind == "outside" else attributes.size
    return [(FLOAT32, (node.operand(0).shape[0], attributes.bins, size))]


@dataclass(frozen=True, slots=True)
class _Samples:
    """Sample ``i`` of a bin, below ``count``, is at ``first + (i + 1/2) * step``."""

    first: Expr
    step: Expr
    count: Expr

    @property
    def number(self) -> Expr:
        """Return the number of samples, at least 1."""
        return ex.binary("max", self.count, number(1.0))

    def at(self, index: Expr) -> Expr:
        return self.first + (index + number(0.5)) * self.step

    def from_(self, position: Expr) -> Expr:
        """Return the first sample at or after ``position``; rounding may give the one before it."""
        # a region of no size has no samples, whatever the quotient is
        width = ex.binary("max", self.step, number(1e-20))
        return ex.binary("max", ex.unary("floor", (position - self.first) / width - number(0.5)), number(0.0))


def _samples(node: Node, region: Dim, row: Dim, read: Read) -> _Samples:
    attributes: RoiAxisSamplesAttributes = node.attributes
    start, length = span(
        lambda at: read(0, [region, at]),
        attributes.vertical,
        attributes.scale,
        attributes.shift,
        attributes.at_least_one,
    )
    bin_size = length / number(float(attributes.bins))
    count = ex.unary("ceil", bin_size)
    return _Samples(start + as_float(row) * bin_size, bin_size / ex.binary("max", count, number(1.0)), count)


#: Samples are more than half a pixel apart, or there is one.  Between the two neighbours of an element are at most 5.
#: A position before the first element counts as that one, so between there and the third one are at most 6.  Rounding
#: may find the first of them one too early.
_NEAR = {"mean": 6, "largest": 8, "smallest": 8}


def _read(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    attributes: RoiAxisSamplesAttributes = node.attributes
    region, row, element = coordinates
    samples = _samples(node, region, row, read)
    zero, half, one = number(0.0), number(0.5), number(1.0)
    last = extent(attributes.size) - one
    if attributes.kind == "outside":
        before = ex.compare("lt", samples.at(zero), zero - one)
        behind = ex.compare("gt", samples.at(samples.number - one), last + one)
        none = ex.compare("lt", samples.count, half)
        return ex.select(ex.binary("or", none, ex.binary("or", before, behind)), one, zero)
    own = as_float(element)
    if attributes.kind == "mean":
        near = samples.from_(own - one)
    else:
        near = samples.from_(ex.select(ex.compare("le", own, one), zero - one, own - one))
    found = zero if attributes.kind == "mean" else number(-1.0 if attributes.kind == "largest" else 2.0)
    for offset in range(_NEAR[attributes.kind]):
        sample = near + number(float(offset))
        position = samples.at(sample)
        inside = ex.binary("and", ex.compare("lt", sample, samples.count), within(position, zero - one, last + one))
        clamped = ex.binary("min", ex.binary("max", position, zero), last)
        weight = ex.binary("max", one - ex.unary("abs", clamped - own), zero)
        if attributes.kind == "mean":
            found = found + ex.select(inside, weight, zero)
            continue
        # a sample has two neighbours, one of weight 0 where it is on an element; the last element is both
        base = ex.unary("floor", clamped)
        ends = ex.binary("and", ex.compare("ge", clamped, last), ex.compare("eq", own, last))
        touches = ex.binary("or", ex.compare("eq", base, own), ex.compare("eq", base + one, own))
        touches = ex.binary("and", inside, touches)
        if attributes.kind == "largest":
            found = ex.select(touches, ex.binary("max", found, weight), found)
        else:
            found = ex.select(touches, ex.binary("min", found, ex.select(ends, zero, weight)), found)
    return found / samples.number if attributes.kind == "mean" else found


register(
    name="RoiAxisSamples",
    domain="loom",
    infer=_infer,
    attributes=RoiAxisSamplesAttributes,
    gather=_read,
    reads=2,
)


#: Gives the parameters of an axis, of the rows or of the columns
Axis = Callable[[bool], RoiAxisSamplesAttributes]


def _axis(builder: Builder, regions: Value, parameters: RoiAxisSamplesAttributes, kind: str) -> Value:
    attributes = replace(parameters, kind=kind)
    return builder.op(
        "RoiAxisSamples",
        regions,
        domain="loom",
        **{name: getattr(attributes, name) for name in RoiAxisSamplesAttributes.__dataclass_fields__},
    )


def _with_axes(builder: Builder, value: Value, *axes: int) -> Value:
    return builder.op("Unsqueeze", value, builder.constant(np.array(axes, np.int64)))


def adaptive_mean(builder: Builder, value: Value, regions: Value, axis: Axis) -> Value:
    """Average the samples of each region.

    Image of each region [R, C, H, W] in f32, and regions -> [R, C, rows, columns].
    """
    rows, columns = (
        _with_axes(builder, _axis(builder, regions, axis(vertical), "mean"), 1) for vertical in (True, False)
    )
    narrow = builder.op("MatMul", value, builder.op("Transpose", columns, perm=(0, 1, 3, 2)))
    return builder.op("MatMul", rows, narrow)


def adaptive_largest(builder: Builder, value: Value, regions: Value, axis: Axis) -> Value:
    """Take the largest of the weighted neighbours of all samples of each region; a sample outside gives 0.

    Image of each region [R, C, H, W] in f32, and regions -> [R, C, rows, columns].
    """
    image = _with_axes(builder, value, 2, 3)
    zero, lowest = builder.scalar(0.0, value), builder.scalar(float(np.finfo(np.float32).min), value)
    found: dict[str, Value] = {}
    for kind in ("largest", "smallest"):
        rows = _with_axes(builder, _axis(builder, regions, axis(True), kind), 1, 3, 5)
        columns = _with_axes(builder, _axis(builder, regions, axis(False), kind), 1, 2, 4)
        found[kind] = builder.op("Mul", image, builder.op("Mul", rows, columns))
        if kind == "largest":
            near = builder.op("GreaterOrEqual", builder.op("Min", rows, columns), zero)
    touched = builder.op("Where", near, builder.op("Max", found["largest"], found["smallest"]), lowest)
    result = reduce(builder, touched, "max", (4, 5), keepdims=False)
    outside = builder.op(
        "Max",
        _with_axes(builder, _axis(builder, regions, axis(True), "outside"), 1),
        builder.op(
            "Transpose", _with_axes(builder, _axis(builder, regions, axis(False), "outside"), 1), perm=(0, 1, 3, 2)
        ),
    )
    return builder.op("Where", builder.op("Greater", outside, zero), builder.op("Max", result, zero), result)
