"""Logarithms and powers of 2 in 64-bit integers, for what float32 is too coarse for: devices have no float64.

A *significand* is a number from 1 up to 2, times 2 ** ``POINT``; a *logarithm* is one to the base of 2, times
2 ** ``FRACTION``.  Both are uint64, with errors of a few times 2 ** -``FRACTION``.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal, localcontext
from functools import cache

import numpy as np

from ....runtime.plan.dtypes import INT32
from ...ir.graph import Node, Value
from ...symbolic import expr as ex
from ...symbolic.expr import Expr
from .. import checks
from ..registry import Builder, register

POINT = 62
FRACTION = 54
#: Bits of a table's index, and how many tables follow each other: what is left is linear
_BITS, _LEVELS = 8, 4
_MASK = (1 << _BITS) - 1


@cache
def _tables() -> dict[str, np.ndarray]:
    """Return for each level, and each index in it, uint64: powers of 2, reciprocals of significands, and logarithms.

    Decimal arithmetic gives the same numbers on any machine.
    """
    powers, reciprocals, logarithms = [], [], []
    with localcontext() as context:
        context.prec = 40
        two = Decimal(2)
        for level in range(1, _LEVELS + 1):
            for index in range(1 << _BITS):
                part = Decimal(index) / 2 ** (_BITS * level)
                powers.append((two**part * 2**POINT).to_integral_value(ROUND_HALF_EVEN))
                # upwards, so that no significand becomes less than 1
                reciprocals.append((2**POINT / (1 + part)).to_integral_value(ROUND_CEILING))
                logarithms.append(((1 + part).ln() / two.ln() * 2**FRACTION).to_integral_value(ROUND_HALF_EVEN))
    tables = {"powers": powers, "reciprocals": reciprocals, "logarithms": logarithms}
    return {name: np.array(list(map(int, table)), np.uint64) for name, table in tables.items()}


def _natural_logarithm_of_2() -> Decimal:
    with localcontext() as context:
        context.prec = 40
        return Decimal(2).ln()


def whole(builder: Builder, number: int) -> Value:
    """Return a number from 0 up to 2 ** 64 as a constant."""
    return builder.constant(np.array(number, np.uint64))


def shifted(builder: Builder, value: Value, count: Value | int, direction: str) -> Value:
    """Shift the bits of uint64 elements ``LEFT`` or ``RIGHT``."""
    count = whole(builder, count) if isinstance(count, int) else count
    return builder.op("BitShift", value, count, direction=direction)


def product(builder: Builder, left: Value, right: Value) -> Value:
    """Build ``left * right / 2 ** POINT`` of two uint64 below 2 ** 63, rounded down."""
    return builder.op("PointedProduct", left, right, domain="loom")


def highest_bit(builder: Builder, value: Value) -> Value:
    """Build the position of the highest bit of uint64 elements, 0 for 0."""
    return builder.op("HighestBit", value, domain="loom")


def logarithm(builder: Builder, value: Value) -> Value:
    """Build the logarithm of uint64 elements from 1 up to 2 ** 63."""
    digits = highest_bit(builder, value)
    rest = shifted(builder, value, builder.op("Sub", whole(builder, POINT), digits), "LEFT")
    result = shifted(builder, digits, FRACTION, "LEFT")
    for level in range(_LEVELS):
        result = builder.op("Add", result, _entry(builder, "logarithms", rest, POINT, level))
        rest = product(builder, rest, _entry(builder, "reciprocals", rest, POINT, level))
    rest = builder.op("Sub", rest, whole(builder, 1 << POINT))
    rest = product(builder, rest, whole(builder, int(2**POINT / _natural_logarithm_of_2())))
    return builder.op("Add", result, shifted(builder, rest, POINT - FRACTION, "RIGHT"))


def power(builder: Builder, fraction: Value) -> Value:
    """Build the significands whose logarithms are ``fraction``, from 0 up to 2 ** FRACTION."""
    rest = builder.op("BitwiseAnd", fraction, whole(builder, (1 << FRACTION - _BITS * _LEVELS) - 1))
    rest = shifted(builder, rest, POINT - FRACTION, "LEFT")
    slope = whole(builder, int(2**POINT * _natural_logarithm_of_2()))
    result = builder.op("Add", product(builder, rest, slope), whole(builder, 1 << POINT))
    for level in range(_LEVELS):
        result = product(builder, result, _entry(builder, "powers", fraction, FRACTION, level))
    return result


def _entry(builder: Builder, table: str, value: Value, point: int, level: int) -> Value:
    """Build the entries of a table's level for the bits of that level behind the point."""
    bits = shifted(builder, value, point - _BITS * (level + 1), "RIGHT")
    index = builder.op("BitwiseAnd", bits, whole(builder, _MASK))
    entries = builder.constant(_tables()[table][level << _BITS : (level + 1) << _BITS])
    return builder.op("Gather", entries, builder.op("Cast", index, to=INT32.onnx), axis=0)


def _pointed_product(node: Node, args: Sequence[Expr]) -> Expr:
    half, low = ex.const(32, "u64"), ex.const((1 << 32) - 1, "u64")
    (a, b), (c, d) = ((ex.binary("shr", value, half), ex.binary("and", value, low)) for value in args)
    middle = a * d + b * c + ex.binary("shr", b * d, half)
    return ex.binary("shl", a * c, ex.const(64 - POINT, "u64")) + ex.binary("shr", middle, ex.const(POINT - 32, "u64"))


def _highest_bit(node: Node, args: Sequence[Expr]) -> Expr:
    rest, position = args[0], ex.const(0, "u64")
    for step in (32, 16, 8, 4, 2, 1):
        reaches = ex.compare("le", ex.const(1 << step, "u64"), rest)
        count = ex.select(reaches, ex.const(step, "u64"), ex.const(0, "u64"))
        rest, position = ex.binary("shr", rest, count), position + count
    return position


for _name, _element in (("PointedProduct", _pointed_product), ("HighestBit", _highest_bit)):
    register(
        name=_name,
        domain="loom",
        infer=checks.broadcast_inference(),
        element=_element,
        types=(frozenset({"uint64"}),),
    )
