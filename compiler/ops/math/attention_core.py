"""The building blocks of all attention operators: heads, masks from positions, scores, softmax, rotary embedding.

Tensors of heads are [batch, heads, sequence, size].  Scores are computed in f32 whatever the type of the operands.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.record import record
from ...ir.graph import Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from ..registry import Builder
from .nodes import in_type, transposed, view
from .softmax import masked_softmax

# -- heads -----------------------------------------------------------------------------------------------------------


def split_heads(builder: Builder, value: Value, heads: int) -> Value:
    """Reshape [batch, sequence, heads * size] to heads [batch, heads, sequence, size]."""
    batch, sequence, hidden = value.shape
    split = view(builder, value, batch, sequence, heads, ix.floordiv(hidden, heads))
    return transposed(builder, split, 0, 2, 1, 3)


def join_heads(builder: Builder, value: Value) -> Value:
    """Reshape heads [batch, heads, sequence, size] to [batch, sequence, heads * size]."""
    batch, heads, sequence, size = value.shape
    return view(builder, transposed(builder, value, 0, 2, 1, 3), batch, sequence, ix.multiply(heads, size))


# -- masks and rotary embedding ---------------------------------------------------------------------------------------


def attended_keys(
    builder: Builder,
    queries: Dim,
    keys: Dim,
    *,
    offsets: Value | None = None,
    lengths: Value | None = None,
    offset: Dim = 0,
    before: int = -1,
    after: int = -1,
) -> Value:
    """Build the mask that :class:`AttendedKeysAttributes` defines; offsets and lengths have one number per sequence."""
    per_sequence = offsets if offsets is not None else lengths
    return builder.op(
        "AttendedKeys",
        offsets,
        lengths,
        domain="loom",
        batch=1 if per_sequence is None else per_sequence.shape[0],
        queries=queries,
        keys=keys,
        offset=offset,
        before=before,
        after=after,
    )


def rotate(
    builder: Builder, heads: Value, cosines: Value, sines: Value, positions: Value | None, interleaved: bool, pairs: int
) -> Value:
    """Rotate heads by the angles of their positions; :func:`_read_rotated` has the shapes of the operands."""
    operands = [heads, cosines, sines] if positions is None else [heads, cosines, sines, positions]
    return builder.op("Rotate", *operands, domain="loom", pairs=pairs, interleaved=interleaved)


# -- scores and softmax ----------------------------------------------------------------------------------------------


@record(slots=False)
class AttentionResult:
    """The result and its intermediate values: scores [batch, heads, queries, keys] after each step."""

    result: Value
    scores: Value
    capped: Value
    biased: Value
    weights: Value


def attend(
    builder: Builder,
    query: Value,
    key: Value,
    value: Value,
    *,
    scale: float,
    softcap: float = 0.0,
    biases: Sequence[Value] = (),
    masks: Sequence[Value] = (),
    sink: Value | None = None,
) -> AttentionResult:
    """Build softmax(query key' * scale + biases) value, in the type of ``query``.

    Fewer heads of keys than of queries: each serves as many neighbouring heads of queries.  ``biases`` are added to the
    scores, keys where one of the ``masks`` is false are excluded; both broadcast to [batch, heads, queries, keys].
    """
    dtype = query.dtype
    query, key, value = (in_type(builder, each, FLOAT32) for each in (query, key, value))
    batch, heads, queries, size = query.shape
    shared, keys = key.shape[1], key.shape[2]
    groups = ix.floordiv(heads, shared)
    grouped = groups != 1
    query = builder.op("Mul", query, builder.scalar(scale, query))
    if grouped:
        axis = builder.constant(np.array([2], np.int64))
        query = view(builder, query, batch, shared, groups, queries, size)
        key, value = (builder.op("Unsqueeze", each, axis) for each in (key, value))
    swapped = (*range(key.rank - 2), key.rank - 1, key.rank - 2)
    scores = builder.op("MatMul", query, transposed(builder, key, *swapped))
    scores = view(builder, scores, batch, heads, queries, keys)
    capped = biased = scores
    if softcap:
        limit = builder.scalar(softcap, scores)
        capped = biased = builder.op("Mul", builder.op("Tanh", builder.op("Div", scores, limit)), limit)
    for bias in biases:
        biased = builder.op("Add", biased, in_type(builder, bias, FLOAT32))
    for mask in masks:
        biased = builder.op("Where", mask, biased, builder.scalar(float("-inf"), biased))
    if biases or masks or sink is not None:
        weights = masked_softmax(builder, biased, sink)
    else:
        weights = builder.op("Softmax", biased, axis=-1)
    used = view(builder, weights, batch, shared, groups, queries, keys) if grouped else weights
    result = view(builder, builder.op("MatMul", used, value), batch, heads, queries, value.shape[-1])
    return AttentionResult(in_type(builder, result, dtype), scores, capped, biased, weights)
