"""Elementwise arithmetic: one expression for each output element.  Integer results wrap to the width of their type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....runtime.plan.dtypes import BOOL
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic.expr import Expr
from ..checks import BOOLEAN, FLOATS, INTEGERS, NUMERIC, SIGNED, broadcast_inference, literal, same_as_input, wrap
from ..folding import elementwise_fold
from ..registry import Case, Element, Infer, Inferred, OpDef, Tensor, register

Types = tuple[frozenset[str], ...]


def define(
    name: str,
    element: Element,
    cases: Sequence[Case],
    *,
    infer: Infer,
    types: Types,
    **fields: Any,
) -> OpDef:
    """Register an elementwise operator; it folds by evaluating ``element``."""
    fold = elementwise_fold(element, infer)
    return register(name=name, infer=infer, cases=tuple(cases), element=element, types=types, fold=fold, **fields)


# -- unary -----------------------------------------------------------------------------------------------------------


def unary_element(op: str) -> Element:
    """The expression operation ``op``, wrapped to the width of the output's type."""

    def element(node: Node, args: Sequence[Expr]) -> Expr:
        return wrap(ex.unary(op, args[0]), node.operand(0).dtype)

    return element


def unary_cases(low: float = -2.0, high: float = 2.0, extra: Sequence[Case] = ()) -> list[Case]:
    """Odd sizes, a scalar, an empty tensor, half precision."""
    shapes = ((3, 7), (17,), (), (1, 3, 1, 7), (0, 3))
    cases = [Case((Tensor(shape, low=low, high=high),)) for shape in shapes]
    return [*cases, Case((Tensor((5, 3), "float16", low, high),), tolerance=2e-3), *extra]


def exactly(*values: float, dtype: str = "float32") -> Tensor:
    return Tensor((len(values),), dtype, data=list(values))


_FLOAT_UNARY: tuple[tuple[str, str, float, float], ...] = (
    ("Ceil", "ceil", -3.0, 3.0),
    ("Floor", "floor", -3.0, 3.0),
    ("Sqrt", "sqrt", 0.0, 9.0),
    ("Exp", "exp", -5.0, 5.0),
    ("Log", "log", 0.01, 9.0),
    ("Sin", "sin", -6.0, 6.0),
    ("Cos", "cos", -6.0, 6.0),
    ("Tan", "tan", -1.2, 1.2),
    ("Asin", "asin", -1.0, 1.0),
    ("Acos", "acos", -1.0, 1.0),
    ("Atan", "atan", -9.0, 9.0),
    ("Sinh", "sinh", -4.0, 4.0),
    ("Cosh", "cosh", -4.0, 4.0),
    ("Tanh", "tanh", -4.0, 4.0),
    ("Asinh", "asinh", -4.0, 4.0),
    ("Acosh", "acosh", 1.0, 9.0),
    ("Atanh", "atanh", -0.99, 0.99),
    ("Erf", "erf", -4.0, 4.0),
)

_SATURATED = {
    "Tanh": [Case((exactly(-100.0, -20.0, 0.0, 20.0, 100.0),))],
    "Erf": [Case((exactly(-100.0, -6.0, 0.0, 1e-4, 6.0, 100.0),))],
    "Exp": [Case((exactly(-104.0, -1.0, 0.0, 1.0),))],
}

for _name, _op, _low, _high in _FLOAT_UNARY:
    define(
        _name,
        unary_element(_op),
        unary_cases(_low, _high, _SATURATED.get(_name, ())),
        infer=same_as_input(),
        types=(FLOATS,),
    )

define(
    "Round",
    unary_element("round"),
    unary_cases(-3.0, 3.0, [Case((exactly(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.49),))]),
    infer=same_as_input(),
    types=(FLOATS,),
)

define(
    "Reciprocal",
    lambda node, args: ex.const(1.0, "f32") / args[0],
    unary_cases(0.2, 4.0),
    infer=same_as_input(),
    types=(FLOATS,),
)


def _abs(node: Node, args: Sequence[Expr]) -> Expr:
    dtype = node.operand(0).dtype
    return wrap(ex.unary("abs", args[0]), dtype) if dtype.is_signed else args[0]


_INTEGER_UNARY = [
    Case((exactly(-128, -1, 0, 5, 127, dtype="int8"),)),
    Case((exactly(-(2**40), -1, 0, 7, dtype="int64"),)),
    Case((Tensor((3, 5), "int32", -9, 9),)),
]

define("Abs", _abs, unary_cases(extra=_INTEGER_UNARY), infer=same_as_input(), types=(NUMERIC,))
define("Neg", unary_element("neg"), unary_cases(extra=_INTEGER_UNARY), infer=same_as_input(), types=(SIGNED,))


def _sign(node: Node, args: Sequence[Expr]) -> Expr:
    dtype = node.operand(0).dtype
    if dtype.is_signed:
        return ex.unary("sign", args[0])
    return ex.binary("min", args[0], literal(1, dtype))


define(
    "Sign",
    _sign,
    unary_cases(extra=[*_INTEGER_UNARY, Case((exactly(0, 1, 200, dtype="uint8"),))]),
    infer=same_as_input(),
    types=(NUMERIC,),
)


def _boolean_inference(node: Node) -> Inferred:
    return [(BOOL, node.operand(0).shape)]


