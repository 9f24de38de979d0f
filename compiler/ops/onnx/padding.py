"""Pad with every mode, and CenterCropPad."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import INT64
from ....runtime.plan.record import record
from ...ir.graph import Node, Shape, Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..registry import Axes, Builder, Inferred, RawNode, Read, register

MODES = ("constant", "reflect", "edge", "wrap")


@record
class PadAttributes:
    mode: str = "constant"


@record
class AxisPad:
    """The padding of one axis.

    Negative pads cut: the source keeps ``inner`` elements from ``first`` on.  ``before`` and ``after`` elements are
    then added to what is left.
    """

    first: Dim
    inner: Dim
    before: Dim
    after: Dim

    @property
    def size(self) -> Dim:
        return ix.add(ix.add(self.before, self.inner), self.after)

    @property
    def adds(self) -> bool:
        return not (checks.is_size(self.before, 0) and checks.is_size(self.after, 0))


def axis_pads(node: Node) -> list[AxisPad]:
    """Return the pads of every axis of input 0; input 1 lists all the first pads, then all the last ones."""
    shape = node.operand(0).shape
    pads = checks.static_dims(node, 1, "pads")
    axes: Sequence[int] = range(len(shape))
    if node.optional(3) is not None:
        axes = checks.normalise_axes(node, checks.static_integers(node, 3, "axes of Pad"), len(shape))
    checks.require(len(pads) == 2 * len(axes), node, f"{len(pads)} pads for {len(axes)} axes")
    result = [AxisPad(0, size, 0, 0) for size in shape]
    for number, axis in enumerate(axes):
        begin, end = pads[number], pads[number + len(axes)]
        cut_begin, cut_end = ix.maximum(ix.multiply(begin, -1), 0), ix.maximum(ix.multiply(end, -1), 0)
        inner = ix.add(ix.add(shape[axis], ix.multiply(cut_begin, -1)), ix.multiply(cut_end, -1))
        checks.require(not ix.less(inner, 0), node, f"axis {axis} of size {ix.text(shape[axis])} is cut below zero")
        inner = ix.maximum(inner, 0)
        result[axis] = AxisPad(cut_begin, inner, ix.maximum(begin, 0), ix.maximum(end, 0))
    return result


def _infer_pad(node: Node) -> Inferred:
    value = node.operand(0)
    checks.require_choice(node, "mode", MODES)
    pads = axis_pads(node)
    fill = node.optional(2)
    if fill is not None:
        if not (fill.is_constant and fill.dtype.is_float and value.dtype.is_float):  # of an attribute: float32
            checks.require_same_type(node, [value, fill])
        checks.require(checks.is_size(fill.elements, 1), node, "the value of padding is one number")
    if node.attributes.mode != "constant":
        for axis, pad in enumerate(pads):
            empty = pad.adds and checks.is_size(pad.inner, 0)
            checks.require(not empty, node, f"axis {axis} has no element to repeat")
    return [(value.dtype, tuple(pad.size for pad in pads))]


def _source_coordinate(mode: str, pad: AxisPad, coordinate: Dim) -> Dim:
    """Return the input coordinate that an output coordinate repeats; for ``constant`` it may be out of range."""
    inner = ix.add(coordinate, ix.multiply(pad.before, -1))
    if pad.adds and mode == "edge":
        inner = ix.minimum(ix.maximum(inner, 0), ix.add(pad.inner, -1))
    elif pad.adds and mode == "wrap":
        inner = ix.modulo(inner, pad.inner)
    elif pad.adds and mode == "reflect":
        # there and back again: 0 1 2 3 2 1 | 0 1 ...
        period = ix.multiply(ix.add(pad.inner, -1), 2)
        if checks.is_size(period, 0):
            inner = 0
        else:
            phase = ix.modulo(inner, period)
            inner = ix.minimum(phase, ix.add(period, ix.multiply(phase, -1)))
    return ix.add(pad.first, inner)


def _read_padded(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    mode = node.attributes.mode
    pads = axis_pads(node)
    element = read(0, [_source_coordinate(mode, pad, at) for pad, at in zip(pads, coordinates)])
    if mode != "constant":
        return element
    inside = ex.const(True, "bool")
    for pad, at in zip(pads, coordinates):
        if pad.adds:
            inside = ex.binary("and", inside, ex.in_range(at, pad.before, ix.add(pad.before, pad.inner)))
    return ex.guard(inside, element, _fill(node, read))


def _fill(node: Node, read: Read) -> Expr:
    value = node.optional(2)
    if value is None:
        return checks.literal(0, node.output.dtype)
    if value.static_value is not None and not checks.is_symbolic(value.static_value):
        number = value.static_value.reshape(-1)[0]
        return checks.literal(number.item() if value.dtype.name != "bfloat16" else float(number), node.output.dtype)
    return read(2, [0] * value.rank)


def _fold_pad(node: Node, data: np.ndarray, pads: np.ndarray, *rest: np.ndarray | None) -> np.ndarray:
    mode = node.attributes.mode
    window, widths = [], []
    for pad in axis_pads(node):
        first, inner, before, after = (
            checks.concrete(node, size, "a pad") for size in (pad.first, pad.inner, pad.before, pad.after)
        )
        window.append(slice(first, first + inner))
        widths.append((before, after))
    data = data[tuple(window)]
    if mode != "constant":
        return np.pad(data, widths, mode)
    fill = rest[0].reshape(-1)[0] if rest and rest[0] is not None else 0
    return np.pad(data, widths, constant_values=fill)


def _pad_to_inputs(raw: RawNode) -> None:
    """Replace the attributes ``pads`` and ``value`` of version 2 by inputs."""
    checks.attribute_to_input("pads", 1)(raw)
    value = raw.attributes.pop("value", 0.0)
    if value:
        checks.set_input(raw, 2, raw.add_constant(np.asarray(value, np.float32)))


register(
    name="Pad",
    attributes=PadAttributes,
    infer=_infer_pad,
    gather=_read_padded,
    fold=_fold_pad,
    static_inputs=(1, 3),
    negative_inputs=(1,),
    axes=Axes(3),
    adapters=((2, _pad_to_inputs),),
)


# -- CenterCropPad ---------------------------------------------------------------------------------------------------


@record
class CenterCropPadAttributes:
    axes: tuple[int, ...] | None = None


def _centered_shape(node: Node) -> list[Dim]:
    shape = list(node.operand(0).shape)
    sizes = checks.static_dims(node, 1, "the shape of CenterCropPad")
    attribute = node.attributes.axes
    axes = checks.normalise_axes(node, range(len(shape)) if attribute is None else attribute, len(shape))
    checks.require(len(sizes) == len(axes), node, f"{len(sizes)} sizes for {len(axes)} axes")
    for axis, size in zip(axes, sizes):
        shape[axis] = size
    return shape


def _expand_center_crop_pad(builder: Builder, node: Node) -> Sequence[Value]:
    """Build a slice and a Pad of it; the odd element is added, or removed, at the end."""
    value, shape = node.operand(0), tuple(_centered_shape(node))
    missing = [ix.add(wanted, ix.multiply(size, -1)) for size, wanted in zip(value.shape, shape)]
    starts = tuple(ix.floordiv(ix.maximum(ix.multiply(each, -1), 0), 2) for each in missing)
    inner = tuple(map(ix.minimum, value.shape, shape))
    value = builder.op("StridedSlice", value, domain="loom", starts=starts, steps=(1,) * value.rank, sizes=inner)
    added = [ix.maximum(each, 0) for each in missing]
    before = [ix.floordiv(each, 2) for each in added]
    after = [ix.ceildiv(each, 2) for each in added]
    return [padded_to(builder, value, [*before, *after], shape)]


def padded_to(builder: Builder, value: Value, pads: Sequence[Dim], shape: Shape) -> Value:
    """Return a value with pads of zeros, which has this shape then."""
    integers = builder.op("Dimensions", domain="loom", elements=tuple(pads), shape=(len(pads),), dtype=INT64)
    return builder.op("Fit", builder.op("Pad", value, integers), domain="loom", shape=shape)


register(
    name="CenterCropPad",
    attributes=CenterCropPadAttributes,
    infer=lambda node: [(node.operand(0).dtype, tuple(_centered_shape(node)))],
    expand=_expand_center_crop_pad,
    static_inputs=(1,),
)
