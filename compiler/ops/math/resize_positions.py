"""Sample positions of Resize along one axis: source positions of output coordinates, and the element nearest to each.

Positions follow ONNX's formulas as exact fractions: of integers where those are small enough, otherwise as a
:class:`RealMap`.  A scale that is no fraction of small integers is never rounded to one.  ``positions`` repeats the
float32 arithmetic of onnxruntime on the host, to decide which element is nearest where rounding matters.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np

from ....runtime.plan.record import record
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from .axis_maps import RationalMap, RealMap

TIE = 1e-6  #: a position this close to the middle between two elements is in the middle
_NUMERATOR_LIMIT = 1 << 30  #: of positions: they are signed 32-bit integers, with room for sums


@record
class ResizedAxis:
    """One resized axis: sizes before and after, output pixels per input pixel, and the region of interest."""

    before: Dim
    after: Dim
    scale: float | None  #: None when it follows from symbolic sizes
    from_sizes: bool
    roi: tuple[float, float]


def _scale_fraction(axis: ResizedAxis) -> tuple[Dim, Dim]:
    """Return output pixels per input pixel as a fraction; symbolic when the sizes are."""
    if axis.scale is None or axis.from_sizes:
        quotient = ix.divide(axis.after, axis.before)
        if quotient is not None:
            return quotient, 1
        if isinstance(axis.before, ix.Index) or isinstance(axis.after, ix.Index):
            return axis.after, axis.before
        exact = Fraction(ix.number(axis.after), ix.number(axis.before))
        return exact.numerator, exact.denominator
    fraction = _short_fraction(axis)
    return fraction.numerator, fraction.denominator


def _short_fraction(axis: ResizedAxis) -> Fraction:
    """Return the scale as a fraction whose positions fit into 32 bits."""
    assert axis.scale is not None
    largest = max(ix.bounds(axis.before)[1], ix.bounds(axis.after)[1], 1)
    return Fraction(axis.scale).limit_denominator(max(min(1 << 15, _NUMERATOR_LIMIT // (8 * largest)), 1))


def _bound_fraction(bound: float) -> Fraction:
    return Fraction(bound).limit_denominator(1 << 12)


def is_rational(mode: str, axis: ResizedAxis) -> bool:
    """Return whether the fraction of :func:`rational_map` equals the float32 numbers of the model."""
    if mode == "tf_crop_and_resize":
        return all(np.float32(float(_bound_fraction(bound))) == np.float32(bound) for bound in axis.roi)
    if mode == "align_corners" or axis.scale is None or axis.from_sizes:
        return True
    return bool(np.float32(float(_short_fraction(axis))) == np.float32(axis.scale))


def real_map(mode: str, axis: ResizedAxis) -> RealMap:
    """Return the map from output coordinates to source positions, for any scale and region.

    Raise :class:`~.polynomial.Undecidable` where it needs the concrete size of a declared dimension.
    """
    largest = max(ix.bounds(axis.after)[1] - 1, 0)
    if checks.is_size(axis.after, 1) and mode in ("align_corners", "pytorch_half_pixel"):
        return RealMap.of(Fraction(0), Fraction(0), 0)
    if mode == "pytorch_half_pixel" and ix.bounds(axis.after)[0] <= 1:
        _number(axis.after)  # whether there is one element alone
    half = Fraction(1, 2)
    if mode in ("align_corners", "tf_crop_and_resize"):
        span, steps = _number(axis.before) - 1, _number(axis.after) - 1
        start, end = (Fraction(bound) for bound in (axis.roi if mode == "tf_crop_and_resize" else (0.0, 1.0)))
        if steps == 0:
            return RealMap.of(Fraction(0), (start + end) * half * span, 0)
        return RealMap.of((end - start) * span / steps, start * span, largest)
    if axis.scale is None or axis.from_sizes:
        factor = Fraction(_number(axis.before), _number(axis.after))
    else:
        factor = 1 / Fraction(axis.scale)
    offset = Fraction(0) if mode == "asymmetric" else factor * half
    if mode not in ("asymmetric", "tf_half_pixel_for_nn"):
        offset -= half
    if mode == "half_pixel_symmetric":
        offset += (_number(axis.before) - _number(axis.after) * factor) * half
    return RealMap.of(factor, offset, largest)


def _number(size: Dim) -> int:
    if isinstance(size, ix.Index):
        raise ix.Undecidable(f"positions that depend on {ix.text(size)} and on a scale that is no simple fraction")
    return int(size)


def rational_map(mode: str, axis: ResizedAxis) -> RationalMap:
    """Return the map from output coordinates to source positions, by ONNX's formula for each mode."""
    before, after = axis.before, axis.after
    if checks.is_size(after, 1) and mode in ("align_corners", "pytorch_half_pixel"):
        return RationalMap(0, 0, 1)
    if mode == "align_corners":
        return RationalMap(ix.add(before, -1), 0, ix.maximum(ix.add(after, -1), 1))
    if mode == "tf_crop_and_resize":
        return _cropped_map(axis)
    up, down = _scale_fraction(axis)
    if mode == "asymmetric":
        return RationalMap(down, 0, up)
    double = ix.multiply(up, 2)
    step = ix.multiply(down, 2)
    if mode == "tf_half_pixel_for_nn":
        return RationalMap(step, down, double)
    half_pixel = ix.add(down, ix.multiply(up, -1))
    if mode == "pytorch_half_pixel":  # the only element of an axis is the first one: the run may decide that
        half_pixel = ix.multiply(half_pixel, ix.minimum(ix.add(after, -1), 1))
    if mode == "half_pixel_symmetric":
        # the middle of the input falls on the middle of the output, also when the output size was rounded
        shift = ix.add(ix.multiply(before, up), ix.multiply(ix.multiply(after, down), -1))
        half_pixel = ix.add(half_pixel, shift)
    return RationalMap(step, half_pixel, double)


