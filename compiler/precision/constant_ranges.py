"""How large the elements of constants are: decides what half precision can hold.

Weights are read for this alone, once a process: extremes are kept by the key of the source.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..ir.graph import Source, Value
from ..reference.constant_eval import evaluate_constant

#: Sources whose extremes are kept; the oldest goes
_KEPT = 1 << 14
#: Elements that are looked at together: their copies stay in the processor's cache
_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Extremes:
    """The smallest and the largest finite element; (0, 0) if there is none."""

    low: float
    high: float

    @property
    def magnitude(self) -> float:
        return max(-self.low, self.high)


_known: dict[str, Extremes] = {}


def extremes_of(array: np.ndarray) -> Extremes:
    """The extremes of an array of floats."""
    flat = array.reshape(-1)
    low = high = 0.0
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        bottom, top = float(part.min()), float(part.max())
        if not np.isfinite(bottom) or not np.isfinite(top):
            part = part[np.isfinite(part)]
            if not part.size:
                continue
            bottom, top = float(part.min()), float(part.max())
        low, high = min(low, bottom), max(high, top)
    return Extremes(low, high)


def source_extremes(source: Source) -> Extremes:
    """The extremes of a constant's elements; reads them the first time."""
    key = source.key
    found = _known.get(key)
    if found is None:
        found = extremes_of(source.read())
        while len(_known) >= _KEPT:
            del _known[next(iter(_known))]
        _known[key] = found
    return found


def weight_extremes(value: Value) -> Extremes:
    """The same for any value that depends on constants alone; computes it on the host where it is not just moved."""
    moved = value
    while moved.producer is not None and moved.producer.op == "Relayout":
        moved = moved.producer.operand(0)
    if moved.constant is not None:
        return source_extremes(moved.constant)
    return extremes_of(evaluate_constant(moved))
