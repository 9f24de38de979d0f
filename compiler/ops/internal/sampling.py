"""Sampling a tensor at affine functions of the output coordinates: the target of Resize.

The source position of an output coordinate along an axis is that of an :data:`~.axis_maps.AxisMap`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..math.axis_maps import AxisMap, RationalMap, ReadMap, RealMap
from ..math.positions import within
from ..registry import Inferred, Read, register


@record
class SampleAttributes:
    """``sizes`` is the output shape.

    ``inside`` gives the coordinates ``[first, last)`` of an axis whose positions lie inside of the input, None where
    all do, or the operand with the positions; elsewhere the result is ``outside``.
    """

    sizes: tuple[Dim, ...]
    maps: tuple[AxisMap, ...]
    inside: tuple[tuple[int, int] | int | None, ...]
    outside: float = 0.0
    kernel: str = "linear"  #: "linear", or "cubic" (the convolution kernel of Keys)
    coefficient: float = -0.75  #: Keys' ``a``
    exclude_outside: bool = (
        False  #: cubic only: weights of elements outside of the input are zero, the others sum to one
    )


def _infer(node: Node) -> Inferred:
    return [(node.operand(0).dtype, node.attributes.sizes)]


def _clamp(position: Dim, size: Dim) -> Dim:
    return ix.maximum(ix.minimum(position, ix.add(size, -1)), 0)


def _within(node: Node, coordinates: Sequence[Dim], read: Read, value: Expr) -> Expr:
    """Guard ``value``: where a position is outside of the input, give the attribute ``outside``."""
    condition = ex.const(True, "bool")
    for at, size, interval in zip(coordinates, node.operand(0).shape, node.attributes.inside):
        if isinstance(interval, int):
            last = ex.cast(ex.coordinate(ix.add(size, -1)), "f32")
            condition = ex.binary("and", condition, within(read(interval, [at]), ex.const(0.0, "f32"), last))
        elif interval is not None:
            condition = ex.binary("and", condition, ex.in_range(at, *interval))
    return ex.guard(condition, value, checks.literal(node.attributes.outside, node.output.dtype))


# -- one element -----------------------------------------------------------------------------------------------------


def _read_nearest(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    """Read the element at the floor of each mapped position, clamped to the input (nearest-neighbour sampling)."""
    attributes: SampleAttributes = node.attributes
    nearest = []
    for at, size, axis_map in zip(coordinates, node.operand(0).shape, attributes.maps):
        if axis_map is not None:
            if isinstance(axis_map, RationalMap):
                at = _clamp(ix.floordiv(axis_map.numerator(at), axis_map.divisor), size)
            else:
                at = _clamped(_split_position(axis_map, at, read)[0], size)
        nearest.append(at)
    return _within(node, coordinates, read, read(0, nearest))


register(
    name="NearestSample",
    domain="loom",
    attributes=SampleAttributes,
    infer=_infer,
    gather=_read_nearest,
)


# -- weighted sums ---------------------------------------------------------------------------------------------------


@record
class Tap:
    """One element of the weighted sum along an axis."""

    at: Dim
    weight: Expr | None  #: None for one


def _axis_taps(attributes: SampleAttributes, axis_map: AxisMap, at: Dim, size: Dim, read: Read) -> list[Tap]:
    if axis_map is None:
        return [Tap(at, None)]
    element, inside, fraction = _position(axis_map, at, size, read)
    if fraction.op == "const" and fraction.payload == 0.0:
        return [Tap(element(0), None)]  # a sample point: every kernel is 1 there and 0 at the other points
    if attributes.kernel == "linear":
        return [Tap(element(0), ex.const(1.0, "f32") - fraction), Tap(element(1), fraction)]
    places = range(-1, 3)
    weights = _cubic_weights(fraction, attributes.coefficient)
    if attributes.exclude_outside:
        zero = ex.const(0.0, "f32")
        weights = [ex.select(inside(place), weight, zero) for place, weight in zip(places, weights)]
        total = weights[0] + weights[1] + weights[2] + weights[3]
        weights = [weight / total for weight in weights]
    return [Tap(element(place), weight) for place, weight in zip(places, weights)]


def _split_position(axis_map: RealMap | ReadMap, at: Dim, read: Read) -> tuple[Expr, Expr]:
    """Return the floor of a position, as i32, and the fraction above it."""
    if isinstance(axis_map, RealMap):
        return axis_map.position(at)
    position = read(axis_map.operand, [at])
    floor = ex.unary("floor", position)
    return ex.cast(floor, "i32"), position - floor


def _position(
    axis_map: RationalMap | RealMap | ReadMap, at: Dim, size: Dim, read: Read
) -> tuple[Callable[[int], Dim], Callable[[int], Expr], Expr]:
    """Split a position into its floor and the fraction above it.

    Return, for elements counted from the floor, the function of their clamped coordinate and that of whether they
    exist, and the fraction.
    """
    if isinstance(axis_map, RationalMap):
        numerator = axis_map.numerator(at)
        floor = ix.floordiv(numerator, axis_map.divisor)
        rest = ex.cast(ex.coordinate(ix.modulo(numerator, axis_map.divisor)), "f32")
        if isinstance(axis_map.divisor, ix.Index):
            fraction = rest / ex.cast(ex.coordinate(axis_map.divisor), "f32")
        elif rest.op == "const":
            fraction = ex.const(rest.payload / axis_map.divisor, "f32")
        else:
            fraction = rest * ex.const(1.0 / axis_map.divisor, "f32")
        return (
            lambda place: _clamp(ix.add(floor, place), size),
            lambda place: ex.in_range(ix.add(floor, place), 0, size),
            fraction,
        )
    number, fraction = _split_position(axis_map, at, read)
    zero, last = ex.const(0, "i32"), ex.coordinate(ix.add(size, -1))

    def element(place: int) -> Dim:
        return _clamped(number + ex.const(place, "i32"), size)

    def inside(place: int) -> Expr:
        shifted = number + ex.const(place, "i32")
        return ex.binary("and", ex.compare("ge", shifted, zero), ex.compare("le", shifted, last))

    return element, inside, fraction


def _clamped(position: Expr, size: Dim) -> Dim:
    """Clamp an i32 position to a coordinate of an axis of ``size``."""
    clamped = ex.binary("min", ex.binary("max", position, ex.const(0, "i32")), ex.coordinate(ix.add(size, -1)))
    return ex.as_index(clamped, 0, max(ix.bounds(size)[1] - 1, 0))


def _cubic_weights(fraction: Expr, a: float) -> list[Expr]:
    """Return Keys' kernel at the distances ``1 + t, t, 1 - t, 2 - t`` of the four elements around the position."""
    one = ex.const(1.0, "f32")
    mirrored = one - fraction
    return [far_weight(fraction + one, a), near_weight(fraction, a), near_weight(mirrored, a),
            far_weight(mirrored + one, a)]  # fmt: skip


