"""Resize and Upsample where scales, the region of interest or positions are floats of the run, or sizes follow from an
aspect ratio that a run decides.

A device computes the sizes, which are read back, and the positions, in onnxruntime's float32 arithmetic; quotients that
devices round wrongly are put right where rounding decides, at halves and whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....runtime.plan.dtypes import BOOL, FLOAT32, INT32, INT64
from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..math.axis_maps import AxisMap, ReadMap
from ..math.nodes import fields_of, in_type, integer
from ..math.quotients import rounded_quotient
from ..math.resize_antialias import computed_filter_matrix, resample
from ..math.resize_positions import TIE, ResizedAxis
from ..registry import Builder, Inferred, Read, SplitBuilder, register

_FLOAT32 = frozenset({"float32"})


@record
class ResizeAttributes:
    antialias: int = 0
    axes: tuple[int, ...] | None = None
    coordinate_transformation_mode: str = "half_pixel"
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: str = "stretch"
    mode: str = "nearest"
    nearest_mode: str = "round_prefer_floor"


@record
class ByFloatsAttributes(ResizeAttributes):
    unchanged: int = 0  #: how many of the axes in front have no scales and no sizes


def _axes(node: Node) -> tuple[int, ...]:
    """Return the axes that have scales or sizes, in their order."""
    attributes: ByFloatsAttributes = node.attributes
    rank = node.operand(0).rank
    axes = range(rank) if attributes.axes is None else attributes.axes
    return checks.normalise_axes(node, axes, rank)[attributes.unchanged :]


# -- sizes -----------------------------------------------------------------------------------------------------------


def _infer_sizes(node: Node) -> Inferred:
    axes = _axes(node)
    checks.require(node.operand(1).shape == (len(axes),), node, f"there are no {len(axes)} scales")
    return [(INT32, (len(axes),))]


def _size_before(node: Node, coordinates: Sequence[Dim]) -> Expr:
    """Return the size, as float32, of the axis that the element at ``coordinates`` is about."""
    shape = node.operand(0).shape
    *others, last = (ex.cast(ex.coordinate(shape[axis]), "f32") for axis in _axes(node))
    size = last
    for number, each in enumerate(others):
        here = ex.compare("eq", ex.coordinate(coordinates[0]), ex.const(number, "i32"))
        size = ex.select(here, each, size)
    return size


def _read_size(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    """Compute ``floor(size * scale)`` in float32; -1 where a scale is not positive, or the size has over 31 bits.

    Sizes that keep aspect ratios are the nearest integers, halves rounded up, and may be 0.
    """
    keeps = node.attributes.keep_aspect_ratio_policy != "stretch"
    scale = read(1, coordinates)
    after = _size_before(node, coordinates) * scale
    after = ex.unary("floor", after * ex.const(2.0, "f32") if keeps else after)
    lowest = ex.compare("ge" if keeps else "gt", scale, ex.const(0.0, "f32"))
    fits = ex.binary("and", lowest, ex.compare("lt", after, ex.const(2**31, "f32")))
    fits = ex.binary("and", fits, ex.unary("not", ex.unary("isnan", after)))
    size = ex.cast(after, "i32")
    if keeps:  # half of the doubled size, rounded up: a float32 sum would be rounded before
        size = ex.binary("shr", size + ex.const(1, "i32"), ex.const(1, "i32"))
    return ex.select(fits, size, ex.const(-1, "i32"))


register(
    name="ResizedSizes",
    domain="loom",
    attributes=ByFloatsAttributes,
    infer=_infer_sizes,
    gather=_read_size,
    types=(checks.MOVED, _FLOAT32),
    reads=1,
)


def _infer_ratios(node: Node) -> Inferred:
    axes, shape = _axes(node), node.operand(0).shape
    checks.require(node.operand(1).shape == (len(axes),), node, f"there are no {len(axes)} sizes")
    has_elements = all(ix.less(0, shape[axis]) for axis in axes)
    checks.require(has_elements, node, "an axis without elements has no aspect ratio")
    return [(FLOAT32, (len(axes),))]


def _read_ratio(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    """Compute how many times as large an axis is afterwards, rounded once to float32."""
    return rounded_quotient(ex.cast(read(1, coordinates), "f32"), _size_before(node, coordinates))


register(
    name="ResizedRatios",
    domain="loom",
    attributes=ByFloatsAttributes,
    infer=_infer_ratios,
    gather=_read_ratio,
    types=(checks.MOVED, checks.INDICES),
    reads=1,
)


# -- positions -------------------------------------------------------------------------------------------------------


class _Positions:
    """Source positions along one axis of sizes ``before`` and ``after``, as tensors [after] of float32.

    ``scale`` is that of the model, or follows from the sizes.
    """

    def __init__(self, builder: Builder, before: Dim, after: Dim, scale: Value | None, roi: Sequence[Value]) -> None:
        self._builder = builder
        self._before, self._after = before, after
        self.scale = self._apply("Div", self._size(after), self._size(before)) if scale is None else scale
        self._roi = roi

    def _apply(self, op: str, *values: Value | float) -> Value:
        return self._builder.op(op, *(self._number(value) if isinstance(value, float) else value for value in values))

    def _number(self, value: float) -> Value:
        return self._builder.constant(np.array(value, np.float32))

    def _size(self, size: Dim) -> Value:
        return in_type(self._builder, integer(self._builder, size), FLOAT32)

    def _quotient(self, value: Value, divisor: Value) -> Value:
        """Divide: where half of an integer times the divisor is the value, that is the quotient."""
        quotient = self._apply("Div", value, divisor)
        near = self._apply("Mul", self._apply("Round", self._apply("Mul", quotient, 2.0)), 0.5)
        return self._apply("Where", self._apply("Equal", self._apply("Mul", near, divisor), value), near, quotient)

    def exact(self, mode: str) -> Value:
        """Return the positions by ONNX's formula for a ``coordinate_transformation_mode``."""
        steps = (integer(self._builder, each) for each in (0, self._after, 1))
        at = in_type(self._builder, self._builder.op("Range", *steps), FLOAT32)
        several = in_type(self._builder, integer(self._builder, ix.minimum(ix.add(self._after, -1), 1)), BOOL)
        last, most = self._size(ix.add(self._before, -1)), self._size(ix.maximum(ix.add(self._after, -1), 1))
        if mode == "asymmetric":
            return self._quotient(at, self.scale)
        if mode == "align_corners":
            return self._quotient(self._apply("Mul", at, last), most)
        if mode == "tf_crop_and_resize":
            start, end = self._roi
            span = self._apply("Mul", self._apply("Sub", end, start), last)
            inside = self._quotient(self._apply("Mul", at, span), most)
            begin = self._apply("Mul", start, last)
            middle = self._apply("Mul", self._apply("Add", start, end), self._apply("Mul", last, 0.5))
            return self._apply("Where", several, self._apply("Add", begin, inside), middle)
        position = self._quotient(self._apply("Add", at, 0.5), self.scale)
        if mode == "tf_half_pixel_for_nn":
            return position
        position = self._apply("Sub", position, 0.5)
        if mode == "pytorch_half_pixel":
            return self._apply("Where", several, position, 0.0)
        if mode == "half_pixel_symmetric":
            whole = self._apply("Mul", self.scale, self._size(self._before))
            shift = self._apply("Sub", 1.0, self._quotient(self._size(self._after), whole))
            position = self._apply(
                "Add", position, self._apply("Mul", self._size(self._before), self._apply("Mul", shift, 0.5))
            )
        return position

    def nearest(self, exact: Value, nearest_mode: str) -> Value:
        """Return the whole number that is nearest to each position."""
        floor = self._apply("Floor", exact)
        if nearest_mode == "floor":
            return floor
        up = self._apply("Ceil", exact)
        if nearest_mode == "ceil":
            return up
        if nearest_mode == "legacy":
            return self._apply("Where", self._apply("Less", self.scale, 1.0), up, floor)
        fraction = self._apply("Sub", exact, floor)
        half = 0.5 + TIE if nearest_mode == "round_prefer_floor" else 0.5 - TIE
        return self._apply("Where", self._apply("Greater", fraction, half), up, floor)


