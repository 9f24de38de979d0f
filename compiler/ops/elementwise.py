"""Elementwise arithmetic, comparison, logical and bitwise operators: one expression for each output element.

Integer results wrap to the width of their type.  NaN propagates through Max and Min, as in numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...runtime.dtypes import BOOL
from ...runtime.errors import ShapeError
from .. import expr as ex
from ..expr import Expr
from ..ir import Node, Value
from . import common
from .common import (
    ANY,
    BOOLEAN,
    FLOATS,
    INTEGERS,
    NUMERIC,
    SIGNED,
    UNSIGNED_INTEGERS,
    broadcast_inference,
    literal,
    same_as_input,
    wrap,
)
from .folding import elementwise_fold
from .registry import Builder, Case, Element, Infer, Inferred, NoAttributes, OpDef, Tensor, register

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


# -- extrema ---------------------------------------------------------------------------------------------------------


def extremum(op: str, left: Expr, right: Expr) -> Expr:
    """``max`` or ``min`` that gives NaN when either operand is NaN."""
    if left.dtype not in ex.FLOATS:
        return ex.binary(op, left, right)
    wins = "gt" if op == "max" else "lt"
    if left.op == "const" and right.op != "const":
        left, right = right, left
    if right.op == "const" and right.payload == right.payload:
        # a comparison with NaN is false: the variable operand is kept
        return ex.select(ex.compare(wins, right, left), right, left)
    first = ex.binary("or", ex.compare(wins, left, right), ex.unary("isnan", left))
    return ex.select(first, left, right)


def _extremum_element(op: str) -> Element:
    return lambda node, args: extremum(op, args[0], args[1])


def _chain(name: str, domain: str = "") -> Callable[[Builder, Node], Sequence[Value]]:
    """Variadic operators as a chain of binary ones, so that each can be fused where its operands are made."""

    def expand(builder: Builder, node: Node) -> Sequence[Value]:
        result = node.operand(0)
        for position in range(1, len(node.inputs)):
            result = builder.op(name, result, node.operand(position), domain=domain)
        return [result]

    return expand


def _variadic_cases(dtypes: Sequence[str]) -> list[Case]:
    cases = []
    for dtype in dtypes:
        cases += [
            Case((Tensor((3, 7), dtype, -9, 9),)),
            Case((Tensor((3, 7), dtype, -9, 9), Tensor((7,), dtype, -9, 9))),
            Case((Tensor((1, 3), dtype, -9, 9), Tensor((5, 1), dtype, -9, 9), Tensor((), dtype, -9, 9))),
        ]
    return cases


_NAN_PAIR = (exactly(math.nan, 1.0, math.nan, -3.0), exactly(1.0, math.nan, math.nan, 2.0))

for _name, _op, _binary in (("Max", "max", "Maximum"), ("Min", "min", "Minimum")):
    define(
        _binary,
        _extremum_element(_op),
        (),
        infer=broadcast_inference(),
        types=(NUMERIC,),
        domain="loom",
    )
    register(
        name=_name,
        infer=broadcast_inference(),
        cases=(*_variadic_cases(("float32", "int32", "int64")), Case(_NAN_PAIR)),
        expand=_chain(_binary, "loom"),
        types=(NUMERIC,),
        fold=elementwise_fold(
            (lambda op: lambda node, args: _fold_chain(lambda left, right: extremum(op, left, right), args))(_op),
            broadcast_inference(),
        ),
    )


def _fold_chain(rule: Callable[[Expr, Expr], Expr], args: Sequence[Expr]) -> Expr:
    result = args[0]
    for argument in args[1:]:
        result = rule(result, argument)
    return result


def _expand_mean(builder: Builder, node: Node) -> Sequence[Value]:
    (total,) = _chain("Add")(builder, node)
    return [builder.op("Mul", total, builder.scalar(1.0 / len(node.inputs), total))]


register(
    name="Sum",
    infer=broadcast_inference(),
    cases=tuple(_variadic_cases(("float32",))),
    expand=_chain("Add"),
    types=(NUMERIC,),
    fold=elementwise_fold(
        lambda node, args: wrap(_fold_chain(Expr.__add__, args), node.operand(0).dtype), broadcast_inference()
    ),
)
register(
    name="Mean",
    infer=broadcast_inference(),
    cases=tuple(_variadic_cases(("float32",))),
    expand=_expand_mean,
    types=(FLOATS,),
)


# -- comparison, logic, bits -----------------------------------------------------------------------------------------


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
    if node.attributes.direction not in ("LEFT", "RIGHT"):
        raise ShapeError(f"direction '{node.attributes.direction}' is neither LEFT nor RIGHT", origin=node.origin)
    return broadcast_inference()(node)


def _bit_shift(node: Node, args: Sequence[Expr]) -> Expr:
    dtype = node.operand(0).dtype
    left = node.attributes.direction == "LEFT"
    shifted = ex.binary("shl" if left else "shr", args[0], args[1])
    # devices take the shift modulo the width of the word; a shift by the width or more leaves nothing
    fits = ex.compare("lt", args[1], literal(dtype.bits, dtype))
    return wrap(ex.select(fits, shifted, literal(0, dtype)), dtype)


_SHIFTED = {
    dtype: (exactly(16, 4, 1, 255, dtype=dtype), exactly(1, 2, 3, 4, dtype=dtype))
    for dtype in ("uint8", "uint16", "uint32", "uint64")
}

define(
    "BitShift",
    _bit_shift,
    [Case(_SHIFTED[dtype], {"direction": way}) for dtype in _SHIFTED for way in ("LEFT", "RIGHT")],
    infer=_infer_shift,
    types=(UNSIGNED_INTEGERS,),
    attributes=BitShiftAttributes,
)


# -- selection -------------------------------------------------------------------------------------------------------


def _infer_where(node: Node) -> Inferred:
    condition, left, right = node.operand(0), node.operand(1), node.operand(2)
    common.require_same_type(node, [left, right])
    return [(left.dtype, common.broadcast_shapes(node, [condition.shape, left.shape, right.shape]))]


define(
    "Where",
    lambda node, args: ex.select(args[0], args[1], args[2]),
    [
        Case((Tensor((3, 7), "bool"), Tensor((3, 7)), Tensor((7,)))),
        Case((Tensor((3, 1), "bool"), Tensor((1, 5), "int64", -9, 9), Tensor((), "int64", -9, 9))),
        Case((Tensor((5,), "bool"), Tensor((2, 5), "uint8", 0, 255), Tensor((1,), "uint8", 0, 255))),
        Case((Tensor((0,), "bool"), Tensor((0,)), Tensor((1,)))),
    ],
    infer=_infer_where,
    types=(BOOLEAN, ANY),
)


def clamp(value: Expr, low: Expr | None, high: Expr | None) -> Expr:
    """``low`` where below it, then ``high`` where above it: NaN stays, and ``high`` wins when the bounds cross."""
    if low is not None:
        value = ex.select(ex.compare("lt", value, low), low, value)
    if high is not None:
        value = ex.select(ex.compare("gt", value, high), high, value)
    return value


def _infer_clip(node: Node) -> Inferred:
    for position in (1, 2):
        bound = node.optional(position)
        if bound is not None:
            common.require(bound.rank == 0 or common.is_size(bound.elements, 1), node, "bounds must be scalars")
    return [(node.operand(0).dtype, node.operand(0).shape)]


def _clip(node: Node, args: Sequence[Expr]) -> Expr:
    value, *bounds = args
    low = ex.cast(bounds.pop(0), value.dtype) if node.optional(1) is not None else None
    high = ex.cast(bounds.pop(0), value.dtype) if node.optional(2) is not None else None
    return clamp(value, low, high)


_LOW, _HIGH = Tensor(data=-0.5, constant=True), Tensor(data=0.75, constant=True)

define(
    "Clip",
    _clip,
    [
        Case((Tensor((3, 7)), _LOW, _HIGH)),
        Case((Tensor((17,)), Tensor(data=-0.5), Tensor(data=0.75))),
        Case((Tensor((3, 7)), None, _HIGH)),
        Case((Tensor((3, 7)), _LOW)),
        Case((Tensor((3, 7)),)),
        Case((Tensor((3, 7)), _HIGH, _LOW)),
        Case((exactly(math.nan, -9.0, 9.0), _LOW, _HIGH)),
        Case((Tensor((7,)),), {"min": 0.0, "max": 1.0}, opset=10),
        Case((Tensor((7,)),), {"max": 1.0}, opset=7),
        Case((Tensor((7,), "int32", -9, 9), Tensor((), "int32", data=-3), Tensor((), "int32", data=4))),
        Case((Tensor((7,), "int8", -9, 9), Tensor((), "int8", data=-3), Tensor((), "int8", data=4))),
    ],
    infer=_infer_clip,
    types=(NUMERIC,),
    adapters=(
        (10, common.attribute_to_input("min", 1, "float32")),
        (10, common.attribute_to_input("max", 2, "float32")),
    ),
    attributes=NoAttributes,
)
