"""MaxRoiPool: the largest element of each bin of a region.

Regions have whole corners, and bins may overlap.  The largest of a bin is that of its rows' largest, so two reductions
find it, over the columns and over the rows, with the elements outside of the bin at -infinity.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import BOOL
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import expr as ex
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.activation_functions import number
from ..math.nodes import part, view
from ..math.reductions import reduce
from ..math.roi_axes import RoiAxisAttributes, ends, infer_axis
from ..registry import Builder, Inferred, Read, register


@record
class MaxRoiPoolAttributes:
    pooled_shape: tuple[int, ...]
    spatial_scale: float = 1.0


def _whole(value: Expr) -> Expr:
    """Round to the nearest whole number, halves away from zero."""
    nearest = ex.unary("floor", ex.unary("abs", value) + number(0.5))
    return ex.select(ex.compare("lt", value, number(0.0)), -nearest, nearest)


def _read_bin(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    """Return whether an element of an axis is in a bin."""
    attributes: RoiAxisAttributes = node.attributes
    region, row, element = coordinates
    # the number of the batch comes first
    first, last = map(_whole, ends(lambda at: read(0, [region, at + 1]), attributes.vertical, attributes.scale))
    one, bins = ex.const(1, "i32"), ex.const(attributes.bins, "i32")
    size = ex.binary("max", ex.cast(last - first, "i32") + one, one)
    # in integers: where a bin ends on a whole number, the rounding of a driver's quotient would move it
    begin = ex.cast(first, "i32") + ex.coordinate(row) * size / bins
    end = ex.cast(first, "i32") + ((ex.coordinate(row) + one) * size + bins - one) / bins
    own = ex.coordinate(element)
    return ex.binary("and", ex.compare("ge", own, begin), ex.compare("lt", own, end))


register(
    name="RoiBins",
    domain="loom",
    infer=infer_axis(BOOL),
    attributes=RoiAxisAttributes,
    gather=_read_bin,
    reads=2,
)


def _infer(node: Node) -> Inferred:
    value, regions, pooled = node.operand(0), node.operand(1), node.attributes.pooled_shape
    checks.require_same_type(node, [value, regions])
    checks.require(value.rank == 4, node, f"X of rank {value.rank}")
    checks.require(regions.rank == 2 and regions.shape[1] == 5, node, "rois are five numbers each")
    checks.require(len(pooled) == 2 and min(pooled) > 0, node, f"pooled_shape {pooled}")
    return [(value.dtype, (regions.shape[0], value.shape[1], *pooled))]


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: MaxRoiPoolAttributes = node.attributes
    source, regions = node.operand(0), node.operand(1)
    numbers = view(builder, part(builder, regions, 1, 0, 1), regions.shape[0])
    value = builder.op("Gather", source, builder.op("Cast", numbers, to=6), axis=0)
    lowest = builder.scalar(float("-inf"), source)
    for vertical in (False, True):
        bins = attributes.pooled_shape[0 if vertical else 1]
        inside = builder.op(
            "RoiBins",
            regions,
            domain="loom",
            vertical=vertical,
            bins=bins,
            size=source.shape[2 if vertical else 3],
            scale=attributes.spatial_scale,
        )
        # [regions, 1, bins, size, 1] and [regions, channels, 1, rows, columns], or the bins of the columns between
        axes, order = ((1, 4), 2) if vertical else ((1, 2), 3)
        mask = builder.op("Unsqueeze", inside, builder.constant(np.array(axes, np.int64)))
        spread = builder.op("Unsqueeze", value, builder.constant(np.array([order], np.int64)))
        masked = builder.op("Where", mask, spread, lowest)
        value = reduce(builder, masked, "max", (3 if vertical else 4,), keepdims=False)
    empty = builder.op("Equal", value, lowest)
    return [builder.op("Where", empty, builder.scalar(0.0, value), value)]


register(
    name="MaxRoiPool",
    infer=_infer,
    attributes=MaxRoiPoolAttributes,
    expand=_expand,
    types=(FLOATS,),
)
