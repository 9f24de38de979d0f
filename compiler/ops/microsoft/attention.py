"""Attention operators of onnxruntime (domain com.microsoft): MultiHeadAttention and Attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import INT32, DType
from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..internal.key_cache import append_keys
from ..math.attention_core import attend, attended_keys, join_heads, split_heads
from ..math.nodes import in_type, part, view
from ..registry import Builder, Inferred, register

_INT32 = frozenset({"int32"})


def scale_of(node: Node, size: Dim) -> float:
    """Return the attribute ``scale``; 0 and absence mean the inverse square root of the size of a head."""
    elements = checks.concrete(node, size, "the size of a head")
    checks.require(elements > 0, node, "a head has no elements")
    return node.attributes.scale or 1.0 / math.sqrt(elements)


def integer(builder: Builder, size: Dim) -> Value:
    """Build a size as an int32 scalar."""
    if isinstance(size, ix.Index):
        return builder.op("Dimensions", domain="loom", elements=(size,), shape=(), dtype=INT32)
    return builder.constant(np.array(size, np.int32))


# -- padding ---------------------------------------------------------------------------------------------------------


def _shaped_mask(builder: Builder, node: Node, mask: Value, batch: Dim, queries: Dim, keys: Dim) -> Value:
    """Build a bool mask of rank 4 from 0 and 1 for [batch, keys] or [batch, queries, keys], or from lengths [batch].

    Lengths may be followed by the start of each sequence ([2 * batch]), or by the running sums of the lengths of
    queries and of keys ([3 * batch + 2]), which are redundant.
    """
    if mask.shape == (batch,):
        return attended_keys(builder, queries, keys, lengths=mask)
    double = ix.multiply(batch, 2)
    if mask.shape in ((double,), (ix.add(ix.multiply(batch, 3), 2),)):
        attended = attended_keys(builder, queries, keys, lengths=part(builder, mask, 0, 0, batch))
        if mask.shape != (double,):
            return attended
        starts = view(builder, part(builder, mask, 0, batch, batch), batch, 1, 1, 1)
        numbers = builder.op("Range", *(integer(builder, size) for size in (0, keys, 1)))
        return builder.op("And", attended, builder.op("LessOrEqual", starts, numbers))
    shape = {
        (batch, keys): (batch, 1, 1, keys),
        (batch, queries, keys): (batch, 1, queries, keys),
    }.get(mask.shape)
    if shape is None:
        raise UnsupportedError(
            f"{node.op} with a mask of shape {checks.describe_shape(mask.shape)} is not supported",
            origin=node.origin,
            hint=f"lengths ({ix.text(batch)}) with or without starts, or 0 and 1 for each of {ix.text(keys)} keys",
        )
    return builder.op("Cast", view(builder, mask, *shape), to=9)


def _padding_bias(builder: Builder, node: Node, mask: Value | None, batch: Dim, queries: Dim, keys: Dim) -> list[Value]:
    """Build the addends of the scores that mask padding keys by ``mask_filter_value``; none without a mask."""
    if mask is None:
        return []
    attended = _shaped_mask(builder, node, mask, batch, queries, keys)
    numbers = (0.0, node.attributes.mask_filter_value)
    zero, filtered = (builder.constant(np.array(number, np.float32)) for number in numbers)
    return [builder.op("Where", attended, zero, filtered)]


def _causal(builder: Builder, node: Node, queries: Dim, keys: Dim, past: Dim) -> list[Value]:
    return [attended_keys(builder, queries, keys, offset=past, after=0)] if node.attributes.unidirectional else []


# -- MultiHeadAttention ----------------------------------------------------------------------------------------------


@record
class MultiHeadAttentionAttributes:
    num_heads: int
    mask_filter_value: float = -10000.0
    scale: float = 0.0
    unidirectional: int = 0


def _packed(node: Node) -> int:
    """Return how many of query, key and value the first operands pack together: 3, 2 (key and value) or 1."""
    if node.operand(0).rank == 5:
        return 3
    key = node.optional(1)
    return 2 if key is not None and key.rank == 5 else 1


@record
class _AttentionSizes:
    batch: Dim
    queries: Dim
    keys: Dim
    past: Dim
    size: Dim
    value_size: Dim


def _is_buffer(node: Node) -> bool:
    """Return whether the past is a buffer of fixed size, of which ``past_sequence_length`` (input 8) keys are valid."""
    return node.optional(8) is not None


def _multi_head_sizes(node: Node) -> _AttentionSizes:
    if node.optional(9) is not None:
        raise UnsupportedError("MultiHeadAttention with cache_indirection (input 9)", origin=node.origin)
    sizes, heads = _stated_sizes(node), node.attributes.num_heads
    shared = (sizes.batch, heads)
    checks.past_length(node, 6, (*shared, sizes.size), (*shared, sizes.value_size))
    return sizes


def _stated_sizes(node: Node) -> _AttentionSizes:
    """Return the sizes that query, key, value and the length of ``past_key`` state."""
    heads = node.attributes.num_heads
    query, key, value = node.operand(0), node.optional(1), node.optional(2)
    past = node.optional(6)
    checks.require(heads > 0, node, "num_heads must be positive")
    checks.require(past is None or past.rank == 4, node, "past keys are not of rank 4")
    if _packed(node) == 3:
        batch, queries, _, _, size = query.shape
        return _AttentionSizes(batch, queries, queries, 0, size, size)
    checks.require(query.rank == 3, node, f"the query has rank {query.rank}")
    batch, queries, hidden = query.shape
    if key is not None:
        checks.require_keys_and_values(node, batch, key, key if _packed(node) == 2 or value is None else value)
    size = ix.floordiv(hidden, heads)
    before: Dim = 0 if past is None else past.shape[2]
    if _is_buffer(node):
        fits = past is not None and key is not None and key.rank == 3 and value is not None
        checks.require(fits, node, "past_sequence_length needs a past, key and value")
        assert value is not None
        return _AttentionSizes(batch, queries, before, before, size, ix.floordiv(value.shape[2], heads))
    if _packed(node) == 2:
        assert key is not None
        return _AttentionSizes(batch, queries, ix.add(key.shape[1], before), before, size, size)
    if key is None or value is None:
        raise UnsupportedError("MultiHeadAttention without key and value is not supported", origin=node.origin)
    checks.require(key.rank == value.rank and key.rank in (3, 4), node, f"key of rank {key.rank}")
    if key.rank == 4:  # heads: keys of another sequence, computed before
        return _AttentionSizes(batch, queries, ix.add(key.shape[2], before), before, size, value.shape[3])
    return _AttentionSizes(
        batch, queries, ix.add(key.shape[1], before), before, size, ix.floordiv(value.shape[2], heads)
    )


def _infer_multi_head(node: Node) -> Inferred:
    sizes, heads, dtype = _multi_head_sizes(node), node.attributes.num_heads, node.operand(0).dtype
    result = (sizes.batch, sizes.queries, ix.multiply(sizes.value_size, heads))
    key = (sizes.batch, heads, sizes.keys, sizes.size)
    value = (sizes.batch, heads, sizes.keys, sizes.value_size)
    results = [(dtype, result), (dtype, key), (dtype, value)]
    if _is_buffer(node):  # how many scores there are is only known at run time
        return results
    return [*results, (dtype, (sizes.batch, heads, sizes.queries, sizes.keys))]


def _biased(builder: Builder, value: Value, bias: Value | None, start: Dim) -> Value:
    """Add the slice from ``start`` of the bias of query, key and value to [batch, sequence, hidden]."""
    if bias is None:
        return value
    return builder.op("Add", value, part(builder, bias, 0, start, value.shape[2]))


def _unpacked(builder: Builder, value: Value, number: int) -> Value:
    """Slice one part of [batch, sequence, heads, parts, size] as [batch, sequence, heads * size]."""
    batch, sequence, heads, _, size = value.shape
    return view(builder, part(builder, value, 3, number, 1), batch, sequence, ix.multiply(heads, size))


def _projections(builder: Builder, node: Node) -> list[Value]:
    """Build the heads of query, key and value, with their biases added."""
    heads, bias, packed = node.attributes.num_heads, node.optional(3), _packed(node)
    if packed == 3:
        flat = [_unpacked(builder, node.operand(0), number) for number in range(3)]
    elif packed == 2:
        flat = [node.operand(0), *(_unpacked(builder, node.operand(1), number) for number in range(2))]
    else:
        flat = [node.operand(position) for position in range(3)]
    result = []
    start: Dim = 0
    for value in flat:
        if value.rank == 4:
            result.append(value)
            continue
        result.append(split_heads(builder, _biased(builder, value, bias, start), heads))
        start = ix.add(start, value.shape[2])
    return result


def _expand_multi_head(builder: Builder, node: Node) -> Sequence[Value]:
    sizes = _multi_head_sizes(node)
    query, key, value = _projections(builder, node)
    past_key, past_value = node.optional(6), node.optional(7)
    masks = []
    if _is_buffer(node):
        assert past_key is not None and past_value is not None
        one = view(builder, node.operand(8), 1)
        valid = builder.op("Broadcast", one, domain="loom", shape=(sizes.batch,))
        lengths = builder.op("Add", valid, integer(builder, sizes.queries))
        key = append_keys(builder, past_key, key, valid, sizes.keys)
        value = append_keys(builder, past_value, value, valid, sizes.keys)
        after = 0 if node.attributes.unidirectional else -1
        masks = [attended_keys(builder, sizes.queries, sizes.keys, offsets=valid, lengths=lengths, after=after)]
    else:
        masks = _causal(builder, node, sizes.queries, sizes.keys, sizes.past)
        if past_key is not None and past_value is not None:
            key, value = builder.op("Concat", past_key, key, axis=2), builder.op("Concat", past_value, value, axis=2)
    biases = _padding_bias(builder, node, node.optional(4), sizes.batch, sizes.queries, sizes.keys)
    added = node.optional(5)
    attended = attend(
        builder,
        query,
        key,
        value,
        scale=scale_of(node, sizes.size),
        biases=biases if added is None else [*biases, added],
        masks=masks,
    )
    if _is_buffer(node):
        return [join_heads(builder, attended.result), key, value]
    scores = in_type(builder, attended.scores, query.dtype)
    return [join_heads(builder, attended.result), key, value, scores]


register(
    name="MultiHeadAttention",
    domain="com.microsoft",
    infer=_infer_multi_head,
    attributes=MultiHeadAttentionAttributes,
    expand=_expand_multi_head,
    types=(FLOATS, FLOATS, FLOATS, FLOATS, _INT32, FLOATS, FLOATS, FLOATS, _INT32, _INT32),
)


# -- Attention -------------------------------------------------------------------------------------------------------


@record
class PackedAttentionAttributes:
    num_heads: int
    do_rotary: int = 0
    mask_filter_value: float = -10000.0
    past_present_share_buffer: int = 0
    qkv_hidden_sizes: tuple[int, ...] | None = None
    rotary_embedding_dim: int = 0
    scale: float = 0.0
    unidirectional: int = 0


def hidden_sizes(node: Node, chosen: Sequence[int] | None = None) -> tuple[Dim, Dim, Dim]:
    """Return the sizes of query, key and value: ``chosen``, else thirds of what the weights (operand 1) give."""
    if chosen:
        checks.require(len(chosen) == 3, node, f"qkv_hidden_sizes {chosen}")
        return chosen[0], chosen[1], chosen[2]
    third = ix.floordiv(node.operand(1).shape[1], 3)
    return third, third, third


def infer_projected(node: Node, past: Value | None, dtype: DType, chosen: Sequence[int] | None = None) -> Inferred:
    """Infer result and present of an Attention of one input (operand 0) by joined weights (operand 1).

    Where keys and values differ in size there is no present.
    """
    checks.require_choice(node, "do_rotary", (0,))
    checks.require_choice(node, "past_present_share_buffer", (0,))
    value, weights, heads = node.operand(0), node.operand(1), node.attributes.num_heads
    checks.require(value.rank == 3 and weights.rank == 2, node, "input or weights of a wrong rank")
    batch, queries, inputs = value.shape
    checks.require(ix.equal(inputs, weights.shape[0]), node, "input and weights do not fit")
    query_size, key_size, value_size = hidden_sizes(node, chosen)
    checks.require(heads > 0, node, f"num_heads must be positive, not {heads}")
    checks.require(query_size == key_size, node, "query and key differ in size")
    if past is not None:
        fits = past.rank == 5 and all(map(checks.may_equal, past.shape[:3], (2, batch, heads)))
        checks.require(fits, node, f"a past of shape {checks.describe_shape(past.shape)}")
    keys = queries if past is None else ix.add(queries, past.shape[3])
    result = (dtype, (batch, queries, value_size))
    if not ix.equal(key_size, value_size):  # no tensor holds both keys and values
        return [result]
    return [result, (dtype, (2, batch, heads, keys, ix.floordiv(key_size, heads)))]


def _infer_attention(node: Node) -> Inferred:
    if node.optional(6) is not None:
        raise UnsupportedError("Attention with past_sequence_length (input 6) is not supported", origin=node.origin)
    return infer_projected(node, node.optional(4), node.operand(0).dtype, node.attributes.qkv_hidden_sizes)


def _expand_attention(builder: Builder, node: Node) -> Sequence[Value]:
    """Project one input by joined weights, then attend."""
    product = builder.op("MatMul", node.operand(0), node.operand(1))
    if node.optional(2) is not None:
        product = builder.op("Add", product, node.optional(2))
    mask, past, added = (node.optional(position) for position in (3, 4, 5))
    return attend_projections(
        builder, node, product, hidden_sizes(node, node.attributes.qkv_hidden_sizes), mask, past, added
    )


def attend_projections(
    builder: Builder,
    node: Node,
    product: Value,
    hidden: tuple[Dim, Dim, Dim],
    mask: Value | None,
    past: Value | None,
    added: Value | None = None,
) -> list[Value]:
    """Build attention and its present from queries, keys and values side by side: [batch, sequence, sum of ``hidden``].

    ``node`` has the attributes of an Attention.
    """
    heads = node.attributes.num_heads
    projections = []
    start: Dim = 0
    for size in hidden:
        projections.append(split_heads(builder, part(builder, product, 2, start, size), heads))
        start = ix.add(start, size)
    query, key, value = projections
    batch, _, queries, size = query.shape
    before: Dim = 0
    if past is not None:
        before = past.shape[3]
        halves = [view(builder, part(builder, past, 0, half, 1), *past.shape[1:]) for half in range(2)]
        key = builder.op("Concat", halves[0], key, axis=2)
        value = builder.op("Concat", halves[1], value, axis=2)
    keys = key.shape[2]
    biases = _padding_bias(builder, node, mask, batch, queries, keys)
    attended = attend(
        builder,
        query,
        key,
        value,
        scale=scale_of(node, size),
        biases=biases if added is None else [*biases, added],
        masks=_causal(builder, node, queries, keys, before),
    )
    results = [join_heads(builder, attended.result)]
    if key.shape == value.shape:
        first = builder.constant(np.array([0], np.int64))
        results.append(builder.op("Concat", *(builder.op("Unsqueeze", each, first) for each in (key, value)), axis=0))
    return results


register(
    name="Attention",
    domain="com.microsoft",
    infer=_infer_attention,
    attributes=PackedAttentionAttributes,
    expand=_expand_attention,
    types=(FLOATS, FLOATS, FLOATS, _INT32, FLOATS, FLOATS, _INT32),
)
