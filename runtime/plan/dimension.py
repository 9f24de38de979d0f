"""Numbers of a plan that may depend on declared dynamic dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

#: An int, the name of a symbol, or ``[operator, operand, ...]`` with the operators ``+ * // % min max``
DimExpr = Union[int, str, list[Any], tuple[Any, ...]]


def evaluate(expression: DimExpr, symbols: Mapping[str, int]) -> int:
    """Return the value of a dimension expression."""
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        return symbols[expression]
    operator, *operands = expression
    values = [evaluate(operand, symbols) for operand in operands]
    if operator == "+":
        return sum(values)
    if operator == "*":
        result = 1
        for value in values:
            result *= value
        return result
    left, right = values
    if operator == "//":
        return left // right
    if operator == "%":
        return left % right
    if operator == "min":
        return min(left, right)
    if operator == "max":
        return max(left, right)
    raise ValueError(f"unknown operator {operator!r} in a dimension")


def dimension_function(expressions: Sequence[DimExpr], names: Sequence[str]) -> Callable[..., tuple[int, ...]]:
    """Return the function of the values of ``names`` that gives the values of ``expressions``.

    It is compiled: parts that several expressions share are computed once.  Raises ValueError for an operator and
    KeyError for a name that is unknown.
    """
    constants = tuple(expression for expression in expressions if isinstance(expression, int))
    if len(constants) == len(expressions):
        return lambda *_: constants
    variables = {name: f"v{position}" for position, name in enumerate(names)}
    parts: dict[str, str] = {}

    def part(expression: DimExpr) -> str:
        if isinstance(expression, int):
            return repr(int(expression))
        if isinstance(expression, str):
            return variables[expression]
        operator, *operands = expression
        values = [part(operand) for operand in operands]
        if operator in ("+", "*"):
            text = f" {operator} ".join(values)
        elif operator in ("//", "%"):
            text = f"{values[0]} {operator} {values[1]}"
        elif operator in ("min", "max"):
            text = f"{operator}({values[0]}, {values[1]})"
        else:
            raise ValueError(f"unknown operator {operator!r} in a dimension")
        return parts.setdefault(text, f"p{len(parts)}")

    results = "".join(f"{part(expression)}, " for expression in expressions)
    body = [*(f"{name} = {text}" for text, name in parts.items()), f"return ({results})"]
    scope: dict[str, Any] = {"min": min, "max": max}
    exec("\n  ".join([f"def sizes({', '.join(variables.values())}):", *body]), scope)
    function: Callable[..., tuple[int, ...]] = scope["sizes"]
    return function


def dim_text(expression: DimExpr) -> str:
    """Return a dimension as text: a number, a name, or an expression in prefix form."""
    if isinstance(expression, (int, str)):
        return str(expression)
    return "(" + " ".join(dim_text(part) for part in expression) + ")"


def shape_text(shape: tuple[DimExpr, ...]) -> str:
    """Return a shape as text: ``1x3x224x224``, or ``scalar``."""
    return "x".join(map(dim_text, shape)) or "scalar"