define("Not", unary_element("not"), [Case((Tensor((3, 7), "bool"),))], infer=same_as_input(), types=(BOOLEAN,))
define(
    "BitwiseNot",
    unary_element("bitnot"),
    [Case((Tensor((7,), dtype, 0, 90),)) for dtype in ("uint8", "int8", "int32", "uint16", "int64")],
    infer=same_as_input(),
    types=(INTEGERS,),
)

_SPECIAL = exactly(math.nan, math.inf, -math.inf, 0.0, 1.0, -3e38)

define(
    "IsNaN",
    lambda node, args: ex.unary("isnan", args[0]),
    [Case((_SPECIAL,))],
    infer=_boolean_inference,
    types=(FLOATS,),
)


@dataclass(frozen=True, slots=True)
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


define(
    "IsInf",
    _is_inf,
    [Case((_SPECIAL,), {"detect_negative": n, "detect_positive": p}) for n in (0, 1) for p in (0, 1)],
    infer=_boolean_inference,
    types=(FLOATS,),
    attributes=IsInfAttributes,
)


# -- binary arithmetic -----------------------------------------------------------------------------------------------


def binary_element(op: str) -> Element:
    """The expression operation ``op`` on two operands, wrapped to the width of their type."""

    def element(node: Node, args: Sequence[Expr]) -> Expr:
        return wrap(ex.binary(op, args[0], args[1]), node.operand(0).dtype)

    return element


def binary_cases(dtype: str = "float32", low: float = -2.0, high: float = 2.0) -> list[Case]:
    """The kinds of broadcasting, odd sizes, scalars, empty tensors."""
    shapes = (
        ((3, 7), (3, 7)),
        ((2, 3, 5), (3, 1)),
        ((1, 17), (3, 1)),
        ((), (5,)),
        ((2, 1, 3, 1), (1, 4, 1, 7)),
        ((0, 3), (1, 3)),
    )
    return [Case((Tensor(left, dtype, low, high), Tensor(right, dtype, low, high))) for left, right in shapes]


def _wrapping_cases() -> list[Case]:
    return [
        Case((exactly(100, -100, 127, -128, dtype="int8"), exactly(100, 100, 1, -128, dtype="int8")), opset=14),
        Case((exactly(200, 255, 0, dtype="uint8"), exactly(100, 1, 3, dtype="uint8")), opset=14),
        Case((exactly(2**40, -(2**33), 7, dtype="int64"), exactly(3, 2**20, -9, dtype="int64"))),
    ]


for _name, _op in (("Add", "add"), ("Sub", "sub"), ("Mul", "mul")):
    define(
        _name,
        binary_element(_op),
        [*binary_cases(), *binary_cases("int32", -50, 50)[:3], *_wrapping_cases()],
        infer=broadcast_inference(),
        types=(NUMERIC,),
    )

define(
    "Div",
    binary_element("div"),
    [
        *binary_cases(low=0.5),
        Case((exactly(7, -7, 7, -7, 6, dtype="int32"), exactly(2, 2, -2, -2, 3, dtype="int32"))),
        Case((exactly(7, -7, 2**40, dtype="int64"), exactly(2, 2, -3, dtype="int64"))),
        Case((exactly(200, 255, 9, dtype="uint8"), exactly(100, 2, 4, dtype="uint8")), opset=14),
    ],
    infer=broadcast_inference(),
    types=(NUMERIC,),
)


@dataclass(frozen=True, slots=True)
class ModAttributes:
    fmod: int = 0


def _mod(node: Node, args: Sequence[Expr]) -> Expr:
    return ex.binary("fmod" if node.attributes.fmod else "mod", args[0], args[1])


_MOD_INTEGERS = (exactly(7, -7, 7, -7, 6, dtype="int32"), exactly(3, 3, -3, -3, 3, dtype="int32"))

define(
    "Mod",
    _mod,
    [
        Case(_MOD_INTEGERS),
        Case(_MOD_INTEGERS, {"fmod": 1}),
        Case((exactly(-7, 2**40 + 1, dtype="int64"), exactly(3, 5, dtype="int64"))),
        Case((exactly(200, 7, dtype="uint8"), exactly(6, 4, dtype="uint8"))),
        Case((exactly(-4.3, 7.2, 5.0), exactly(2.1, -3.4, 8.0)), {"fmod": 1}),
    ],
    infer=broadcast_inference(),
    types=(NUMERIC,),
    attributes=ModAttributes,
)


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
    """Exact power by repeated squaring; the exponents used are 0 to 63 (a larger one overflows unless |base| < 2)."""
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


define(
    "Pow",
    _pow,
    [
        *binary_cases(low=0.2),
        Case((Tensor((3, 7)), Tensor(data=2.0, constant=True))),
        Case((Tensor((3, 7)), Tensor(data=3.0, constant=True))),
        Case((Tensor((3, 7), low=0.1), Tensor(data=0.5, constant=True))),
        Case((exactly(-2.0, -2.0, 2.0, 0.0), exactly(2.0, 3.0, -1.0, 0.0))),
        Case((Tensor((7,)), exactly(0, 1, 2, 3, 4, 5, 2, dtype="int64"))),
        Case((exactly(2, -3, 5, 7, 0, dtype="int32"), exactly(10, 3, 0, 1, 2, dtype="int32"))),
        Case((exactly(3, -2, dtype="int64"), exactly(30, 61, dtype="int64"))),
        Case((exactly(4, 9, 2, dtype="int32"), exactly(0.5, 0.5, 3.0))),
    ],
    infer=broadcast_inference(same_type=False),
    types=(NUMERIC,),
)
