"""Attention and RotaryEmbedding of the standard."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.attention_core import attend, attended_keys, join_heads, rotate, split_heads
from ..math.nodes import in_type
from ..registry import Builder, Indices, Inferred, register

# -- Attention -------------------------------------------------------------------------------------------------------


@record
class AttentionAttributes:
    """``softmax_precision`` asks for a type that is at most as wide as the one used, f32."""

    is_causal: int = 0
    kv_num_heads: int | None = None
    q_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: int | None = None
    left_window_size: int = -1
    right_window_size: int = -1


@record
class _Shapes:
    batch: Dim
    heads: Dim
    shared: Dim  #: heads of keys and values
    queries: Dim
    new: Dim  #: keys that this call brings
    past: Dim
    size: Dim
    value_size: Dim

    @property
    def keys(self) -> Dim:
        return ix.add(self.past, self.new)


def _shapes(node: Node) -> _Shapes:
    attributes: AttentionAttributes = node.attributes
    query, key, value = (node.operand(position) for position in range(3))
    ranks = {query.rank, key.rank, value.rank}
    checks.require(ranks <= {3, 4} and len(ranks) == 1, node, f"Q, K and V of ranks {sorted(ranks)}")
    heads: Dim
    shared: Dim
    if query.rank == 3:
        checks.require(
            bool(attributes.q_num_heads and attributes.kv_num_heads),
            node,
            "operands of rank 3 need q_num_heads and kv_num_heads",
        )
        heads, shared = attributes.q_num_heads or 0, attributes.kv_num_heads or 0
        batch, queries, hidden = query.shape
        new = key.shape[1]
        sizes = []
        for size, count in ((hidden, heads), (key.shape[2], shared), (value.shape[2], shared)):
            checks.require(ix.equal(ix.modulo(size, count), 0), node, f"{ix.text(size)} is not {count} heads")
            sizes.append(ix.floordiv(size, count))
    else:
        batch, heads, queries, _ = query.shape
        shared, new = key.shape[1], key.shape[2]
        sizes = [each.shape[3] for each in (query, key, value)]
    checks.require_keys_and_values(node, batch, key, value)
    checks.require(not checks.is_size(shared, 0), node, "no heads of keys")
    checks.require(ix.equal(ix.modulo(heads, shared), 0), node, f"{heads} heads of queries, {shared} of keys")
    checks.require(ix.equal(sizes[0], sizes[1]), node, "heads of queries and of keys differ in size")
    past = checks.past_length(node, 4, (batch, shared, sizes[1]), (batch, shared, sizes[2]))
    return _Shapes(batch, heads, shared, queries, new, past, sizes[0], sizes[2])


def _infer_attention(node: Node) -> Inferred:
    shapes, dtype = _shapes(node), node.operand(0).dtype
    checks.require_choice(node, "qk_matmul_output_mode", (0, 1, 2, 3))
    if node.operand(0).rank == 3:
        result: tuple[Dim, ...] = (shapes.batch, shapes.queries, ix.multiply(shapes.heads, shapes.value_size))
    else:
        result = (shapes.batch, shapes.heads, shapes.queries, shapes.value_size)
    return [
        (dtype, result),
        (node.operand(1).dtype, (shapes.batch, shapes.shared, shapes.keys, shapes.size)),
        (node.operand(2).dtype, (shapes.batch, shapes.shared, shapes.keys, shapes.value_size)),
        (dtype, (shapes.batch, shapes.heads, shapes.queries, shapes.keys)),
    ]


def _heads(builder: Builder, value: Value, heads: Dim) -> Value:
    return value if value.rank == 4 else split_heads(builder, value, int(heads))  # type: ignore[arg-type]


def _additive_mask(builder: Builder, node: Node, keys: Dim) -> Value | None:
    """Build the mask as addends of the scores, padded to all keys with -infinity; None where it is omitted."""
    mask = node.optional(3)
    if mask is None:
        return None
    like = in_type(builder, node.operand(0), FLOAT32)
    nothing = builder.scalar(float("-inf"), like)
    if mask.dtype.name == "bool":
        mask = builder.op("Where", mask, builder.scalar(0.0, like), nothing)
    else:
        mask = in_type(builder, mask, FLOAT32)
    missing = ix.add(keys, ix.multiply(mask.shape[-1], -1))
    if ix.bounds(missing)[1] <= 0:
        return mask
    pads = np.zeros(2 * mask.rank, np.int64)
    pads[-1] = checks.concrete(node, missing, "the number of keys without a mask")
    return builder.op("Pad", mask, builder.constant(pads), nothing)


def _expand_attention(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: AttentionAttributes = node.attributes
    shapes = _shapes(node)
    query = _heads(builder, node.operand(0), shapes.heads)
    present = []
    for position, past in ((1, node.optional(4)), (2, node.optional(5))):
        new = _heads(builder, node.operand(position), shapes.shared)
        present.append(new if past is None else builder.op("Concat", past, new, axis=2))
    lengths = node.optional(6)
    offsets = None
    if lengths is not None and node.optional(4) is None:
        offsets = builder.op("Sub", lengths, _dimension(builder, shapes.queries, lengths))
    masks = []
    after = 0 if attributes.is_causal else attributes.right_window_size
    if after >= 0 or attributes.left_window_size >= 0 or lengths is not None:
        allowed = attended_keys(
            builder,
            shapes.queries,
            shapes.keys,
            offsets=offsets,
            lengths=lengths,
            offset=shapes.past,
            before=attributes.left_window_size,
            after=after,
        )
        masks.append(allowed)
    bias = _additive_mask(builder, node, shapes.keys)
    scale = attributes.scale
    if scale is None:
        scale = 1.0 / math.sqrt(checks.concrete(node, shapes.size, "the size of a head"))
    attended = attend(
        builder,
        query,
        *present,
        scale=scale,
        softcap=attributes.softcap,
        biases=[] if bias is None else [bias],
        masks=masks,
    )
    result = join_heads(builder, attended.result) if node.operand(0).rank == 3 else attended.result
    shown = (attended.scores, attended.capped, attended.biased, attended.weights)[attributes.qk_matmul_output_mode]
    return [result, *present, in_type(builder, shown, result.dtype)]


def _dimension(builder: Builder, size: Dim, like: Value) -> Value:
    """Build a size as a scalar of the type of ``like``."""
    if isinstance(size, ix.Index):
        return builder.op("Dimensions", domain="loom", elements=(size,), shape=(), dtype=like.dtype)
    return builder.scalar(size, like)


register(
    name="Attention",
    infer=_infer_attention,
    attributes=AttentionAttributes,
    expand=_expand_attention,
    types=(FLOATS, FLOATS, FLOATS, checks.ANY, FLOATS, FLOATS, checks.INDICES),
)


# -- RotaryEmbedding -------------------------------------------------------------------------------------------------


@record
class RotaryEmbeddingAttributes:
    interleaved: int = 0
    num_heads: int = 0
    rotary_embedding_dim: int = 0


def _infer_rotary(node: Node) -> Inferred:
    value, cosines, sines = node.operand(0), node.operand(1), node.operand(2)
    checks.require(value.rank in (3, 4), node, f"X of rank {value.rank}")
    checks.require(value.rank == 4 or node.attributes.num_heads > 0, node, "X of rank 3 needs num_heads")
    checks.require(cosines.shape == sines.shape, node, "cos_cache and sin_cache differ in shape")
    wanted = 3 if node.optional(3) is None else 2
    checks.require(cosines.rank == wanted, node, f"caches of rank {cosines.rank}, not {wanted}")
    positions = node.optional(3)
    checks.require(positions is None or positions.rank == 2, node, "positions are a matrix")
    return [(value.dtype, value.shape)]


def _expand_rotary(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: RotaryEmbeddingAttributes = node.attributes
    value, cosines, sines, positions = node.operand(0), node.operand(1), node.operand(2), node.optional(3)
    heads = _heads(builder, value, attributes.num_heads)
    size = attributes.rotary_embedding_dim or checks.concrete(node, heads.shape[3], "the size of a head")
    checks.require(size > 0 and size % 2 == 0, node, f"rotary_embedding_dim: {size} elements are no pairs")
    turned = rotate(builder, heads, cosines, sines, positions, bool(attributes.interleaved), size // 2)
    return [join_heads(builder, turned) if value.rank == 3 else turned]


register(
    name="RotaryEmbedding",
    infer=_infer_rotary,
    attributes=RotaryEmbeddingAttributes,
    expand=_expand_rotary,
    indices=(Indices(3, lambda node: [node.operand(1).shape[0]], wraps=False),),
    types=(FLOATS, FLOATS, FLOATS, checks.INDICES),
)
