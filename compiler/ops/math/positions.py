"""Expressions that convert positions on an axis to coordinates of its elements."""

from __future__ import annotations

from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim


def clamped_coordinate(position: Expr, size: Dim) -> Dim:
    """Clamp a whole position to a coordinate of an axis of ``size``."""
    last = ix.add(size, -1)
    whole = ex.cast(position, "i32")
    clamped = ex.binary("max", ex.binary("min", whole, ex.coordinate(last)), ex.const(0, "i32"))
    return ex.as_index(clamped, 0, max(ix.bounds(last)[1], 0))


def within(value: Expr, low: Expr, high: Expr) -> Expr:
    return ex.binary("and", ex.compare("ge", value, low), ex.compare("le", value, high))


def extent(size: Dim) -> Expr:
    return ex.cast(ex.coordinate(size), "f32")


def as_float(value: Dim) -> Expr:
    return ex.cast(ex.coordinate(value), "f32")


def run_time_index(value: Expr, size: Dim) -> Dim:
    """Convert the element ``value`` of an indices tensor to a coordinate of an axis of ``size``.

    Negative indices count from the end; one that is then out of range is clamped.  Of 64-bit indices the low 32 bits
    are used.
    """
    number = ex.cast(value, "i32")
    zero = ex.const(0, "i32")
    if number.op == "const":
        wrapped = ex.coordinate(ix.add(size, number.payload)) if number.payload < 0 else number
        if wrapped.op == "coordinate":
            return wrapped.payload
        number = wrapped
    else:
        number = ex.select(ex.compare("lt", number, zero), number + ex.coordinate(size), number)
    last = ix.add(size, -1)
    clamped = ex.binary("min", ex.binary("max", number, zero), ex.coordinate(last))
    return ex.as_index(clamped, 0, max(ix.bounds(last)[1], 0))
