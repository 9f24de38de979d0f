"""The building blocks of all attention operators: heads, masks from positions, scores, softmax, rotary embedding.

Tensors of heads are [batch, heads, sequence, size].  Scores are computed in f32 whatever the type of the operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....runtime.plan.dtypes import BOOL, FLOAT32
from ...ir.graph import Node, Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ..internal.reduction import reduce
from ..onnx.indexing import run_time_index
from ..onnx.normalization import in_type
from ..onnx.softmax import weighted
from ..registry import Builder, Inferred, Read, register

#: The lowest finite number: takes the place of -infinity where a difference is formed
_LOWEST = -3.4028235e38


# -- heads -----------------------------------------------------------------------------------------------------------


def view(builder: Builder, value: Value, *shape: Dim) -> Value:
    return value if value.shape == shape else builder.op("View", value, domain="loom", shape=shape)


def transposed(builder: Builder, value: Value, *perm: int) -> Value:
    return builder.op("Transpose", value, perm=perm)


def split_heads(builder: Builder, value: Value, heads: int) -> Value:
    """Reshape [batch, sequence, heads * size] to heads [batch, heads, sequence, size]."""
    batch, sequence, hidden = value.shape
    split = view(builder, value, batch, sequence, heads, ix.floordiv(hidden, heads))
    return transposed(builder, split, 0, 2, 1, 3)


def join_heads(builder: Builder, value: Value) -> Value:
    """Reshape heads [batch, heads, sequence, size] to [batch, sequence, heads * size]."""
    batch, heads, sequence, size = value.shape
    return view(builder, transposed(builder, value, 0, 2, 1, 3), batch, sequence, ix.multiply(heads, size))


def part(builder: Builder, value: Value, axis: int, start: Dim, size: Dim) -> Value:
    """Slice ``size`` consecutive elements from ``start`` along ``axis``."""
    starts = tuple(start if at == axis else 0 for at in range(value.rank))
    sizes = tuple(size if at == axis else each for at, each in enumerate(value.shape))
    return builder.op("StridedSlice", value, domain="loom", starts=starts, steps=(1,) * value.rank, sizes=sizes)


# -- which keys a query attends --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttendedKeysAttributes:
    """The result is [batch, 1, queries, keys].

    Query ``i`` is at position ``offset + i``, where the offset is an element of operand 0, if there is one.  It
    attends key ``j`` if the key is below the length (operand 1), at most ``before`` positions before it and ``after``
    behind it; -1 is no bound.
    """

    batch: Dim
    queries: Dim
    keys: Dim
    offset: Dim = 0
    before: int = -1
    after: int = -1


def _infer_attended(node: Node) -> Inferred:
    attributes: AttendedKeysAttributes = node.attributes
    return [(BOOL, (attributes.batch, 1, attributes.queries, attributes.keys))]


def _read_attended(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    attributes: AttendedKeysAttributes = node.attributes
    batch, _, query, key = coordinates
    if node.optional(0) is None:
        position = ex.coordinate(ix.add(attributes.offset, query))
    else:
        position = ex.cast(read(0, [batch]), "i32") + ex.coordinate(query)
    result = ex.const(True, "bool")
    if attributes.after >= 0:
        last = position + ex.const(attributes.after, "i32")
        result = ex.binary("and", result, ex.compare("le", ex.coordinate(key), last))
    if attributes.before >= 0:
        first = position - ex.const(attributes.before, "i32")
        result = ex.binary("and", result, ex.compare("ge", ex.coordinate(key), first))
    if node.optional(1) is not None:
        length = ex.cast(read(1, [batch]), "i32")
        result = ex.binary("and", result, ex.compare("lt", ex.coordinate(key), length))
    return result


register(
    name="AttendedKeys",
    domain="loom",
    infer=_infer_attended,
    attributes=AttendedKeysAttributes,
    gather=_read_attended,
    reads=2,
)


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
    given = offsets if offsets is not None else lengths
    return builder.op(
        "AttendedKeys",
        offsets,
        lengths,
        domain="loom",
        batch=1 if given is None else given.shape[0],
        queries=queries,
        keys=keys,
        offset=offset,
        before=before,
        after=after,
    )


# -- scores and softmax ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attended:
    """The result and its intermediate values: scores [batch, heads, queries, keys] after each step."""

    result: Value
    scores: Value
    capped: Value
    biased: Value
    weights: Value


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
    return weighted(builder, powers, divisor)


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
) -> Attended:
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
    return Attended(in_type(builder, result, dtype), scores, capped, biased, weights)


# -- rotary embedding ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RotateAttributes:
    """Pairs of the first ``2 * pairs`` elements are turned: neighbours if ``interleaved``, else those of two halves."""

    pairs: int
    interleaved: bool


def _read_rotated(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    """Read an element of rotated heads (operand 0).

    Operands 1 and 2 are cosines and sines: [positions, pairs] with positions [batch, sequence] as operand 3, or [batch,
    sequence, pairs] without.
    """
    attributes: RotateAttributes = node.attributes
    batch, head, place, element = coordinates
    size = 2 * attributes.pairs
    if attributes.interleaved:
        pair = ix.floordiv(element, 2)
        second = ix.modulo(element, 2)
        partner = ix.add(ix.add(element, 1), ix.multiply(second, -2))
    else:
        inner = ix.modulo(element, size)  # elements behind the turned ones are guarded away
        pair = ix.modulo(inner, attributes.pairs)
        second = ix.floordiv(inner, attributes.pairs)
        partner = ix.modulo(ix.add(inner, attributes.pairs), size)
    where: list[Dim]
    if node.optional(3) is not None:
        where = [run_time_index(read(3, [batch, place]), node.operand(1).shape[0]), pair]
    else:
        where = [0 if node.operand(1).shape[0] == 1 else batch, place, pair]
    own = read(0, coordinates)
    other = read(0, [batch, head, place, partner])
    signed = ex.select(ex.compare("eq", ex.coordinate(second), ex.const(0, "i32")), -other, other)
    turned = own * read(1, where) + signed * read(2, where)
    return ex.guard(ex.in_range(element, 0, size), turned, own)


def _infer_rotated(node: Node) -> Inferred:
    return [(node.operand(0).dtype, node.operand(0).shape)]


register(
    name="Rotate",
    domain="loom",
    infer=_infer_rotated,
    attributes=RotateAttributes,
    gather=_read_rotated,
    reads=4,
)


def rotate(
    builder: Builder, heads: Value, cosines: Value, sines: Value, positions: Value | None, interleaved: bool, pairs: int
) -> Value:
    """Rotate heads by the angles of their positions; :func:`_read_rotated` has the shapes of the operands."""
    operands = [heads, cosines, sines] if positions is None else [heads, cosines, sines, positions]
    return builder.op("Rotate", *operands, domain="loom", pairs=pairs, interleaved=interleaved)
