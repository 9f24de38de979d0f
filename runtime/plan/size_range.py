"""The sizes that a declared dynamic dimension may have."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any, NamedTuple


class SizeRange(NamedTuple):
    """``low``, ``low + step``, ... up to ``high``, which is one of them; nothing is negative, ``step`` is positive."""

    low: int
    high: int
    step: int = 1

    @classmethod
    def of(cls, bounds: Any) -> SizeRange:
        """Create a range from ``(low, high)`` or ``(low, high, step)``, where ``high`` is any bound of the sizes.

        Raises :class:`ValueError` for anything else, and for a range without a size.
        """
        try:
            low, high, *steps = map(index, bounds)
            (step,) = steps or (1,)
        except (TypeError, ValueError):
            raise ValueError("is not (low, high) or (low, high, step)") from None
        if not 0 <= low <= high or step < 1:
            raise ValueError("has no size")
        return cls(low, high - (high - low) % step, step)

    def allows(self, size: int) -> bool:
        return self.low <= size <= self.high and (size - self.low) % self.step == 0

    def refusal(self, size: int) -> str:
        """Return the allowed sizes around one that is not allowed, for the hint of an error."""
        if not self.low < size < self.high:
            return f"the {'least' if size < self.low else 'largest'} is {self.low if size < self.low else self.high}"
        below = size - (size - self.low) % self.step
        return f"the nearest are {below} and {below + self.step}"

    def __str__(self) -> str:
        return f"{self.low} to {self.high}" + (f" in steps of {self.step}" if self.step > 1 else "")

    def to_json(self) -> list[int]:
        """Return ``[low, high]`` or ``[low, high, step]``."""
        return [self.low, self.high] if self.step == 1 else list(self)


def read_ranges(dynamic: Mapping[str, Any]) -> dict[str, SizeRange]:
    """Return ranges by dimension.

    Raises :class:`ValueError` that names the dimension.
    """
    ranges = {}
    for name, bounds in dynamic.items():
        try:
            ranges[name] = SizeRange.of(bounds)
        except ValueError:
            raise ValueError(
                f"the range {bounds!r} of the dynamic dimension '{name}' is not valid: it must be (low, high) or "
                "(low, high, step) with 0 <= low <= high and step > 0"
            ) from None
    return ranges
