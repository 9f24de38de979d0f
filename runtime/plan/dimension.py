"""Numbers of a plan that may depend on declared dynamic dimensions."""

from __future__ import annotations

from collections.abc import Mapping
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


def dim_text(expression: DimExpr) -> str:
    """Return a dimension as text: a number, a name, or an expression in prefix form."""
    if isinstance(expression, (int, str)):
        return str(expression)
    return "(" + " ".join(dim_text(part) for part in expression) + ")"


def shape_text(shape: tuple[DimExpr, ...]) -> str:
    """Return a shape as text: ``1x3x224x224``, or ``scalar``."""
    return "x".join(map(dim_text, shape)) or "scalar"
