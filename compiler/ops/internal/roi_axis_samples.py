"""``loom.RoiAxisSamples``: what samples of the bins of regions weigh elements of one axis (:mod:`.roi_samples`)."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ..math.activation_functions import number
from ..math.positions import as_float, extent, within
from ..math.roi_axes import RoiAxisSamplesAttributes, span
from ..registry import Inferred, Read, register


def _infer(node: Node) -> Inferred:
    attributes: RoiAxisSamplesAttributes = node.attributes
    size = 1 if attributes.kind == "outside" else attributes.size
    return [(FLOAT32, (node.operand(0).shape[0], attributes.bins, size))]


@record
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
    result = zero if attributes.kind == "mean" else number(-1.0 if attributes.kind == "largest" else 2.0)
    for offset in range(_NEAR[attributes.kind]):
        sample = near + number(float(offset))
        position = samples.at(sample)
        inside = ex.binary("and", ex.compare("lt", sample, samples.count), within(position, zero - one, last + one))
        clamped = ex.binary("min", ex.binary("max", position, zero), last)
        weight = ex.binary("max", one - ex.unary("abs", clamped - own), zero)
        if attributes.kind == "mean":
            result = result + ex.select(inside, weight, zero)
            continue
        # a sample has two neighbours, one of weight 0 where it is on an element; the last element is both
        base = ex.unary("floor", clamped)
        ends = ex.binary("and", ex.compare("ge", clamped, last), ex.compare("eq", own, last))
        touches = ex.binary("or", ex.compare("eq", base, own), ex.compare("eq", base + one, own))
        touches = ex.binary("and", inside, touches)
        if attributes.kind == "largest":
            result = ex.select(touches, ex.binary("max", result, weight), result)
        else:
            result = ex.select(touches, ex.binary("min", result, ex.select(ends, zero, weight)), result)
    return result / samples.number if attributes.kind == "mean" else result


register(
    name="RoiAxisSamples",
    domain="loom",
    infer=_infer,
    attributes=RoiAxisSamplesAttributes,
    gather=_read,
    reads=2,
)
