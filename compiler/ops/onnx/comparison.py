"""Comparison, logical and bitwise operators."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.dtypes import BOOL
from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic.expr import Expr
from ..checks import ANY, BOOLEAN, INTEGERS, NUMERIC, broadcast_inference, literal, require_choice, wrap
from ..registry import Element, Inferred
from .elementwise import binary_element, define


def _compare_element(op: str) -> Element:
    return lambda node, args: ex.compare(op, args[0], args[1])


for _name, _op in (("Less", "lt"), ("LessOrEqual", "le"), ("Greater", "gt"), ("GreaterOrEqual", "ge")):
    define(_name, _compare_element(_op), infer=broadcast_inference(BOOL), types=(NUMERIC,))

define("Equal", _compare_element("eq"), infer=broadcast_inference(BOOL), types=(ANY,))


for _name, _element in (
    ("And", lambda node, args: ex.binary("and", args[0], args[1])),
    ("Or", lambda node, args: ex.binary("or", args[0], args[1])),
    ("Xor", lambda node, args: ex.compare("ne", args[0], args[1])),
):
    define(_name, _element, infer=broadcast_inference(BOOL), types=(BOOLEAN,))

for _name, _op in (("BitwiseAnd", "and"), ("BitwiseOr", "or"), ("BitwiseXor", "xor")):
    define(_name, binary_element(_op), infer=broadcast_inference(), types=(INTEGERS,))


@record
class BitShiftAttributes:
    direction: str = ""


def _infer_shift(node: Node) -> Inferred:
    require_choice(node, "direction", ("LEFT", "RIGHT"))
    return broadcast_inference()(node)


def _bit_shift(node: Node, args: Sequence[Expr]) -> Expr:
    """Shift bits; a negative count, or one of the width or more, leaves what sign extension alone gives."""
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


define("BitShift", _bit_shift, infer=_infer_shift, types=(INTEGERS,), attributes=BitShiftAttributes)
