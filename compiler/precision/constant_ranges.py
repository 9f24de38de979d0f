"""Minimum and maximum of each constant, cached per source.  Weights are read for this alone, once a process."""

from __future__ import annotations

import numpy as np

from ...runtime.plan.record import record
from ..ir.graph import Source, Value
from ..reference.constant_eval import evaluate_constant

#: Sources whose ranges are cached; the oldest goes
_CACHED = 1 << 14
#: Elements that are reduced together: their copies stay in the processor's cache
_CHUNK = 1 << 18


@record
class ValueRange:
    """The smallest and the largest finite element; (0, 0) if there is none."""

    low: float
    high: float

    @property
    def magnitude(self) -> float:
        return max(-self.low, self.high)


_ranges: dict[str, ValueRange] = {}


def array_range(array: np.ndarray) -> ValueRange:
    """Return the range of the finite elements of an array of floats."""
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
    return ValueRange(low, high)


def source_range(source: Source) -> ValueRange:
    """Return the range of a constant's elements; the source is read the first time."""
    key = source.key
    cached = _ranges.get(key)
    if cached is None:
        cached = array_range(source.read())
        while len(_ranges) >= _CACHED:
            del _ranges[next(iter(_ranges))]
        _ranges[key] = cached
    return cached


def weight_range(value: Value) -> ValueRange:
    """Return the range of a value that depends on constants alone; it is computed on the host unless it only moves."""
    moved = value
    while moved.producer is not None and moved.producer.op == "Relayout":
        moved = moved.producer.operand(0)
    if moved.constant is not None:
        return source_range(moved.constant)
    return array_range(evaluate_constant(moved))
