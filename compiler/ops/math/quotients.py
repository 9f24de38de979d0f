"""Quotients of float32 numbers by integer arithmetic: devices round their own wrongly."""

from __future__ import annotations

from ...symbolic import expr as ex
from ...symbolic.expr import Expr

_SIGN = 1 << 31
_HIDDEN = 1 << 23  #: the bit of a significand that its number does not store


def significand(bits: Expr) -> tuple[Expr, Expr]:
    """Return the integer m and the number e >= 1 with which the bits of a float, without sign, stand for
    ``m * 2 ** e``, but for one factor that all of them share.
    """
    exponent = ex.binary("shr", bits, ex.const(23, "u32"))
    hidden = ex.select(ex.compare("eq", exponent, ex.const(0, "u32")), ex.const(0, "u32"), ex.const(_HIDDEN, "u32"))
    number = ex.binary("and", bits, ex.const(_HIDDEN - 1, "u32")) + hidden
    return ex.cast(number, "u64"), ex.cast(ex.binary("max", exponent, ex.const(1, "u32")), "i32")


def rounded_quotient(dividend: Expr, divisor: Expr) -> Expr:
    """Divide two float32, rounded once to the nearest: zero or normal by normal, with a normal quotient."""
    both = [ex.bitcast(value, "u32") for value in (dividend, divisor)]
    magnitudes = [ex.binary("and", bits, ex.const(_SIGN - 1, "u32")) for bits in both]
    (top, up), (bottom, down) = map(significand, magnitudes)
    is_less = ex.compare("lt", top, bottom)
    shift = ex.const(24, "u64") + ex.cast(is_less, "u64")
    # one bit more than a significand has; halves do not occur
    quotient = ex.binary("div", ex.binary("shl", top, shift), bottom)
    number = ex.binary("shr", quotient + ex.const(1, "u64"), ex.const(1, "u64"))
    exponent = up - down - ex.cast(is_less, "i32") + ex.const(126, "i32")  # the hidden bit adds one
    bits = ex.binary("shl", ex.cast(exponent, "u32"), ex.const(23, "u32")) + ex.cast(number, "u32")
    sign = ex.binary("and", ex.binary("xor", *both), ex.const(_SIGN, "u32"))
    is_zero = ex.compare("eq", magnitudes[0], ex.const(0, "u32"))
    return ex.select(is_zero, ex.const(0.0, "f32"), ex.bitcast(ex.binary("or", bits, sign), "f32"))
