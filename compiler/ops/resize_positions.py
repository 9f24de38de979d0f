"""Where Resize samples along one axis: source positions of output coordinates, and the element nearest to each.

Positions follow ONNX's formulas as exact fractions.  ``positions`` repeats the float32 arithmetic of onnxruntime on the
host, to decide which element is nearest where rounding matters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .. import index as ix
from ..index import Dim
from . import common
from .sampling import RationalMap

_TIE = 1e-6  #: a position this close to the middle between two elements is in the middle
_NUMERATOR_LIMIT = 1 << 30  #: of positions: they are signed 32-bit integers, with room for sums


@dataclass(frozen=True, slots=True)
class Axis:
    """One resized axis: sizes before and after, output pixels per input pixel, and the region of interest."""

    before: Dim
    after: Dim
    scale: float | None  #: None when it follows from symbolic sizes
    from_sizes: bool
    roi: tuple[float, float]


def _scale_fraction(axis: Axis) -> tuple[Dim, Dim]:
    """Output pixels per input pixel as a fraction; symbolic when the sizes are."""
    if axis.scale is None or axis.from_sizes:
        quotient = ix.divide(axis.after, axis.before)
        if quotient is not None:
            return quotient, 1
        if isinstance(axis.before, ix.Index) or isinstance(axis.after, ix.Index):
            return axis.after, axis.before
        exact = Fraction(ix.number(axis.after), ix.number(axis.before))
        return exact.numerator, exact.denominator
    largest = max(ix.bounds(axis.before)[1], ix.bounds(axis.after)[1], 1)
    fraction = Fraction(axis.scale).limit_denominator(max(min(1 << 15, _NUMERATOR_LIMIT // (8 * largest)), 1))
    return fraction.numerator, fraction.denominator


def rational_map(mode: str, axis: Axis) -> RationalMap:
    """The source position of an output coordinate, by ONNX's formula for each mode."""
    before, after = axis.before, axis.after
    if common.is_size(after, 1) and mode in ("align_corners", "pytorch_half_pixel"):
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
    if mode == "half_pixel_symmetric":
        # the middle of the input falls on the middle of the output, also when the output size was rounded
        shift = ix.add(ix.multiply(before, up), ix.multiply(ix.multiply(after, down), -1))
        half_pixel = ix.add(half_pixel, shift)
    return RationalMap(step, half_pixel, double)


def _cropped_map(axis: Axis) -> RationalMap:
    """tf_crop_and_resize: the region ``roi`` of the input, in parts of the distance between the outermost pixels."""
    start, end = (Fraction(bound).limit_denominator(1 << 12) for bound in axis.roi)
    span = ix.add(axis.before, -1)
    denominator = math.lcm(start.denominator, end.denominator)
    first, last = int(start * denominator), int(end * denominator)
    if common.is_size(axis.after, 1):
        return RationalMap(0, ix.multiply(span, first + last), 2 * denominator)
    steps = ix.add(axis.after, -1)
    return RationalMap(
        ix.multiply(span, last - first), ix.multiply(ix.multiply(span, steps), first), ix.multiply(steps, denominator)
    )


def fits(axis_map: RationalMap, axis: Axis) -> bool:
    """Whether positions, and twice them, stay within 32 bits."""
    last = max(ix.bounds(axis.after)[1] - 1, 0)
    parts = [ix.bounds(part) for part in (axis_map.multiplier, axis_map.offset, axis_map.divisor)]
    multiplier, offset, divisor = (max(abs(low), abs(high)) for low, high in parts)
    return 2 * (multiplier * last + offset + divisor) < _NUMERATOR_LIMIT


def positions(mode: str, axis: Axis) -> np.ndarray:
    """Source positions of all output coordinates as onnxruntime computes them in float32; sizes must be numbers."""
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
    """The map whose floor is the nearest element."""
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


def nearest_table(mode: str, nearest_mode: str, axis: Axis) -> np.ndarray:
    """The element that onnxruntime takes for each output coordinate."""
    position = positions(mode, axis)
    floor = np.floor(position)
    fraction = position - floor
    shrinks = axis.scale is not None and axis.scale < 1
    up = {
        "floor": np.zeros_like(fraction, bool),
        "ceil": fraction > 0,
        "legacy": (fraction > 0) & shrinks,
        "round_prefer_ceil": fraction >= 0.5 - _TIE,
        "round_prefer_floor": fraction > 0.5 + _TIE,
    }[nearest_mode]
    return np.clip(floor.astype(np.int64) + up, 0, ix.number(axis.before) - 1)


def evaluate_map(axis_map: RationalMap, axis: Axis) -> np.ndarray:
    """The element of each output coordinate; sizes must be numbers."""
    multiplier, offset, divisor = map(ix.number, (axis_map.multiplier, axis_map.offset, axis_map.divisor))
    at = np.arange(ix.number(axis.after), dtype=np.int64)
    return np.clip((at * multiplier + offset) // divisor, 0, ix.number(axis.before) - 1)
