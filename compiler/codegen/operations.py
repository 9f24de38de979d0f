"""Constants and operations to WGSL text, for one lane or four.

Where WGSL or a driver is inexact, loses NaN or leaves a result open, the text calls a helper function instead.
"""

from __future__ import annotations

import math

import numpy as np

from ...runtime.plan.errors import InternalError
from ..symbolic.expr import Expr
from .types import wgsl_type
from .writer import Writer, is_atomic

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "and": "&",
    "or": "|",
    "xor": "^",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
_BUILTIN = frozenset("abs sqrt floor ceil trunc round".split())
#: Built-in functions of most of these names lose NaN, or have large errors, on one driver or another
_HELPERS = frozenset(
    "exp expm1 log log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc "
    "pow isnan isinf sign round_float16 round_bfloat16".split()
)


def float_literal(value: float) -> str:
    """Format a WGSL f32 literal; finite values only."""
    text = repr(float(np.float32(value)))
    if "e" not in text and "." not in text:
        text += ".0"
    return f"{text}f" if value >= 0 and not text.startswith("-") else f"({text}f)"


def literal(node: Expr, writer: Writer) -> str:
    """Return the text of a constant."""
    value = node.payload
    if node.dtype == "bool":
        return "true" if value else "false"
    if node.dtype == "f32":
        if math.isfinite(np.float32(value)):
            return float_literal(value)
        name = "not_a_number" if value != value else "infinity"
        return f"-{writer.call(name, [])}" if value < 0 else writer.call(name, [])
    if node.dtype == "i32":
        return str(value) if value >= 0 else f"i32({value})"
    if node.dtype == "u32":
        return f"{value}u"
    bits = value & (1 << 64) - 1
    return f"vec2<u32>({bits & 0xFFFFFFFF}u, {bits >> 32}u)"


def operation(node: Expr, arguments: list[str], lanes: int, writer: Writer) -> str:
    """Return the text of one operation on rendered arguments of one or four lanes."""
    op, dtype = node.op, node.args[-1].dtype
    if dtype in ("i64", "u64") or node.dtype in ("i64", "u64"):
        return _wide_operation(node, arguments, writer)
    if op == "cast":
        return _cast(node, arguments[0], lanes)
    if op == "bitcast":
        return f"bitcast<{wgsl_type(node.dtype, lanes)}>({arguments[0]})"
    if op == "select":
        return f"select({arguments[2]}, {arguments[1]}, {arguments[0]})"
    if op == "word":
        return _word(node, arguments, lanes)
    if op == "neg":
        return f"(-{arguments[0]})" if dtype != "u32" else f"(~{arguments[0]} + {_splat('1u', lanes, 'u32')})"
    if op == "not":
        return f"!{arguments[0]}" if is_atomic(arguments[0]) else f"(!{arguments[0]})"
    if op == "bitnot":
        return f"(~{arguments[0]})"
    if op == "xor" and dtype == "bool":
        return f"({arguments[0]} != {arguments[1]})"
    if op in ("shl", "shr"):
        return writer.call(f"{op}_{dtype}", arguments, lanes)
    if op in ("min_number", "max_number"):
        return f"{op[:3]}({arguments[0]}, {arguments[1]})"
    if op in ("min", "max"):
        return _extremum(node, arguments, lanes, writer)
    if op == "mod" and dtype == "f32":
        return writer.call("floor_mod_f32", arguments, lanes)
    if op in ("mod", "fmod") and dtype == "i32":
        return writer.call("floor_mod_i32" if op == "mod" else "fmod_i32", arguments, lanes)
    if op in ("mod", "fmod"):
        return f"({arguments[0]} % {arguments[1]})"
    if op in ("lt", "le", "gt", "ge") and dtype == "bool":
        raise InternalError(f"{op} on bool")
    if op == "ne" and dtype == "f32":  # naga compares in order: x != y is false for NaN
        return f"(!({arguments[0]} == {arguments[1]}))"
    if op in _INFIX:
        return f"({arguments[0]} {_INFIX[op]} {arguments[1]})"
    if op in ("abs", "sign") and dtype == "u32":
        return arguments[0] if op == "abs" else f"min({arguments[0]}, {_splat('1u', lanes, 'u32')})"
    if op in ("floor", "ceil", "round", "trunc") and dtype != "f32":
        return arguments[0]
    if op in ("isnan", "isinf") and dtype != "f32":
        return _splat("false", lanes, "bool")
    if op in _BUILTIN:
        return f"{op}({arguments[0]})"
    if op in _HELPERS:
        return writer.call(op if dtype == "f32" else f"{op}_{dtype}", arguments, lanes)
    raise InternalError(f"operation {op} on {dtype} has no WGSL form")


