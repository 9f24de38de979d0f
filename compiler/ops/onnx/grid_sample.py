"""GridSample: elements of the input at fractional positions that a grid gives."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.activation_functions import number
from ..registry import Inferred, RawNode, Read, register

#: Keys' parameter of the cubic convolution
_CUBIC = -0.75
MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")


@record
class GridSampleAttributes:
    align_corners: int = 0
    mode: str = "linear"
    padding_mode: str = "zeros"


def modern_modes(raw: RawNode) -> None:
    """Rename the modes of versions before 20, which were named for two spatial axes."""
    mode = raw.attributes.get("mode")
    raw.attributes["mode"] = {"bilinear": "linear", "bicubic": "cubic", None: "linear"}.get(mode, mode)


def _infer(node: Node) -> Inferred:
    value, grid = node.operand(0), node.operand(1)
    checks.require_choice(node, "mode", MODES)
    checks.require_choice(node, "padding_mode", PADDINGS)
    checks.require(
        value.rank >= 3 and grid.rank == value.rank, node, f"input of rank {value.rank}, grid of {grid.rank}"
    )
    checks.require(ix.equal(value.shape[0], grid.shape[0]), node, "input and grid differ in batch")
    checks.require(ix.equal(grid.shape[-1], value.rank - 2), node, "the grid has one position for each spatial axis")
    return [(value.dtype, (*value.shape[:2], *grid.shape[1:-1]))]


@record(slots=False)
class _Axis:
    """One spatial axis: positions count from 0 to ``size - 1``."""

    size: Dim
    align_corners: bool
    padding: str

    @property
    def _extent(self) -> Expr:
        return ex.cast(ex.coordinate(self.size), "f32")

    @property
    def _low(self) -> Expr:
        return number(0.0 if self.align_corners else -0.5)

    @property
    def _range(self) -> Expr:
        """The distance from the first border to the last."""
        return self._extent - number(1.0) if self.align_corners else self._extent

    def position(self, normalised: Expr) -> Expr:
        """Scale a normalised position, -1 to 1, to elements of the axis, before padding applies."""
        half = (normalised + number(1.0)) * number(0.5)
        return half * (self._extent - number(1.0)) if self.align_corners else half * self._extent - number(0.5)

    def inside(self, position: Expr) -> Expr:
        """Reflect a position into the input, or clamp it to a margin of 4 elements around the input."""
        if self.padding == "reflection":
            return self.reflected(position)
        margin = number(4.0)
        last = self._extent - number(1.0)
        return ex.binary("max", ex.binary("min", position, last + margin), -margin)

    def reflected(self, position: Expr) -> Expr:
        """Reflect a position at the borders as often as needed: a triangular wave."""
        if checks.is_size(self.size, 1) and self.align_corners:
            return number(0.0)
        low, reach = self._low, self._range
        if self.align_corners and ix.bounds(self.size)[0] <= 1:  # the run decides whether there is one element alone
            wave = self._wave(position, low, ex.binary("max", reach, number(1.0)))
            return ex.select(ex.compare("gt", ex.coordinate(self.size), ex.const(1, "i32")), wave, number(0.0))
        return self._wave(position, low, reach)

    @staticmethod
    def _wave(position: Expr, low: Expr, reach: Expr) -> Expr:
        period = reach + reach
        distance = ex.unary("abs", position - low)
        rest = distance - period * ex.unary("floor", distance / period)
        return low + ex.select(ex.compare("gt", rest, reach), period - rest, rest)

    def element(self, position: Expr) -> tuple[Dim, Expr]:
        """Return the coordinate of the element at a whole position, and whether the element is part of the input."""
        last = ix.add(self.size, -1)
        if self.padding == "reflection":
            position = self.reflected(position)
        whole = ex.cast(position, "i32")
        clamped = ex.binary("max", ex.binary("min", whole, ex.coordinate(last)), ex.const(0, "i32"))
        inside = ex.const(True, "bool")
        if self.padding == "zeros":
            inside = ex.compare("eq", whole, clamped)
        return ex.as_index(clamped, 0, max(ix.bounds(last)[1], 0)), inside


def _cubic_weights(fraction: Expr) -> list[Expr]:
    """Return the weights of the elements at -1, 0, 1 and 2 from the whole part."""

    def polynomial(value: Expr, *factors: float) -> Expr:
        result = number(factors[0])
        for factor in factors[1:]:
            result = result * value + number(factor)
        return result

    a = _CUBIC
    near = (a + 2, -(a + 3), 0.0, 1.0)
    far = (a, -5 * a, 8 * a, -4 * a)
    rest = number(1.0) - fraction
    return [
        polynomial(fraction + number(1.0), *far),
        polynomial(fraction, *near),
        polynomial(rest, *near),
        polynomial(rest + number(1.0), *far),
    ]


def _taps(axis: _Axis, normalised: Expr, mode: str) -> list[tuple[Expr, Expr]]:
    """Return the whole positions that contribute to an element, with their weights."""
    position = axis.position(normalised)
    if mode == "nearest":
        return [(axis.inside(ex.unary("round", position)), number(1.0))]
    position = axis.inside(position)
    base = ex.unary("floor", position)
    fraction = position - base
    if mode == "linear":
        return [(base, number(1.0) - fraction), (base + number(1.0), fraction)]
    return [(base + number(offset), weight) for offset, weight in zip((-1.0, 0.0, 1.0, 2.0), _cubic_weights(fraction))]


def _read_sampled(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    attributes: GridSampleAttributes = node.attributes
    batch, channel, *pixel = coordinates
    value = node.operand(0)
    axes = [_Axis(size, bool(attributes.align_corners), attributes.padding_mode) for size in value.shape[2:]]
    taps = []
    for number_of_axis, axis in enumerate(axes):
        # the grid names the innermost axis first
        normalised = read(1, [batch, *pixel, len(axes) - 1 - number_of_axis])
        taps.append([(axis.element(position), weight) for position, weight in _taps(axis, normalised, attributes.mode)])
    total: Expr | None = None
    for chosen in itertools.product(*taps):
        inside, weight = ex.const(True, "bool"), number(1.0)
        for (_, valid), factor in chosen:
            inside = ex.binary("and", inside, valid)
            weight = weight * factor
        element = read(0, [batch, channel, *(place for (place, _), _ in chosen)])
        term = ex.guard(inside, element, number(0.0)) * weight
        total = term if total is None else total + term
    assert total is not None
    return total


register(
    name="GridSample",
    infer=_infer,
    attributes=GridSampleAttributes,
    adapters=((19, modern_modes),),
    gather=_read_sampled,
    types=(FLOATS, FLOATS),
    reads=8,
)
