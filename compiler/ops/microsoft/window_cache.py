"""Caches of a window of keys (``sliding_window_cache`` of GroupQueryAttention): the last positions, from row 0 on.

Of ``T`` positions a cache of ``C`` rows for windows of ``W`` holds the last ``L(T)``: all up to ``C``, then
``T - G ceil((T - C) / G)`` with ``G = C - W + 1``, so that ``G`` positions leave at once.
"""

from __future__ import annotations

from ...ir.graph import Value
from ...symbolic.polynomial import Dim
from ..math.nodes import view
from ..registry import Builder
from .attention import integer


def resident(builder: Builder, positions: Value, capacity: int, window: int) -> Value:
    """Build the rows that a cache holds of the first ``positions`` [batch] of sequences, int32."""
    group = capacity - window + 1
    beyond = builder.op("Sub", positions, integer(builder, capacity))
    beyond = builder.op("Max", beyond, integer(builder, 0))
    leaving = builder.op("Div", builder.op("Add", beyond, integer(builder, group - 1)), integer(builder, group))
    return builder.op("Sub", positions, builder.op("Mul", leaving, integer(builder, group)))


def last_rows(builder: Builder, rows: Value, first: Value, capacity: int) -> Value:
    """Build ``capacity`` rows from ``first`` [batch] on of [batch, heads, rows, size]; those past the end repeat."""
    batch, heads, count, size = rows.shape
    steps = view(builder, _range(builder, capacity), 1, 1, capacity, 1)
    places = builder.op("Add", view(builder, first, batch, 1, 1, 1), steps)
    places = builder.op("Min", places, builder.op("Sub", integer(builder, count), integer(builder, 1)))
    places = builder.op("Broadcast", places, domain="loom", shape=(batch, heads, capacity, size))
    result = builder.op("GatherElements", rows, places, axis=2)
    result.storage = rows.storage
    return result


def _range(builder: Builder, size: Dim) -> Value:
    return builder.op("Range", *(integer(builder, each) for each in (0, size, 1)))
