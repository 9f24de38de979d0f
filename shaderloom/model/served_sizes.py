"""Which sizes of a dynamic dimension a plan serves: a range of them, or a point, one size that has a plan of its own.

All plans of a model share its weights, so ranges and points cost a compilation and activations only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..runtime.plan.size_range import SizeRange

#: The least size that is no point
LOW = 2
#: Upper bounds of the first ranges where the size gives products few rows: a tile of as many rows as the largest size
#: needs takes at most 1.15 times as long for the others as their own (docs/performance.md)
TILED = (2, 4, 8, 16, 24, 32, 40, 48, 64, 72)
#: Upper bounds of the first two ranges of any other size, and the quotient of those that follow
FEW, MANY, FACTOR = 8, 256, 4


def points_among(sizes: Mapping[str, int], declared: Mapping[str, SizeRange]) -> set[str]:
    """Return the declared dimensions of an input that have plans of their own at these ``sizes``, by name.

    They are those of size 1 where it is the least of several, if with them the input has :data:`FEW` rows at most.
    One token runs through other kernels than a text; a batch of one text has as many rows as a text.
    """
    points = {name for name, size in sizes.items() if size == 1 == declared[name].low < declared[name].high}
    rows = math.prod(declared[name].high for name in sizes if name not in points)
    return points if rows <= FEW else set()


def served_with(size: int, *, tiled: bool) -> SizeRange:
    """Return the sizes that the plan for ``size`` serves where none were declared.

    Points are 0 and 1, which broadcasting treats apart.  Where ``tiled`` 2 is one too, and ranges are 3 to 4, 5 to 8, 9
    to 16, and so on up to 65 to 72 and 73 to 256, else 2 to 8 and 9 to 256; then 257 to 1024, and so on.
    """
    if size < LOW:
        return SizeRange(size, size)
    low, bounds = LOW, [*(TILED if tiled else (FEW,)), MANY]
    while size > bounds[0]:
        low = bounds[0] + 1
        bounds = bounds[1:] or [FACTOR * bounds[0]]
    return SizeRange(low, bounds[0])
