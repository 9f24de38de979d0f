"""Compare what a user sees of two runs: words and counts are equal, numbers differ by rounding."""

from __future__ import annotations

from typing import Any

#: Of numbers that a model computes, relative to the larger of 1 and the number
TOLERANCE = 2e-3


def difference(expected: Any, result: Any, tolerance: float = TOLERANCE, where: str = "result") -> str | None:
    """Return where two JSON values differ first, and how; None if they agree."""
    if isinstance(expected, float) and isinstance(result, (int, float)):
        is_near = abs(expected - result) <= tolerance * max(1.0, abs(expected))
        return None if is_near else f"{where}: {result} in place of {expected}"
    if isinstance(expected, list) and isinstance(result, list) and len(expected) == len(result):
        pairs = [(f"{where}[{index}]", *pair) for index, pair in enumerate(zip(expected, result))]
    elif isinstance(expected, dict) and isinstance(result, dict) and expected.keys() == result.keys():
        pairs = [(f"{where}.{key}", expected[key], result[key]) for key in expected]
    else:
        return None if expected == result else f"{where}: {result!r:.80} in place of {expected!r:.80}"
    return next((found for path, *pair in pairs if (found := difference(*pair, tolerance, path)) is not None), None)
