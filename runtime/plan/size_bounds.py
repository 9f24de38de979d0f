"""Bounds of sizes that depend on symbols: none that a run computes is beyond what JavaScript counts exactly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The largest integer that JavaScript tells apart from its neighbours
LARGEST = (1 << 53) - 1

#: The least and the largest value
Bounds = tuple[int, int]


def bounds_of(value: Any, symbols: Mapping[str, Bounds]) -> Bounds | None:
    """Return bounds of a size whose structure was checked, or None if it, or a part, may be 2 to the power of 53.

    Raises :class:`ValueError` for a name that is no symbol.
    """
    if isinstance(value, int):
        return value, value
    if isinstance(value, str):
        if value not in symbols:
            raise ValueError(f"depends on '{value}', which is no symbol of the plan")
        return symbols[value]
    operator, *operands = value
    parts = [bounds_of(operand, symbols) for operand in operands]  # all of them, as each may have a wrong name
    result: Bounds | None = parts[0]
    for part in parts[1:]:
        if result is None or part is None:
            return None
        result = _combine(operator, result, part)
        if max(map(abs, result)) > LARGEST:
            return None
    return result


def _combine(operator: str, left: Bounds, right: Bounds) -> Bounds:
    if operator == "+":
        return left[0] + right[0], left[1] + right[1]
    if operator == "*":
        products = [first * second for first in left for second in right]
        return min(products), max(products)
    if operator == "//":
        return left[0] // right[0], left[1] // right[0]
    if operator == "%":
        divisor = right[0]
        return (left[0] % divisor,) * 2 if left[0] == left[1] else (0, divisor - 1)
    choose = min if operator == "min" else max
    return choose(left[0], right[0]), choose(left[1], right[1])
