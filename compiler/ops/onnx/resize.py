"""Resize and Upsample: they expand to sampling at affine functions of the coordinates, or to products with filters.

Sizes and coordinates follow ONNX; where ONNX leaves the rounding of positions open (a nearest element half-way between
two), the float32 arithmetic of onnxruntime decides: ``nearest_table`` repeats it on the host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ....runtime.plan.errors import NotKnownError, ShapeError
from ....runtime.plan.record import record
from ...ir.graph import Node, Shape, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..math.axis_maps import AxisMap
from ..math.resize_antialias import filter_matrix, resample
from ..math.resize_positions import (
    ResizedAxis,
    evaluate_map,
    fits,
    is_rational,
    nearest_table,
    positions,
    rational_map,
    real_map,
    rounded,
    rounded_real,
)
from ..registry import Builder, Inferred, RawNode, SplitBuilder, register
from .resize_by_floats import ResizeAttributes, by_positions, has_antialias, require_antialias, split_resize

COORDINATE_MODES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
#: ``legacy`` is the rule of version 10: up when the axis shrinks, else down
NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "legacy")
_LARGEST_RANGE = 1 << 20  #: of a symbolic size whose scaled value is checked for all values


# -- shapes ----------------------------------------------------------------------------------------------------------


def _static_floats(node: Node, position: int) -> list[float] | None:
    """Return the elements of an optional input; None where it is omitted or empty."""
    value = node.optional(position)
    if value is None:
        return None
    return [
        float(element) for element in checks.static_elements(node, value, f"input {position} of Resize").reshape(-1)
    ] or None


def resized_axes(node: Node) -> dict[int, ResizedAxis]:
    """Return the axes that the node resizes; all others do not change."""
    attributes: ResizeAttributes = node.attributes
    shape = node.operand(0).shape
    axes = range(len(shape)) if attributes.axes is None else attributes.axes
    order = checks.normalise_axes(node, axes, len(shape))
    rois = [(0.0, 1.0)] * len(order)
    if attributes.coordinate_transformation_mode == "tf_crop_and_resize":
        corners = _static_floats(node, 1)
        checks.require(
            corners is not None and len(corners) == 2 * len(order), node, "roi needs two numbers for each axis"
        )
        assert corners is not None
        checks.require(all(map(math.isfinite, corners)), node, "roi needs finite numbers")
        rois = list(zip(corners[: len(order)], corners[len(order) :]))
    scales = _static_floats(node, 2)
    if scales is not None:
        checks.require(len(scales) == len(order), node, f"{len(scales)} scales for {len(order)} axes")
        checks.require(all(scale > 0 for scale in scales), node, "a scale of Resize is not positive")
        return {
            axis: ResizedAxis(shape[axis], _scaled(node, shape[axis], scale), scale, False, roi)
            for axis, scale, roi in zip(order, scales, rois)
        }
    sizes = checks.static_dims(node, 3, "sizes of Resize (or scales)")
    checks.require(len(sizes) == len(order), node, f"{len(sizes)} sizes for {len(order)} axes")
    before = [shape[axis] for axis in order]
    if attributes.keep_aspect_ratio_policy == "stretch":
        return {
            axis: ResizedAxis(old, new, _ratio(node, old, new), True, roi)
            for axis, old, new, roi in zip(order, before, sizes, rois)
        }
    return _keep_aspect_ratio(node, order, before, sizes, rois)


def _scaled(node: Node, size: Dim, scale: float) -> Dim:
    """Return ``floor(size * scale)`` in float32; for a symbolic size as a fraction that is equal for all its values.

    Raise :class:`ShapeError` where the product is not finite.
    """
    low, high = ix.bounds(size)
    with np.errstate(over="ignore"):
        largest = np.float32(high) * np.float32(scale)
    checks.require(bool(np.isfinite(largest)), node, f"size {high} scaled by {scale} is no number")
    if not isinstance(size, ix.Index):
        return int(np.floor(largest))
    if high - low < _LARGEST_RANGE:
        sizes = np.arange(low, high + 1)
        expected = np.floor(sizes.astype(np.float32) * np.float32(scale))
        for most in (1000, 1 << 17):
            fraction = Fraction(scale).limit_denominator(most)
            fits = high * fraction.numerator < 1 << 31
            if fits and np.array_equal(sizes * fraction.numerator // fraction.denominator, expected):
                return ix.floordiv(ix.multiply(size, fraction.numerator), fraction.denominator)
    raise ShapeError(f"the size {ix.text(size)} scaled by {scale} is not an integer expression", origin=node.origin)


def _ratio(node: Node, before: Dim, after: Dim) -> float | None:
    if isinstance(before, ix.Index) or isinstance(after, ix.Index):
        return 1.0 if before == after else None
    checks.require(before > 0 or after == 0, node, f"no element to resize to {after}")
    return float(np.float32(after) / np.float32(before)) if before else 1.0


def _keep_aspect_ratio(
    node: Node, order: Sequence[int], before: Sequence[Dim], sizes: Sequence[Dim], rois: Sequence[tuple[float, float]]
) -> dict[int, ResizedAxis]:
    policy = node.attributes.keep_aspect_ratio_policy
    if any(isinstance(size, ix.Index) for size in (*before, *sizes)):
        raise NotKnownError("sizes of a Resize that keeps aspect ratios must be known", origin=node.origin)
    old, new = ([ix.number(size) for size in each] for each in (before, sizes))
    checks.require(all(old), node, "an axis without elements has no aspect ratio")
    pick = min if policy == "not_larger" else max
    scale = float(pick(np.float32(target) / np.float32(size) for size, target in zip(old, new)))
    return {
        axis: ResizedAxis(size, math.floor(float(np.float32(scale) * np.float32(size)) + 0.5), scale, False, roi)
        for axis, size, roi in zip(order, old, rois)
    }


def _infer_resize(node: Node) -> Inferred:
    value = node.operand(0)
    checks.require_choice(node, "mode", ("nearest", "linear", "cubic"))
    checks.require_choice(node, "coordinate_transformation_mode", COORDINATE_MODES)
    checks.require_choice(node, "nearest_mode", NEAREST_MODES)
    checks.require_choice(node, "keep_aspect_ratio_policy", ("stretch", "not_larger", "not_smaller"))
    shape = list(value.shape)
    for axis, resized in resized_axes(node).items():
        shape[axis] = resized.after
    require_antialias(node)
    return [(value.dtype, tuple(shape))]


# -- lowering --------------------------------------------------------------------------------------------------------


def _is_identity(mode: str, axis: ResizedAxis) -> bool:
    """Return whether resizing copies an axis: the size does not change, and a crop is the whole axis.

    Rounding has no influence.
    """
    same = axis.before == axis.after and axis.scale == 1.0
    return same and (mode != "tf_crop_and_resize" or axis.roi == (0.0, 1.0))


def _inside(node: Node, axis: ResizedAxis) -> tuple[int, int] | None:
    """Return the range of output coordinates whose position is in the input: positions are monotonic."""
    if node.attributes.coordinate_transformation_mode != "tf_crop_and_resize":
        return None
    before = ix.number(axis.before)
    position = positions("tf_crop_and_resize", axis)
    (inside,) = np.nonzero((position >= 0) & (position <= before - 1))
    if len(inside) == len(position):
        return None
    return (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, 0)


def _expand_resize(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: ResizeAttributes = node.attributes
    mode = attributes.coordinate_transformation_mode
    value = node.operand(0)
    axes = {at: axis for at, axis in resized_axes(node).items() if not _is_identity(mode, axis)}
    if 0 in node.output.shape:
        return [builder.op("Broadcast", builder.scalar(0, value), domain="loom", shape=node.output.shape)]
    is_open = any(isinstance(size, ix.Index) for axis in axes.values() for size in (axis.before, axis.after))
    if is_open and (has_antialias(attributes) or mode == "tf_crop_and_resize"):
        return [by_positions(builder, node, axes)]
    if has_antialias(attributes):
        matrices = {at: builder.constant(filter_matrix(node, axis).T) for at, axis in axes.items()}
        return [resample(builder, value, matrices)]
    inside = tuple(_inside(node, axes[at]) if at in axes else None for at in range(value.rank))
    maps: list[AxisMap] = [None] * value.rank
    try:
        for at, axis in axes.items():
            if attributes.mode == "nearest":
                maps[at], value = _nearest_map(builder, node, value, at, axis)
            else:
                maps[at] = _interpolation_map(node, axis)
    except ix.Undecidable:  # no map serves all sizes of the run
        return [by_positions(builder, node, axes)]
    if all(axis_map is None for axis_map in maps) and all(interval is None for interval in inside):
        return [value]
    sizes: Shape = tuple(axes[at].after if at in axes else size for at, size in enumerate(value.shape))
    sampled = builder.op(
        "NearestSample" if attributes.mode == "nearest" else "Interpolate",
        value,
        domain="loom",
        sizes=sizes,
        maps=tuple(maps),
        inside=inside,
        outside=attributes.extrapolation_value,
        kernel="cubic" if attributes.mode == "cubic" else "linear",
        coefficient=attributes.cubic_coeff_a,
        exclude_outside=bool(attributes.exclude_outside),
    )
    return [sampled]


def _nearest_map(builder: Builder, node: Node, value: Value, at: int, axis: ResizedAxis) -> tuple[AxisMap, Value]:
    """Return an exact integer map to the nearest element; where none matches the table, Gather by the table."""
    attributes: ResizeAttributes = node.attributes
    shrinks = axis.scale is not None and axis.scale < 1
    mode = attributes.coordinate_transformation_mode
    axis_map = rounded(attributes.nearest_mode, rational_map(mode, axis), shrinks)
    if isinstance(axis.before, ix.Index) or isinstance(axis.after, ix.Index):
        if is_rational(mode, axis) and fits(axis_map, axis):
            return axis_map, value
        return rounded_real(attributes.nearest_mode, real_map(mode, axis), shrinks), value
    table = nearest_table(mode, attributes.nearest_mode, axis)
    if fits(axis_map, axis) and np.array_equal(evaluate_map(axis_map, axis), table):
        return axis_map, value
    return None, builder.op("Gather", value, builder.constant(table), axis=at)


def _interpolation_map(node: Node, axis: ResizedAxis) -> AxisMap:
    mode = node.attributes.coordinate_transformation_mode
    axis_map = rational_map(mode, axis)
    return axis_map if is_rational(mode, axis) and fits(axis_map, axis) else real_map(mode, axis)


def _resize_10(raw: RawNode) -> None:
    """Rewrite version 10, which has inputs X and scales and a single rule of coordinates."""
    raw.inputs = [raw.inputs[0], "", raw.inputs[1]]
    raw.attributes["coordinate_transformation_mode"] = "asymmetric"
    raw.attributes["nearest_mode"] = "legacy"


register(
    name="Resize",
    attributes=ResizeAttributes,
    infer=_infer_resize,
    expand=_expand_resize,
    static_inputs=(1, 2, 3),
    split_ahead=split_resize,
    is_split_ahead=lambda operands, attributes: attributes.keep_aspect_ratio_policy != "stretch",
    adapters=((10, _resize_10),),
)


# -- Upsample --------------------------------------------------------------------------------------------------------


@record
class UpsampleAttributes:
    mode: str = "nearest"


def _infer_upsample(node: Node) -> Inferred:
    value = node.operand(0)
    scales = _static_floats(node, 1)
    checks.require(scales is not None and len(scales) == value.rank, node, "Upsample needs one scale for each axis")
    assert scales is not None
    return [(value.dtype, tuple(_scaled(node, size, scale) for size, scale in zip(value.shape, scales)))]


def _as_resize(attributes: UpsampleAttributes) -> dict[str, Any]:
    return {"mode": attributes.mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def _expand_upsample(builder: Builder, node: Node) -> Sequence[Value]:
    return [builder.op("Resize", node.operand(0), None, node.operand(1), **_as_resize(node.attributes))]


def _split_upsample(
    builder: SplitBuilder, inputs: Sequence[str], outputs: Sequence[str], attributes: UpsampleAttributes
) -> None:
    value, scales = inputs
    split_resize(builder, (value, "", scales), outputs, ResizeAttributes(**_as_resize(attributes)))


register(
    name="Upsample",
    attributes=UpsampleAttributes,
    infer=_infer_upsample,
    expand=_expand_upsample,
    static_inputs=(1,),
    split_ahead=_split_upsample,
    adapters=((7, checks.attribute_to_input("scales", 1, np.float32)),),
)
