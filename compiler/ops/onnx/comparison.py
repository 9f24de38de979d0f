"""Comparison, logical and bitwise operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....runtime.plan.dtypes import BOOL
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic.expr import Expr
from ..checks import ANY, BOOLEAN, INTEGERS, NUMERIC, broadcast_inference, literal, require_choice, wrap
from ..registry import Case, Element, Inferred, Tensor
from .elementwise import binary_element, define, exactly


def _compare_element(op: str) -> Element:
    return lambda node, args: ex.compare(op, args[0], args[1])


_COMPARE_CASES = (
    Case((Tensor((3, 7)), Tensor((7,)))),
    Case((Tensor((3, 1), "int32", -2, 2), Tensor((1, 5), "int32", -2, 2))),
    Case((exactly(2**40, 1, -3, dtype="int64"), exactly(2**40, 2**33 + 1, -(2**35), dtype="int64"))),
    Case((exactly(math.nan, 1.0, math.inf), exactly(math.nan, 1.0, math.inf))),
    Case((Tensor((0, 2)), Tensor((2,)))),
)

for _name, _op in (("Less", "lt"), ("LessOrEqual", "le"), ("Greater", "gt"), ("GreaterOrEqual", "ge")):
    define(_name, _compare_element(_op), _COMPARE_CASES, infer=broadcast_inference(BOOL), types=(NUMERIC,))

define(
    "Equal",
    _compare_element("eq"),
    [*_COMPARE_CASES, Case((Tensor((3, 7), "bool"), Tensor((7,), "bool")))],
    infer=broadcast_inference(BOOL),
    types=(ANY,),
)

_LOGICAL_CASES = (
    Case((Tensor((3, 7), "bool"), Tensor((3, 7), "bool"))),
    Case((Tensor((2, 3, 1), "bool"), Tensor((5,), "bool"))),
)

for _name, _element in (
    ("And", lambda node, args: ex.binary("and", args[0], args[1])),
    ("Or", lambda node, args: ex.binary("or", args[0], args[1])),
    ("Xor", lambda node, args: ex.compare("ne", args[0], args[1])),
):
    define(_name, _element, _LOGICAL_CASES, infer=broadcast_inference(BOOL), types=(BOOLEAN,))

for _name, _op in (("BitwiseAnd", "and"), ("BitwiseOr", "or"), ("BitwiseXor", "xor")):
    define(
        _name,
        binary_element(_op),
        [
            Case((Tensor((3, 7), "int32", -99, 99), Tensor((7,), "int32", -99, 99))),
            Case((Tensor((7,), "uint8", 0, 255), Tensor((7,), "uint8", 0, 255))),
            Case((exactly(-5, 2**40, dtype="int64"), exactly(3, 2**40 + 1, dtype="int64"))),
        ],
        infer=broadcast_inference(),
        types=(INTEGERS,),
    )


@dataclass(frozen=True, slots=True)
class BitShiftAttributes:
    direction: str = ""


def _infer_shift(node: Node) -> Inferred:
    require_choice(node, "direction", ("LEFT", "RIGHT"))
    return broadcast_inference()(node)


def _bit_shift(node: Node, args: Sequence[Expr]) -> Expr:
    """A shift by less than nothing, or by the width or more, leaves what sign extension alone gives."""
    dtype = node.operand(0).dtype
    left = node.attributes.direction == "LEFT"
    value, count = args
    # devices take the shift modulo the width of the word
    fits = ex.compare("lt", count, literal(dtype.bits, dtype))
    zero = literal(0, dtype)
    if not dtype.is_signed:
        shifted = ex.binary("shl" if left else "shr", value, count)
        return wrap(ex.select(fits, shifted, zero), dtype)
    fits = ex.binary("and", fits, ex.compare("ge", count, zero))
    safe = ex.select(fits, count, zero)
    if left:
        return wrap(ex.select(fits, ex.binary("shl", value, safe), zero), dtype)
    # arithmetic, by the logical shift of a number that is not negative
    negative = ex.compare("lt", value, zero)
    magnitude = ex.select(negative, ex.unary("bitnot", value), value)
    unsigned = "u64" if value.dtype == "i64" else "u32"
    moved = ex.binary("shr", ex.cast(magnitude, unsigned), ex.cast(safe, unsigned))
    shifted = ex.select(fits, ex.cast(moved, value.dtype), zero)
    return ex.select(negative, ex.unary("bitnot", shifted), shifted)


_SHIFTED = {
    dtype: (exactly(16, 4, 1, 255, dtype=dtype), exactly(1, 2, 3, 4, dtype=dtype))
    for dtype in ("uint8", "uint16", "uint32", "uint64")
}

_SIGNED = {
    dtype: (exactly(-16, 100, -1, -7, 5, dtype=dtype), exactly(1, 2, 3, 99, -1, dtype=dtype))
    for dtype in ("int8", "int16", "int32", "int64")
}

define(
    "BitShift",
    _bit_shift,
    [
        *(Case(_SHIFTED[dtype], {"direction": way}) for dtype in _SHIFTED for way in ("LEFT", "RIGHT")),
        *(Case(_SIGNED[dtype], {"direction": way}) for dtype in _SIGNED for way in ("LEFT", "RIGHT")),
    ],
    infer=_infer_shift,
    types=(INTEGERS,),
    attributes=BitShiftAttributes,
)
