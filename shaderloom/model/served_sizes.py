"""Which sizes of a dynamic dimension a plan serves: a range of them, or a point, one size that has a plan of its own.

All plans of a model share its weights, so points cost a compilation and activations only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..runtime.plan.size_range import SizeRange

#: The least size that is no point, the upper bounds of the first two ranges, and the quotient of those that follow.
#: Kernels for few rows are others than those for many; tiles for many waste little on fewer (docs/performance.md).
LOW, FEW, MANY, FACTOR = 2, 8, 256, 4


def points_among(sizes: Mapping[str, int], declared: Mapping[str, SizeRange]) -> set[str]:
    """Return the declared dimensions of an input that have plans of their own at these ``sizes``, by name.

    They are those of size 1 where it is the least of several, if with them the input has :data:`FEW` rows at most.
    One token runs through other kernels than a text; a batch of one text has as many rows as a text.
    """
    points = {name for name, size in sizes.items() if size == 1 == declared[name].low < declared[name].high}
    rows = math.prod(declared[name].high for name in sizes if name not in points)
    return points if rows <= FEW else set()


def served_with(size: int) -> SizeRange:
    """Return the sizes that the plan for ``size`` serves where none were declared.

    Points are 0 and 1, which broadcasting treats apart.  Ranges are 2 to 8, 9 to 256, 257 to 1024, and so on.
    """
    if size < LOW:
        return SizeRange(size, size)
    low, high = LOW, FEW
    while size > high:
        low, high = high + 1, MANY if high == FEW else FACTOR * high
    return SizeRange(low, high)