def _cropped_map(axis: ResizedAxis) -> RationalMap:
    """Return the map of tf_crop_and_resize.

    ``roi`` is in parts of the distance between the outermost pixels.
    """
    start, end = (_bound_fraction(bound) for bound in axis.roi)
    span = ix.add(axis.before, -1)
    denominator = math.lcm(start.denominator, end.denominator)
    first, last = int(start * denominator), int(end * denominator)
    if checks.is_size(axis.after, 1):
        return RationalMap(0, ix.multiply(span, first + last), 2 * denominator)
    steps = ix.add(axis.after, -1)
    return RationalMap(
        ix.multiply(span, last - first), ix.multiply(ix.multiply(span, steps), first), ix.multiply(steps, denominator)
    )


def fits(axis_map: RationalMap, axis: ResizedAxis) -> bool:
    """Return whether positions, and twice them, stay within 32 bits."""
    last = max(ix.bounds(axis.after)[1] - 1, 0)
    parts = [ix.bounds(part) for part in (axis_map.multiplier, axis_map.offset, axis_map.divisor)]
    multiplier, offset, divisor = (max(abs(low), abs(high)) for low, high in parts)
    return 2 * (multiplier * last + offset + divisor) < _NUMERATOR_LIMIT


def positions(mode: str, axis: ResizedAxis) -> np.ndarray:
    """Return the source positions of all output coordinates in float32, as onnxruntime does; sizes are numbers."""
    f = np.float32
    at = np.arange(ix.number(axis.after), dtype=f)
    before, after = f(ix.number(axis.before)), f(ix.number(axis.after))
    scale = f(1.0 if axis.scale is None else axis.scale)
    if mode == "asymmetric":
        return at / scale
    if mode == "pytorch_half_pixel":
        return (at + f(0.5)) / scale - f(0.5) if after > 1 else np.zeros_like(at)
    if mode == "tf_half_pixel_for_nn":
        return (at + f(0.5)) / scale
    if mode == "align_corners":
        return at * (before - f(1)) / (after - f(1)) if after > 1 else np.zeros_like(at)
    if mode == "tf_crop_and_resize":
        start, end = f(axis.roi[0]), f(axis.roi[1])
        if after > 1:
            return start * (before - f(1)) + (at * (end - start) * (before - f(1))) / (after - f(1))
        return np.full_like(at, 0.5 * float(start + end) * float(before - f(1)))
    if mode == "half_pixel_symmetric":
        offset = before / f(2) * (f(1) - after / (scale * before))
        return (float(offset) + (at.astype(np.float64) + 0.5) / float(scale) - 0.5).astype(f)
    return (at + f(0.5)) / scale - f(0.5)


def rounded(nearest_mode: str, axis_map: RationalMap, shrinks: bool) -> RationalMap:
    """Return the map whose floor is the nearest element."""
    doubled, offset, divisor = (
        ix.multiply(part, 2) for part in (axis_map.multiplier, axis_map.offset, axis_map.divisor)
    )
    if nearest_mode == "floor" or (nearest_mode == "legacy" and not shrinks):
        return axis_map
    if nearest_mode in ("ceil", "legacy"):
        up = ix.add(axis_map.offset, ix.add(axis_map.divisor, -1))
        return RationalMap(axis_map.multiplier, up, axis_map.divisor)
    if nearest_mode == "round_prefer_ceil":
        return RationalMap(doubled, ix.add(offset, axis_map.divisor), divisor)
    return RationalMap(doubled, ix.add(offset, ix.add(axis_map.divisor, -1)), divisor)


def rounded_real(nearest_mode: str, exact: RealMap, shrinks: bool) -> RealMap:
    """Return the real map whose floor is the nearest element.

    Only rounding puts a position halfway between two elements, or on an element.
    """
    if nearest_mode == "floor" or (nearest_mode == "legacy" and not shrinks):
        return exact
    more = 1 - TIE if nearest_mode in ("ceil", "legacy") else 0.5
    offset = exact.offset + more
    return dataclasses.replace(exact, whole=exact.whole + math.floor(offset), offset=offset - math.floor(offset))


def nearest_table(mode: str, nearest_mode: str, axis: ResizedAxis) -> np.ndarray:
    """Return the element that onnxruntime takes for each output coordinate."""
    position = positions(mode, axis)
    floor = np.floor(position)
    fraction = position - floor
    shrinks = axis.scale is not None and axis.scale < 1
    up = {
        "floor": np.zeros_like(fraction, bool),
        "ceil": fraction > 0,
        "legacy": (fraction > 0) & shrinks,
        "round_prefer_ceil": fraction >= 0.5 - TIE,
        "round_prefer_floor": fraction > 0.5 + TIE,
    }[nearest_mode]
    return np.clip(floor.astype(np.int64) + up, 0, ix.number(axis.before) - 1)


def evaluate_map(axis_map: RationalMap, axis: ResizedAxis) -> np.ndarray:
    """Evaluate the element of each output coordinate; sizes must be numbers."""
    multiplier, offset, divisor = map(ix.number, (axis_map.multiplier, axis_map.offset, axis_map.divisor))
    at = np.arange(ix.number(axis.after), dtype=np.int64)
    return np.clip((at * multiplier + offset) // divisor, 0, ix.number(axis.before) - 1)
