"""Pools: windows slid over the spatial axes of [N, C, spatial...].

An average divides by the number of elements that it saw; with ``count_include_pad`` also by those of the padding, but
not by what a window of ``ceil_mode`` covers beyond it.  A window of padding alone has the average 0, the norm 0 and the
lowest number as its maximum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import INT64, DType
from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.nodes import fields_of
from ..math.windows import SizedWindowAttributes, per_axis, resolve_pads, slide, window_count
from ..registry import Builder, Infer, Inferred, Read, register

_POOLED = FLOATS | {"int8", "uint8"}


@record
class PoolAttributes(SizedWindowAttributes):
    """``kind`` is max, average or lp; ``p`` is the exponent of lp.

    Output element ``o`` of an axis covers input positions ``o * stride - begin + k * dilation`` for every ``k`` below
    the kernel's size, if they are in the input.  ``output_spatial`` is the number of windows.
    """

    kind: str
    count_include_pad: bool
    p: int


def _infer_kernel(node: Node) -> Inferred:
    attributes: PoolAttributes = node.attributes
    value = node.operand(0)
    return [(value.dtype, (*value.shape[:2], *attributes.output_spatial))]


register(
    name="Pool",
    domain="loom",
    infer=_infer_kernel,
    attributes=PoolAttributes,
    family="window",
    types=(_POOLED,),
)


@record
class MaxPoolAttributes:
    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    dilations: tuple[int, ...] | None = None
    kernel_shape: tuple[int, ...] = ()
    pads: tuple[int, ...] | None = None
    storage_order: int = 0
    strides: tuple[int, ...] | None = None


@record
class AveragePoolAttributes:
    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    count_include_pad: int = 0
    dilations: tuple[int, ...] | None = None
    kernel_shape: tuple[int, ...] = ()
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None


@record
class LpPoolAttributes:
    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    dilations: tuple[int, ...] | None = None
    kernel_shape: tuple[int, ...] = ()
    p: int = 2
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None


def explicit(node: Node, kind: str) -> PoolAttributes:
    """Make the padding and output sizes of an ONNX pool explicit, and return its parameters."""
    attributes = node.attributes
    value = node.operand(0)
    kernel = tuple(attributes.kernel_shape)
    checks.require(value.rank >= 3, node, f"a pool needs spatial axes; the input has rank {value.rank}")
    count = value.rank - 2
    checks.require(len(kernel) == count, node, f"kernel_shape {kernel} does not fit {count} spatial axes")
    kernel = per_axis(node, kernel, count, "kernel_shape")
    strides = per_axis(node, attributes.strides, count, "strides")
    dilations = per_axis(node, attributes.dilations, count, "dilations")
    spatial = value.shape[2:]
    pads = resolve_pads(node, attributes.auto_pad, attributes.pads, spatial, kernel, strides, dilations)
    # under VALID every window is whole, whatever ceil_mode says
    ceil_mode = bool(attributes.ceil_mode) and attributes.auto_pad != "VALID"
    output = tuple(
        window_count(
            node, spatial[axis], kernel[axis], strides[axis], dilations[axis], pads[axis], pads[count + axis], ceil_mode
        )
        for axis in range(count)
    )
    include, p = bool(getattr(attributes, "count_include_pad", 0)), int(getattr(attributes, "p", 2))
    checks.require(p > 0, node, f"p must be positive, not {p}")
    return PoolAttributes(kernel, strides, pads, dilations, output, kind, include, p)


def _pool(builder: Builder, node: Node, kind: str) -> Value:
    return slide(builder, "Pool", explicit(node, kind), node.operand(0))


def _infer_pool(kind: str) -> Infer:
    def infer(node: Node) -> Inferred:
        value = node.operand(0)
        return [(value.dtype, (*value.shape[:2], *explicit(node, kind).output_spatial))]

    return infer


# -- MaxPool ---------------------------------------------------------------------------------------------------------


def _infer_max_pool(node: Node) -> Inferred:
    ((dtype, shape),) = _infer_pool("max")(node)
    return [(dtype, shape), (INT64, shape)]


@record
class MaxPoolIndicesAttributes(SizedWindowAttributes):
    """With ``column_major`` the spatial axes count in reverse order."""

    column_major: bool


#: a window is searched by one expression that holds all its elements
_LARGEST_INDEXED_WINDOW = 128


def _infer_indices(node: Node) -> Inferred:
    return [(INT64, (*node.operand(0).shape[:2], *node.attributes.output_spatial))]


def _gather_indices(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    """Return the flat position, in the whole input, of the first largest element of each window."""
    attributes: MaxPoolIndicesAttributes = node.attributes
    shape, dtype = node.operand(0).shape, node.operand(0).dtype
    if math.prod(attributes.kernel) > _LARGEST_INDEXED_WINDOW:
        raise UnsupportedError(f"Indices of a MaxPool over {attributes.kernel} are not supported", origin=node.origin)
    lowest, highest = (ex.const(bound, dtype.compute) for bound in _bounds(dtype))
    largest, index = lowest, ex.const(-1, "i32")
    spatial = range(2, len(shape))
    order = (0, 1, *(reversed(spatial) if attributes.column_major else spatial))
    for offsets in itertools.product(*map(range, attributes.kernel)):
        inside = ex.const(True, "bool")
        source = list(coordinates[:2])
        for axis, offset in enumerate(offsets):
            start = ix.multiply(coordinates[2 + axis], attributes.strides[axis])
            place = ix.add(start, offset * attributes.dilations[axis] - attributes.pads[axis])
            inside = ex.binary("and", inside, ex.in_range(place, 0, shape[2 + axis]))
            source.append(place)
        position: Dim = 0
        for axis in order:
            position = ix.add(ix.multiply(position, shape[axis]), source[axis])
        value = ex.guard(inside, read(0, source), lowest)
        # the first element counts whatever it is, but for NaN: nothing is larger than the lowest number
        first = ex.binary("and", ex.compare("lt", index, ex.const(0, "i32")), ex.compare("le", value, highest))
        larger = ex.binary("and", inside, ex.binary("or", ex.compare("gt", value, largest), first))
        index = ex.select(larger, ex.coordinate(position), index)
        largest = ex.select(larger, value, largest)
    return ex.cast(ex.binary("max", index, ex.const(0, "i32")), "i64")


def _bounds(dtype: DType) -> tuple[float | int, float | int]:
    """Return the lowest and the highest finite number of ``dtype`` in its compute type."""
    if dtype.is_float:
        return float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)
    return dtype.integer_range


register(
    name="MaxPoolIndices",
    domain="loom",
    infer=_infer_indices,
    attributes=MaxPoolIndicesAttributes,
    gather=_gather_indices,
    types=(_POOLED,),
    reads=9,
)


def _expand_max_pool(builder: Builder, node: Node) -> Sequence[Value]:
    attributes = explicit(node, "max")
    # without readers it is dead code
    indices = builder.op(
        "MaxPoolIndices",
        node.operand(0),
        domain="loom",
        **fields_of(attributes, SizedWindowAttributes),
        column_major=bool(node.attributes.storage_order),
    )
    return [_pool(builder, node, "max"), indices]


register(
    name="MaxPool",
    infer=_infer_max_pool,
    attributes=MaxPoolAttributes,
    expand=_expand_max_pool,
    types=(_POOLED,),
)


# -- AveragePool and LpPool ------------------------------------------------------------------------------------------

register(
    name="AveragePool",
    infer=_infer_pool("average"),
    attributes=AveragePoolAttributes,
    expand=lambda builder, node: [_pool(builder, node, "average")],
    types=(FLOATS,),
)
register(
    name="LpPool",
    infer=_infer_pool("lp"),
    attributes=LpPoolAttributes,
    expand=lambda builder, node: [_pool(builder, node, "lp")],
    types=(FLOATS,),
)
