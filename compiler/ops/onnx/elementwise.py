"""Elementwise arithmetic: one expression for each output element.  Integer results wrap to the width of their type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....runtime.plan.dtypes import BOOL
from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic.expr import Expr
from ..checks import BOOLEAN, FLOATS, INTEGERS, NUMERIC, SIGNED, broadcast_inference, literal, same_as_input, wrap
from ..folding import elementwise_fold
from ..registry import Element, Infer, Inferred, OpDef, register

Types = tuple[frozenset[str], ...]


def define(
    name: str,
    element: Element,
    *,
    infer: Infer,
    types: Types,
    **fields: Any,
) -> OpDef:
    """Register an elementwise operator; it folds by evaluating ``element``."""
    fold = elementwise_fold(element, infer)
    return register(name=name, infer=infer, element=element, types=types, fold=fold, **fields)


# -- unary -----------------------------------------------------------------------------------------------------------


def unary_element(op: str) -> Element:
    """Return the lowering to the expression operation ``op``, wrapped to the width of the output's type."""

    def element(node: Node, args: Sequence[Expr]) -> Expr:
        return wrap(ex.unary(op, args[0]), node.operand(0).dtype)

    return element


_FLOAT_UNARY = (
    ("Ceil", "ceil"),
    ("Floor", "floor"),
    ("Sqrt", "sqrt"),
    ("Exp", "exp"),
    ("Log", "log"),
    ("Sin", "sin"),
    ("Cos", "cos"),
    ("Tan", "tan"),
    ("Asin", "asin"),
    ("Acos", "acos"),
    ("Atan", "atan"),
    ("Sinh", "sinh"),
    ("Cosh", "cosh"),
    ("Tanh", "tanh"),
    ("Asinh", "asinh"),
    ("Acosh", "acosh"),
    ("Atanh", "atanh"),
    ("Erf", "erf"),
)


for _name, _op in _FLOAT_UNARY:
    define(_name, unary_element(_op), infer=same_as_input(), types=(FLOATS,))

define("Round", unary_element("round"), infer=same_as_input(), types=(FLOATS,))

define("Reciprocal", lambda node, args: ex.const(1.0, "f32") / args[0], infer=same_as_input(), types=(FLOATS,))


def _abs(node: Node, args: Sequence[Expr]) -> Expr:
    dtype = node.operand(0).dtype
    return wrap(ex.unary("abs", args[0]), dtype) if dtype.is_signed else args[0]


define("Abs", _abs, infer=same_as_input(), types=(NUMERIC,))
define("Neg", unary_element("neg"), infer=same_as_input(), types=(SIGNED,))


def _sign(node: Node, args: Sequence[Expr]) -> Expr:
    dtype = node.operand(0).dtype
    if dtype.is_signed:
        return ex.unary("sign", args[0])
    return ex.binary("min", args[0], literal(1, dtype))


define("Sign", _sign, infer=same_as_input(), types=(NUMERIC,))


def _boolean_inference(node: Node) -> Inferred:
    return [(BOOL, node.operand(0).shape)]


define("Not", unary_element("not"), infer=same_as_input(), types=(BOOLEAN,))
define("BitwiseNot", unary_element("bitnot"), infer=same_as_input(), types=(INTEGERS,))


define("IsNaN", lambda node, args: ex.unary("isnan", args[0]), infer=_boolean_inference, types=(FLOATS,))


@record
class IsInfAttributes:
    detect_negative: int = 1
    detect_positive: int = 1


def _is_inf(node: Node, args: Sequence[Expr]) -> Expr:
    attributes: IsInfAttributes = node.attributes
    infinite = ex.unary("isinf", args[0])
    zero = ex.const(0.0, "f32")
    if attributes.detect_negative and attributes.detect_positive:
        return infinite
    if attributes.detect_positive:
        return ex.binary("and", infinite, ex.compare("gt", args[0], zero))
    if attributes.detect_negative:
        return ex.binary("and", infinite, ex.compare("lt", args[0], zero))
    return ex.const(False, "bool")


define("IsInf", _is_inf, infer=_boolean_inference, types=(FLOATS,), attributes=IsInfAttributes)


# -- binary arithmetic -----------------------------------------------------------------------------------------------


def binary_element(op: str) -> Element:
    """Return the lowering to the expression operation ``op`` on two operands, wrapped to the width of their type."""

    def element(node: Node, args: Sequence[Expr]) -> Expr:
        return wrap(ex.binary(op, args[0], args[1]), node.operand(0).dtype)

    return element


for _name, _op in (("Add", "add"), ("Sub", "sub"), ("Mul", "mul")):
    define(_name, binary_element(_op), infer=broadcast_inference(), types=(NUMERIC,))

define("Div", binary_element("div"), infer=broadcast_inference(), types=(NUMERIC,))


@record
class ModAttributes:
    fmod: int = 0


def _mod(node: Node, args: Sequence[Expr]) -> Expr:
    return ex.binary("fmod" if node.attributes.fmod else "mod", args[0], args[1])


define("Mod", _mod, infer=broadcast_inference(), types=(NUMERIC,), attributes=ModAttributes)


def _pow(node: Node, args: Sequence[Expr]) -> Expr:
    base_type, exponent_type = node.operand(0).dtype, node.operand(1).dtype
    base, exponent = args
    if base_type.is_float:
        return ex.binary("pow", base, ex.cast(exponent, "f32"))
    if exponent_type.is_float:
        power = ex.binary("pow", ex.cast(base, "f32"), exponent)
        return wrap(ex.cast(power, base_type.compute), base_type)
    return wrap(_integer_power(base, exponent), base_type)


def _integer_power(base: Expr, exponent: Expr) -> Expr:
    """Return the exact power by repeated squaring.

    The exponents used are 0 to 63 (a larger one overflows unless |base| < 2).
    """
    one, zero = ex.const(1, base.dtype), ex.const(0, base.dtype)
    if exponent.op == "const" and 0 <= exponent.payload < 64:
        result, square, left = one, base, int(exponent.payload)
        while left:
            result = result * square if left & 1 else result
            left >>= 1
            square = square * square if left else square
        return result
    bits = ex.cast(exponent, "i32")
    result, square = one, base
    for bit in range(6):
        odd = ex.compare("ne", ex.binary("and", bits, ex.const(1 << bit, "i32")), ex.const(0, "i32"))
        result = result * ex.select(odd, square, one)
        if bit < 5:
            square = square * square
    # 1 / base**n truncates to zero unless base is 1 or -1
    unit = ex.compare("eq", base * base, one)
    negative = ex.compare("lt", bits, ex.const(0, "i32"))
    return ex.select(ex.binary("and", negative, ex.unary("not", unit)), zero, result)


define("Pow", _pow, infer=broadcast_inference(same_type=False), types=(NUMERIC,))
