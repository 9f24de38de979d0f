"""Which sizes of a dynamic dimension a plan serves: a range of them, or a point, one size that has a plan of its own.

All plans of a model share its weights, so points cost a compilation and activations only.
"""

from __future__ import annotations

from ..runtime.plan.size_range import SizeRange

#: The least size that is no point, the upper bounds of the first two ranges, and the quotient of those that follow.
#: Kernels for few rows are others than those for many; tiles for many waste little on fewer (docs/performance.md).
LOW, FEW, MANY, FACTOR = 2, 8, 256, 4


def served_with(size: int, declared: SizeRange | None = None) -> SizeRange:
    """Return the sizes that the plan for ``size`` serves, among those that were ``declared`` if any were.

    Points are 0 and 1, which broadcasting treats apart; of a declared range 1 where it is the least size: kernels for
    one row, or one token, are others than those for several.  Ranges that nobody declared are 2 to 8, 9 to
    256, 257 to 1024, and so on.
    """
    if declared is not None:
        return SizeRange(1, 1) if size == declared.low == 1 else declared
    if size < LOW:
        return SizeRange(size, size)
    low, high = LOW, FEW
    while size > high:
        low, high = high + 1, MANY if high == FEW else FACTOR * high
    return SizeRange(low, high)
