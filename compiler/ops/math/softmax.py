"""Build softmax: exponentials of differences from the largest element of a row, over their sum."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import Value
from ..registry import Builder
from .reductions import reduce

#: The lowest finite number: takes the place of -infinity where a difference is formed
_LOWEST = -3.4028235e38


def shifted(builder: Builder, value: Value, axes: Sequence[int]) -> Value:
    """Subtract the largest number of each row from ``value``: exponentials of the result do not overflow.

    A row with a NaN needs no largest element that is NaN: the NaN itself propagates to the sum.
    """
    return builder.op("Sub", value, reduce(builder, value, "max_number", axes))


def _weighted(builder: Builder, powers: Value, total: Value) -> Value:
    """Build ``powers / total``, for totals of 1 and more, with one division for all powers of a total."""
    return builder.op("Mul", powers, builder.op("Reciprocal", total))


def softmax(builder: Builder, value: Value, axes: Sequence[int]) -> Value:
    """Build exp(x - max(x)) / sum(exp(x - max(x))) along ``axes``."""
    powers = builder.op("Exp", shifted(builder, value, axes))
    return _weighted(builder, powers, reduce(builder, powers, "sum", axes))


def masked_softmax(builder: Builder, scores: Value, sink: Value | None = None) -> Value:
    """Build a softmax over the last axis; a row of -infinity gives zeros.

    ``sink`` is one more score, of a key without a value; it broadcasts to [batch, heads, queries, 1].
    """
    axes = (scores.rank - 1,)
    highest = reduce(builder, scores, "max_number", axes)  # a NaN reaches the total
    if sink is not None:
        highest = builder.op("Max", highest, sink)
    highest = builder.op("Max", highest, builder.scalar(_LOWEST, scores))
    powers = builder.op("Exp", builder.op("Sub", scores, highest))
    total = reduce(builder, powers, "sum", axes)
    if sink is not None:
        total = builder.op("Add", total, builder.op("Exp", builder.op("Sub", sink, highest)))
    zero, one = builder.scalar(0.0, scores), builder.scalar(1.0, scores)
    divisor = builder.op("Where", builder.op("Equal", total, zero), one, total)
    return _weighted(builder, powers, divisor)
