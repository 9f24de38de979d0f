"""Affine maps from coordinates of a result to source positions along one axis, ``(multiplier * c + offset) / divisor``.

Positions are fractions of integers, so that the sampled element is exact on every device (WGSL's division is not
correctly rounded) and the index arithmetic can simplify it: for a factor of two it is plainly ``c // 2``.  A position
whose fraction does not fit into 32 bits is a :class:`RealMap` instead: its fraction is right to about 2^-22 however
large it is.  What a run decides is a :class:`ReadMap`.
"""

from __future__ import annotations

import math
from fractions import Fraction

from ....runtime.plan.record import record
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim


@record
class RationalMap:
    """The position ``(multiplier * c + offset) / divisor``, with a positive divisor."""

    multiplier: Dim
    offset: Dim
    divisor: Dim

    def numerator(self, coordinate: Dim) -> Dim:
        return ix.add(ix.multiply(coordinate, self.multiplier), self.offset)


@record
class RealMap:
    """The position ``(high + low) * c + whole + offset``, 0 <= ``offset`` < 1.

    ``high`` has so few bits that its products with all ``c`` are exact in float32; ``low`` is the rest of the factor.
    """

    high: float
    low: float
    whole: int
    offset: float

    @staticmethod
    def of(factor: Fraction, offset: Fraction, largest: int) -> RealMap:
        """Return the map to the position ``factor * c + offset`` for 0 <= c <= ``largest``."""
        bits = max(24 - largest.bit_length(), 1)
        _, exponent = math.frexp(factor)
        unit = Fraction(2) ** (exponent - bits)
        high = math.floor(factor / unit) * unit
        whole = math.floor(offset)
        return RealMap(float(high), float(factor - high), whole, float(offset - whole))

    def position(self, at: Dim) -> tuple[Expr, Expr]:
        """Return the floor of the position, as i32, and the fraction above it."""
        coordinate = ex.cast(ex.coordinate(at), "f32")
        exact = coordinate * ex.const(self.high, "f32")
        floor = ex.unary("floor", exact)
        rest = (exact - floor) + (coordinate * ex.const(self.low, "f32") + ex.const(self.offset, "f32"))
        more = ex.unary("floor", rest)
        number = ex.cast(floor, "i32") + (ex.cast(more, "i32") + ex.const(self.whole, "i32"))
        return number, rest - more


@record
class ReadMap:
    """The position that is element ``c`` of an ``operand`` of float32, of a node that samples."""

    operand: int


AxisMap = RationalMap | RealMap | ReadMap | None  #: None: the axis is not sampled
