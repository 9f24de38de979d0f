"""Device-independent limits of tensor shapes: the host must be able to allocate a tensor of that shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..symbolic import polynomial as ix
from ..symbolic.polynomial import Dim

#: Axes of a tensor, and elements of one whose axes without any are left out: numpy has no others
MAX_RANK = 64
_MAX_ELEMENTS = 1 << 56


def shape_fault(shape: Sequence[Dim]) -> str | None:
    """Return why no tensor can have ``shape``; None for one that a tensor can have, however large."""
    if len(shape) > MAX_RANK:
        return f"a tensor of {len(shape)} axes; there may be {MAX_RANK}"
    if math.prod(max(ix.bounds(size)[1], 1) for size in shape) > _MAX_ELEMENTS:
        return f"a tensor of {' x '.join(map(ix.text, shape))}; sizes may be {_MAX_ELEMENTS:,} in all"
    return None