def near_weight(distance: Expr, a: float) -> Expr:
    """Return Keys' kernel at a distance of at most 1."""
    factor, offset, one = (ex.const(number, "f32") for number in (a + 2.0, a + 3.0, 1.0))
    return (factor * distance - offset) * distance * distance + one


def far_weight(distance: Expr, a: float) -> Expr:
    """Return Keys' kernel at a distance of 1 to 2."""
    cubic, square, linear, constant = (ex.const(number, "f32") for number in (a, 5.0 * a, 8.0 * a, 4.0 * a))
    return ((cubic * distance - square) * distance + linear) * distance - constant


def _read_interpolated(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    """Interpolate with a product of one-dimensional kernels: sum over the elements around the position, per axis."""
    attributes: SampleAttributes = node.attributes
    value = node.operand(0)
    taps = [
        _axis_taps(attributes, axis_map, at, size, read)
        for axis_map, at, size in zip(attributes.maps, coordinates, value.shape)
    ]

    def sum_from(axis: int, at: tuple[Dim, ...]) -> Expr:
        if axis == value.rank:
            return ex.cast(read(0, at), "f32")
        total: Expr | None = None
        for tap in taps[axis]:
            inner = sum_from(axis + 1, (*at, tap.at))
            term = inner if tap.weight is None else tap.weight * inner
            total = term if total is None else total + term
        assert total is not None
        return total

    result = checks.wrap(ex.cast(sum_from(0, ()), value.dtype.compute), value.dtype)
    return _within(node, coordinates, read, result)


register(
    name="Interpolate",
    domain="loom",
    attributes=SampleAttributes,
    infer=_infer,
    gather=_read_interpolated,
    types=(checks.FLOATS | frozenset({"int8", "uint8", "int16", "uint16", "int32", "uint32"}),),
    reads=4,
)
