"""GroupQueryAttention (domain com.microsoft): causal attention with a cache of keys and values, as decoders export it.

``seqlens_k`` counts the valid keys of each sequence less one, new ones included.  New keys follow the valid keys
of the past; without a past they are at the front, before the padding of a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import INT32
from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS, INDICES
from ..internal.key_cache import append_keys
from ..math.attention_core import AttentionResult, attend, attended_keys, join_heads, rotate, split_heads
from ..math.nodes import in_type, part, view
from ..registry import Builder, Inferred, register
from .attention import integer, scale_of
from .window_cache import last_rows, resident

_INT32 = frozenset({"int32"})


@record
class GroupQueryAttentionAttributes:
    """``k_quant_type`` and the like concern caches of integers, which are refused.

    ``qk_output`` asks for a fourth output: 1 the scores after the cap, 2 the weights.
    """

    num_heads: int
    kv_num_heads: int
    causal: int = 1
    do_rotary: int = 0
    k_quant_type: str = "NONE"
    kv_cache_bit_width: int = 0
    local_window_size: int = -1
    qk_norm_epsilon: float = 1e-6
    qk_output: int = 0
    rotary_interleaved: int = 0
    scale: float = 0.0
    sliding_window_cache: int = 0
    smooth_softmax: int = 0
    softcap: float = 0.0
    v_quant_type: str = "NONE"


# -- the operator ----------------------------------------------------------------------------------------------------


@record
class _GroupedSizes:
    batch: Dim
    queries: Dim
    size: Dim
    past: Dim
    total: Dim  #: the longest sequence, new keys included
    keys: Dim  #: of the present
    attended: Dim  #: keys that attention reads: those of the present, or rows of a window's cache and new keys

    @property
    def is_prompt(self) -> bool | None:
        """Return whether no key of the past is valid: new keys are at the front.  None: the sizes of the run decide.

        A single token that is the whole sequence has no valid past, so the rule for later tokens holds for it too.
        """
        if self.past == 0:
            return True
        if self.queries == 1:
            return self.total == 1
        try:
            return ix.equal(self.total, self.queries)
        except ix.Undecidable:
            return None


def _sizes(node: Node) -> _GroupedSizes:
    attributes: GroupQueryAttentionAttributes = node.attributes
    query, key = node.operand(0), node.optional(1)
    heads, shared = attributes.num_heads, attributes.kv_num_heads
    checks.require(heads > 0 and shared > 0 and heads % shared == 0, node, f"{heads} heads share {shared}")
    checks.require(query.rank == 3, node, f"the query has rank {query.rank}")
    batch, queries, hidden = query.shape
    count = heads if key is not None else heads + 2 * shared
    checks.require(ix.equal(ix.modulo(hidden, count), 0), node, f"{ix.text(hidden)} is not {count} heads")
    total = checks.static_dims(node, 6, "total_sequence_length")[0]
    size = ix.floordiv(hidden, count)
    if key is not None:
        checks.require_keys_and_values(node, batch, key, node.operand(2))
    before = checks.past_length(node, 3, (batch, shared, size), (batch, shared, size))
    if attributes.sliding_window_cache:
        return _GroupedSizes(batch, queries, size, before, total, before, ix.add(before, queries))
    # a cache that is longer than what is valid is one of fixed size: it stays as long as it is
    keys = ix.maximum(total, before)
    return _GroupedSizes(batch, queries, size, before, total, keys, keys)


def _check_window(node: Node, capacity: Dim) -> None:
    """Raise an error unless the cache holds a window, and nothing else is addressed by absolute positions of keys."""
    attributes: GroupQueryAttentionAttributes = node.attributes
    rows, window = checks.concrete(node, capacity, "the capacity of the cache"), attributes.local_window_size
    checks.require(window > 0, node, "sliding_window_cache needs a local_window_size")
    checks.require(rows >= window, node, f"a cache of {rows} rows for windows of {window}")
    checks.require(bool(attributes.causal), node, "sliding_window_cache needs causal = 1")
    if node.optional(10) is not None or attributes.qk_output:
        raise UnsupportedError(
            "sliding_window_cache with attention_bias (input 10) or qk_output",
            origin=node.origin,
            hint="they are addressed by positions that have left the cache; use a cache of the whole sequence",
        )


def _infer(node: Node) -> Inferred:
    attributes: GroupQueryAttentionAttributes = node.attributes
    for name in ("k_quant_type", "v_quant_type"):
        checks.require_choice(node, name, ("NONE",))
    checks.require_choice(node, "qk_output", (0, 1, 2))
    checks.require_choice(node, "sliding_window_cache", (0, 1))
    checks.require((node.optional(14) is None) == (node.optional(15) is None), node, "both norms or none")
    for position, what in ((12, "k_scale"), (13, "v_scale"), (16, "query_seqlens")):
        if node.optional(position) is not None:
            raise UnsupportedError(f"GroupQueryAttention with {what} (input {position})", origin=node.origin)
    if attributes.do_rotary:
        cosines, sines = node.optional(7), node.optional(8)
        checks.require(cosines is not None and sines is not None, node, "do_rotary needs caches")
        matrices = node.operand(7).rank == 2 and node.operand(8).shape == node.operand(7).shape
        checks.require(matrices, node, "cos_cache and sin_cache are matrices of one shape")
    sizes, dtype = _sizes(node), node.operand(0).dtype
    if attributes.sliding_window_cache:
        _check_window(node, sizes.past)
    result = (sizes.batch, sizes.queries, ix.multiply(sizes.size, attributes.num_heads))
    present = (sizes.batch, attributes.kv_num_heads, sizes.keys, sizes.size)
    scores = (sizes.batch, attributes.num_heads, sizes.queries, sizes.total)
    return [(dtype, result), (dtype, present), (dtype, present), (dtype, scores)]


def _projections(builder: Builder, node: Node, size: Dim) -> list[Value]:
    """Build the heads of query, key and value, which may be packed in one tensor."""
    attributes: GroupQueryAttentionAttributes = node.attributes
    counts = (attributes.num_heads, attributes.kv_num_heads, attributes.kv_num_heads)
    if node.optional(1) is not None:
        return [split_heads(builder, node.operand(position), count) for position, count in enumerate(counts)]
    result, start = [], 0
    for count in counts:
        piece = part(builder, node.operand(0), 2, ix.multiply(size, start), ix.multiply(size, count))
        result.append(split_heads(builder, piece, count))
        start += count
    return result


def _positions(builder: Builder, node: Node, valid: Value, sizes: _GroupedSizes) -> Value:
    """Build the positions [batch, queries] of the new tokens.

    Of the explicit positions of a prompt only the first is used, for all tokens.
    """
    position_ids, is_prompt = node.optional(9), sizes.is_prompt
    if position_ids is not None and is_prompt is False:
        return position_ids
    steps = builder.op("Range", *(integer(builder, size) for size in (0, sizes.queries, 1)))
    if position_ids is None:
        first = view(builder, valid, sizes.batch, 1)
    else:
        first = builder.op("Cast", part(builder, part(builder, position_ids, 0, 0, 1), 1, 0, 1), to=INT32.onnx)
    moved = builder.op("Add", first, steps)
    positions = builder.op("Broadcast", moved, domain="loom", shape=(sizes.batch, sizes.queries))
    if position_ids is None or is_prompt is not None:
        return positions
    return builder.op("Where", _is_prompt(builder, sizes), positions, builder.op("Cast", position_ids, to=INT32.onnx))


def _is_prompt(builder: Builder, sizes: _GroupedSizes) -> Value:
    """Return a boolean scalar of the run: whether the new tokens are the whole of the longest sequence."""
    return builder.op("Equal", integer(builder, sizes.total), integer(builder, sizes.queries))


def _normalised(builder: Builder, node: Node, heads: Value, position: int) -> Value:
    """Divide heads by their root mean square, and multiply by the weight at ``position`` if it is present."""
    weight = node.optional(position)
    if weight is None:
        return heads
    return builder.op("RMSNormalization", heads, weight, axis=-1, epsilon=node.attributes.qk_norm_epsilon)


def _appended(builder: Builder, node: Node, position: int, new: Value, rows: Value, sizes: _GroupedSizes) -> Value:
    """Return the cache of operand ``position`` with the new keys or values behind its ``rows``."""
    past = node.optional(position)
    if past is None or (sizes.past == 0 and sizes.keys == sizes.queries):
        new.storage = new.storage or node.operand(0).storage  # attention reads the elements of the cache
        return new
    return append_keys(builder, past, new, rows, sizes.attended)


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: GroupQueryAttentionAttributes = node.attributes
    sizes = _sizes(node)
    query, key, value = _projections(builder, node, sizes.size)
    query, key = _normalised(builder, node, query, 14), _normalised(builder, node, key, 15)
    lengths = builder.op("Add", view(builder, node.operand(5), sizes.batch), integer(builder, 1))
    is_prompt = sizes.is_prompt
    if is_prompt:
        valid = builder.op("Mul", lengths, integer(builder, 0))
    else:
        valid = builder.op("Sub", lengths, integer(builder, sizes.queries))
        if is_prompt is None:
            valid = builder.op("Where", _is_prompt(builder, sizes), integer(builder, 0), valid)
    if attributes.do_rotary:
        cosines, sines = node.operand(7), node.operand(8)
        positions = _positions(builder, node, valid, sizes)
        pairs = checks.concrete(node, cosines.shape[1], "the width of cos_cache")
        query, key = (
            rotate(builder, each, cosines, sines, positions, bool(attributes.rotary_interleaved), pairs)
            for each in (query, key)
        )
    window = attributes.local_window_size
    rows, end = valid, lengths  # of the cache: before the new keys, and behind them
    if attributes.sliding_window_cache:
        rows = resident(builder, valid, ix.number(sizes.past), window)
        end = builder.op("Add", rows, builder.op("Sub", lengths, valid))
    seen = [_appended(builder, node, each, new, rows, sizes) for each, new in ((3, key), (4, value))]
    present = seen
    if attributes.sliding_window_cache:
        capacity = ix.number(sizes.past)
        first = builder.op("Sub", end, resident(builder, lengths, capacity, window))
        present = [last_rows(builder, each, first, capacity) for each in seen]
    # without a bound on later keys, and for the padding of a prompt, the lengths bound the keys
    padded = not attributes.causal or (is_prompt is not False and sizes.queries != 1)
    mask = attended_keys(
        builder,
        sizes.queries,
        sizes.attended,
        offsets=rows,
        lengths=end if padded else None,
        before=window - 1 if window > 0 else -1,
        after=0 if attributes.causal else -1,
    )
    bias = node.optional(10)
    attended = attend(
        builder,
        query,
        *seen,
        scale=scale_of(node, sizes.size),
        softcap=attributes.softcap,
        biases=[] if bias is None else [_padded_bias(builder, node, bias, sizes.keys)],
        masks=[mask],
        sink=_sink(builder, node),
    )
    return [join_heads(builder, attended.result), *present, _shown(builder, node, attended, mask, sizes)]


def _padded_bias(builder: Builder, node: Node, bias: Value, keys: Dim) -> Value:
    """Extend a bias to every key of the cache: zeros for keys beyond the longest sequence, which the mask excludes."""
    missing = ix.add(keys, ix.multiply(bias.shape[-1], -1))
    if missing == 0:
        return bias
    if ix.bounds(missing)[0] < 0:
        return part(builder, bias, bias.rank - 1, 0, keys)
    pads = np.zeros(2 * bias.rank, np.int64)
    pads[-1] = checks.concrete(node, missing, "the number of keys without a bias")
    return builder.op("Pad", bias, builder.constant(pads), builder.scalar(0.0, bias))


def _shown(builder: Builder, node: Node, attended: AttentionResult, mask: Value, sizes: _GroupedSizes) -> Value:
    """Build the output ``output_qk``: scores or weights of the keys of the longest sequence, 0 for masked keys."""
    shown = attended.weights
    if node.attributes.qk_output == 1:
        shown = builder.op("Where", mask, attended.biased, builder.scalar(0.0, attended.biased))
    return in_type(builder, part(builder, shown, 3, 0, sizes.total), node.operand(0).dtype)


def _sink(builder: Builder, node: Node) -> Value | None:
    """Build the attention sink, a score without a value; None where the node has none.

    It is that of each head (input 11), or 0 with ``smooth_softmax``.
    """
    head_sink = node.optional(11)
    if head_sink is not None:
        return builder.op("Cast", view(builder, head_sink, 1, node.attributes.num_heads, 1, 1), to=1)
    return builder.constant(np.zeros((1, 1, 1, 1), np.float32)) if node.attributes.smooth_softmax > 0 else None


register(
    name="GroupQueryAttention",
    domain="com.microsoft",
    infer=_infer,
    attributes=GroupQueryAttentionAttributes,
    expand=_expand,
    types=(*(FLOATS,) * 5, _INT32, _INT32, FLOATS, FLOATS, INDICES, *(FLOATS,) * 6, _INT32),
    static_inputs=(6,),
)