def _word(node: Expr, arguments: list[str], lanes: int) -> str:
    kind = wgsl_type("u32", lanes)
    codes = [
        argument if each.dtype == "u32" else f"bitcast<{kind}>({argument})"
        for each, argument in zip(node.args, arguments, strict=True)
    ]
    low = [f"({code} & {_splat('255u', lanes, 'u32')})" for code in codes[:3]]
    parts = [low[0], *(f"({each} << {_splat(f'{8 * place}u', lanes, 'u32')})" for place, each in enumerate(low[1:], 1))]
    return f"({' | '.join(parts)} | ({codes[3]} << {_splat('24u', lanes, 'u32')}))"


def _splat(text: str, lanes: int, dtype: str) -> str:
    return text if lanes == 1 else f"{wgsl_type(dtype, lanes)}({text})"


def _extremum(node: Expr, arguments: list[str], lanes: int, writer: Writer) -> str:
    """Return the text of a minimum or maximum where NaN wins, as in ONNX.

    The built-in functions may lose NaN.  A comparison that NaN fails does so too: some drivers take it for a sign
    that there is none.  So bits decide.
    """
    op = node.op
    if node.args[0].dtype != "f32":
        return f"{op}({arguments[0]}, {arguments[1]})"
    left, right = arguments
    if node.args[0].op == "const":
        left, right = right, left
    elif node.args[1].op != "const":
        return writer.call(f"{op}_f32", arguments, lanes)
    value = writer.short(left) if is_atomic(left) else writer.name(left)
    return f"select({op}({value}, {right}), {value}, {writer.call('isnan', [value], lanes)})"


def _cast(node: Expr, argument: str, lanes: int) -> str:
    source, target = node.args[0].dtype, node.dtype
    if target == "bool":
        zero = _splat({"f32": "0.0f", "i32": "0", "u32": "0u"}[source], lanes, source)
        # naga compares floats in order: NaN != 0 would be false
        return f"(!({argument} == {zero}))" if source == "f32" else f"({argument} != {zero})"
    return f"{wgsl_type(target, lanes)}({argument})"


def _wide_operation(node: Expr, arguments: list[str], writer: Writer) -> str:
    """Emit an operation on 64-bit integers: two words, dedicated helpers, one lane at a time."""
    op = node.op
    if op == "cast":
        return writer.call(f"{node.args[0].dtype}_to_{node.dtype}", arguments)
    if op == "select":
        return f"select({arguments[2]}, {arguments[1]}, {arguments[0]})"
    if op in ("eq", "ne"):
        quantifier = "all" if op == "eq" else "any"
        return f"{quantifier}({arguments[0]} {_INFIX[op]} {arguments[1]})"
    if op in ("and", "or", "xor"):
        return f"({arguments[0]} {_INFIX[op]} {arguments[1]})"
    if op == "bitnot":
        return f"(~{arguments[0]})"
    if op in ("floor", "ceil", "round", "trunc") or (op == "abs" and node.dtype == "u64"):
        return arguments[0]
    if op in ("isnan", "isinf"):
        return "false"
    if op in ("gt", "le"):  # a > b is b < a; a <= b is not b < a
        less = writer.call(f"lt_{node.args[0].dtype}", arguments[::-1])
        return less if op == "gt" else f"(!{less})"
    if op in ("lt", "ge"):
        less = writer.call(f"lt_{node.args[0].dtype}", arguments)
        return less if op == "lt" else f"(!{less})"
    dtype = node.dtype
    if op in ("add", "sub", "mul", "neg"):
        dtype = "i64"  # the same bits for signed and unsigned
    return writer.call(f"{op}_{dtype}", arguments)
