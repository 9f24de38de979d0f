"""The sizes that a declared dynamic dimension may have, and the integers that a program may read."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any, NamedTuple


class SizeRange(NamedTuple):
    """``low``, ``low + step``, ... up to ``high``, which is one of them; ``step`` is positive.  Sizes are not negative,
    integers that a program reads may be.
    """

    low: int
    high: int
    step: int = 1

    @classmethod
    def of(cls, bounds: Any, *, negative: bool = False) -> SizeRange:
        """Create a range from ``(low, high)`` or ``(low, high, step)``, where ``high`` is any bound of the sizes;
        ``negative`` ones are allowed where it is that of integers.

        Raises :class:`ValueError` for anything else, and for a range without a size.
        """
        try:
            low, high, *steps = map(index, bounds)
            (step,) = steps or (1,)
        except (TypeError, ValueError):
            raise ValueError("is not (low, high) or (low, high, step)") from None
        if not low <= high or step < 1 or (low < 0 and not negative):
            raise ValueError("has no size")
        return cls(low, high - (high - low) % step, step)

    @property
    def shift(self) -> int:
        """What is subtracted from an integer to give the size of its symbol: 0, or ``low`` where that is negative."""
        return min(self.low, 0)

    @property
    def sizes(self) -> SizeRange:
        """The range of the symbol's size."""
        return SizeRange(self.low - self.shift, self.high - self.shift, self.step)

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


def read_ranges(dynamic: Mapping[str, Any], *, negative: bool = False) -> dict[str, SizeRange]:
    """Return ranges by dimension, or by the ``negative`` or other integer that a program reads.

    Raises :class:`ValueError` that names the dimension.
    """
    ranges = {}
    for name, bounds in dynamic.items():
        try:
            ranges[name] = SizeRange.of(bounds, negative=negative)
        except ValueError:
            what, least = ("integer", "") if negative else ("dynamic dimension", "0 <= ")
            raise ValueError(
                f"the range {bounds!r} of the {what} '{name}' is not valid: it must be (low, high) or "
                f"(low, high, step) with {least}low <= high and step > 0"
            ) from None
    return ranges
