"""Col2Im: sums of the elements of windows at their positions in an image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.reductions import reduce
from ..math.windows import per_axis, resolve_pads, window_count
from ..registry import Builder, Inferred, Read, register


@record
class ColumnTapsAttributes:
    """[N, C * taps, windows] -> [N, C, taps, image...]: what each tap of a window adds to each element of the image."""

    image: tuple[Dim, ...]
    block: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    windows: tuple[Dim, ...]


def _infer_taps(node: Node) -> Inferred:
    attributes: ColumnTapsAttributes = node.attributes
    value = node.operand(0)
    taps = int(np.prod(attributes.block))
    return [(value.dtype, (value.shape[0], ix.floordiv(value.shape[1], taps), taps, *attributes.image))]


def _read_tap(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    attributes: ColumnTapsAttributes = node.attributes
    batch, channel, tap, *image = coordinates
    inside = ex.const(True, "bool")
    window: Dim = 0
    rest = tap
    inner: list[Dim] = []
    for size in reversed(attributes.block):
        inner.insert(0, ix.modulo(rest, size))
        rest = ix.floordiv(rest, size)
    for axis, place in enumerate(image):
        stride = attributes.strides[axis]
        distance = ix.add(place, ix.add(attributes.pads[axis], ix.multiply(inner[axis], -attributes.dilations[axis])))
        number_of_window = ix.floordiv(distance, stride)
        if stride > 1:
            remainder = ex.coordinate(ix.modulo(distance, stride))
            inside = ex.binary("and", inside, ex.compare("eq", remainder, ex.const(0, "i32")))
        inside = ex.binary("and", inside, ex.in_range(number_of_window, 0, attributes.windows[axis]))
        window = ix.add(ix.multiply(window, attributes.windows[axis]), number_of_window)
    taps = int(np.prod(attributes.block))
    value = read(0, [batch, ix.add(ix.multiply(channel, taps), tap), window])
    return ex.guard(inside, value, ex.const(0, value.dtype))


register(
    name="ColumnTaps",
    domain="loom",
    infer=_infer_taps,
    attributes=ColumnTapsAttributes,
    gather=_read_tap,
    reads=2,
)


@record
class Col2ImAttributes:
    dilations: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None


def _column_taps(node: Node) -> ColumnTapsAttributes:
    attributes: Col2ImAttributes = node.attributes
    image = tuple(checks.static_dims(node, 1, "image_shape"))
    block = tuple(checks.static_integers(node, 2, "block_shape"))
    checks.require(len(image) == len(block) > 0, node, f"an image of {len(image)} axes, blocks of {len(block)}")
    fits = min(block) > 0 and not any(ix.less(size, 0) for size in image)
    checks.require(fits, node, f"blocks of {block} in an image of {checks.describe_shape(image)}")
    strides = per_axis(node, attributes.strides, len(image), "strides")
    dilations = per_axis(node, attributes.dilations, len(image), "dilations")
    pads = resolve_pads(node, "NOTSET", attributes.pads, image, block, strides, dilations)
    windows = tuple(
        window_count(node, size, kernel, stride, dilation, pads[axis], pads[len(image) + axis])
        for axis, (size, kernel, stride, dilation) in enumerate(zip(image, block, strides, dilations))
    )
    return ColumnTapsAttributes(image, block, strides, pads, dilations, windows)


def _infer_col2im(node: Node) -> Inferred:
    value, taps = node.operand(0), _column_taps(node)
    size = int(np.prod(taps.block))
    windows = checks.describe_shape(taps.windows)
    text = f"columns of shape {checks.describe_shape(value.shape)} for blocks {taps.block} in {windows} windows"
    checks.require(value.rank == 3, node, text)
    checks.require_equal(node, ix.modulo(value.shape[1], size), 0, text)
    checks.require_equal(node, value.shape[2], ix.product(taps.windows), text)
    return [(value.dtype, (value.shape[0], ix.floordiv(value.shape[1], size), *taps.image))]


def _expand_col2im(builder: Builder, node: Node) -> Sequence[Value]:
    taps = _column_taps(node)
    spread = builder.op(
        "ColumnTaps",
        node.operand(0),
        domain="loom",
        image=taps.image,
        block=taps.block,
        strides=taps.strides,
        pads=taps.pads,
        dilations=taps.dilations,
        windows=taps.windows,
    )
    return [reduce(builder, spread, "sum", (2,), keepdims=False)]


register(
    name="Col2Im",
    infer=_infer_col2im,
    attributes=Col2ImAttributes,
    expand=_expand_col2im,
    types=(FLOATS | {"int32"},),
    static_inputs=(1, 2),
)