# -- samples at them -------------------------------------------------------------------------------------------------


def has_antialias(attributes: ResizeAttributes) -> bool:
    return bool(attributes.antialias) and attributes.mode != "nearest"


def require_antialias(node: Node) -> None:
    """Raise :class:`UnsupportedError` for antialiasing of other elements than floats, or of a region."""
    attributes, dtype = node.attributes, node.operand(0).dtype
    if not has_antialias(attributes):
        return
    if attributes.coordinate_transformation_mode == "tf_crop_and_resize" or not dtype.is_float:
        raise UnsupportedError(
            f"Resize of {dtype} with antialiasing and coordinate_transformation_mode "
            f"'{attributes.coordinate_transformation_mode}' is not supported",
            origin=node.origin,
            hint="floats, and any other coordinate_transformation_mode",
        )


def _infer_resized(node: Node) -> Inferred:
    value = node.operand(0)
    require_antialias(node)
    axes, sizes = _axes(node), checks.static_dims(node, 3, "sizes of Resize")
    checks.require(len(axes) == len(sizes), node, f"{len(sizes)} sizes for {len(axes)} axes")
    resized = dict(zip(axes, sizes))
    return [(value.dtype, tuple(resized.get(axis, size) for axis, size in enumerate(value.shape)))]


def _expand_resized(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: ByFloatsAttributes = node.attributes
    value, roi, scales = (node.optional(position) for position in range(3))
    assert value is not None, "the operand is not optional"
    crops = attributes.coordinate_transformation_mode == "tf_crop_and_resize"
    maps: list[AxisMap] = [None] * value.rank
    inside: list[int | None] = [None] * value.rank
    positions: list[Value] = []
    matrices: dict[int, Value] = {}

    def element(tensor: Value, at: int) -> Value:
        return builder.op("Gather", tensor, builder.constant(np.array(at)), axis=0)

    def operand(vector: Value) -> int:
        positions.append(vector)
        return len(positions)

    axes = _axes(node)
    rois = attributes.unchanged + len(axes)
    for number, axis in enumerate(axes):
        place = attributes.unchanged + number
        corners = [element(roi, at) for at in (place, rois + place)] if crops and roi is not None else []
        checks.require(not crops or bool(corners), node, "tf_crop_and_resize needs a roi")
        before, after = value.shape[axis], node.output.shape[axis]
        along = _Positions(builder, before, after, None if scales is None else element(scales, number), corners)
        exact = along.exact(attributes.coordinate_transformation_mode)
        if has_antialias(attributes):
            matrices[axis] = computed_filter_matrix(builder, attributes, exact, along.scale, before)
            continue
        if crops:
            inside[axis] = operand(exact)
        if attributes.mode == "nearest":
            maps[axis] = ReadMap(operand(along.nearest(exact, attributes.nearest_mode)))
        else:
            maps[axis] = ReadMap(inside[axis] or operand(exact))
    if matrices:
        return [resample(builder, value, matrices)]
    sampled = builder.op(
        "NearestSample" if attributes.mode == "nearest" else "Interpolate",
        value,
        *positions,
        domain="loom",
        sizes=node.output.shape,
        maps=tuple(maps),
        inside=tuple(inside),
        outside=attributes.extrapolation_value,
        kernel="cubic" if attributes.mode == "cubic" else "linear",
        coefficient=attributes.cubic_coeff_a,
        exclude_outside=bool(attributes.exclude_outside),
    )
    return [sampled]


register(
    name="ResizedByFloats",
    domain="loom",
    attributes=ByFloatsAttributes,
    infer=_infer_resized,
    expand=_expand_resized,
    types=(checks.MOVED, _FLOAT32, _FLOAT32, checks.INDICES),
    static_inputs=(3,),
)


def by_positions(builder: Builder, node: Node, axes: Mapping[int, ResizedAxis]) -> Value:
    """Build a Resize of ``axes`` whose positions are floats of the run, since no exact map to them is known."""
    resized = list(axes.values())
    corners = [corner for corners in zip(*(axis.roi for axis in resized)) for corner in corners]
    scales = [axis.scale for axis in resized if not axis.from_sizes]
    return builder.op(
        "ResizedByFloats",
        node.operand(0),
        builder.constant(np.array(corners, np.float32)),
        builder.constant(np.array(scales, np.float32)) if scales else None,
        builder.op(
            "Dimensions",
            domain="loom",
            elements=tuple(axis.after for axis in resized),
            shape=(len(resized),),
            dtype=INT64,
        ),
        domain="loom",
        **{**fields_of(node.attributes), "axes": tuple(axes), "keep_aspect_ratio_policy": "stretch"},
    )


def split_resize(
    builder: SplitBuilder, inputs: Sequence[str], outputs: Sequence[str], attributes: ResizeAttributes
) -> None:
    """Split a Resize: leading axes whose scales are constants of one have no sizes to read.

    One that keeps aspect ratios has one scale, the smallest or the largest ratio of an axis.
    """
    value, roi, scales, sizes = (*inputs, "", "", "")[:4]
    options: dict[str, Any] = fields_of(attributes)
    if scales:
        names: list[str] = []
        unchanged = 0
        for name, elements in builder.joined(scales):
            if not names and elements is not None and bool(np.all(elements == 1)):
                unchanged += elements.size
            else:
                names.append(name)
        options |= {"unchanged": unchanged, "keep_aspect_ratio_policy": "stretch"}
        if names and unchanged:
            scales = names[0] if len(names) == 1 else builder.apply("Concat", *names, axis=0)
    elif attributes.keep_aspect_ratio_policy != "stretch":
        ratios = builder.apply("ResizedRatios", value, sizes, domain="loom", **options)
        pick = {"not_larger": "ReduceMin", "not_smaller": "ReduceMax"}[attributes.keep_aspect_ratio_policy]
        scale = builder.apply(pick, ratios, keepdims=0)
        scales = builder.apply("Expand", scale, builder.apply("Shape", ratios))
    if scales:
        sizes = builder.apply("ResizedSizes", value, scales, domain="loom", **options)
    builder.apply_to(outputs, "ResizedByFloats", value, roi, scales, sizes, domain="loom", **options)
