"""RotaryEmbedding and GemmaRotaryEmbedding of onnxruntime (domain com.microsoft)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS, INDICES
from ..math.attention_core import join_heads, rotate, split_heads
from ..math.nodes import in_type, view
from ..registry import Builder, Indices, Inferred, register


@record
class RotaryAttributes:
    """``is_packed_batching`` changes nothing while the input has its three axes; ``scale`` is read by no runtime."""

    interleaved: int = 0
    is_packed_batching: int = 0
    num_heads: int = 0
    rotary_embedding_dim: int = 0
    scale: float = 1.0


def _infer_rotary(node: Node) -> Inferred:
    value, positions, cosines = node.operand(0), node.operand(1), node.operand(2)
    checks.require(value.rank in (3, 4), node, f"the input has rank {value.rank}")
    checks.require(cosines.rank == 2 and cosines.shape == node.operand(3).shape, node, "the caches differ in shape")
    checks.require(positions.rank <= 2, node, f"positions of rank {positions.rank}")
    return [(value.dtype, value.shape)]


def _head_count(node: Node) -> int:
    """Return ``num_heads``, or the number of heads of twice the caches' width in the input."""
    attributes: RotaryAttributes = node.attributes
    if attributes.num_heads:
        return attributes.num_heads
    width = ix.multiply(node.operand(2).shape[1], 2)
    return checks.concrete(node, ix.floordiv(node.operand(0).shape[2], width), "the number of heads")


def _expand_rotary(builder: Builder, node: Node) -> Sequence[Value]:
    """Rotate heads; positions are one for each token, or that of the first token of every sequence."""
    attributes: RotaryAttributes = node.attributes
    value, positions = node.operand(0), node.operand(1)
    heads = value if value.rank == 4 else split_heads(builder, value, _head_count(node))
    batch, _, sequence, size = heads.shape
    checks.require(not checks.is_size(size, 0), node, "a head has no elements")
    if positions.rank < 2:
        steps = builder.op("Range", *_bounds(builder, node, sequence, positions))
        positions = builder.op("Add", view(builder, positions, 1, 1), steps)
        positions = builder.op("Broadcast", positions, domain="loom", shape=(batch, sequence))
    turned_size = attributes.rotary_embedding_dim or checks.concrete(node, size, "the size of a head")
    checks.require(turned_size >= 2 and turned_size % 2 == 0, node, f"{turned_size} elements of a head are no pairs")
    turned = rotate(
        builder, heads, node.operand(2), node.operand(3), positions, bool(attributes.interleaved), turned_size // 2
    )
    return [join_heads(builder, turned) if value.rank == 3 else turned]


def _bounds(builder: Builder, node: Node, size: Dim, like: Value) -> tuple[Value, Value, Value]:
    stop = checks.concrete(node, size, "the length of a sequence without positions of its own")
    return builder.scalar(0, like), builder.scalar(stop, like), builder.scalar(1, like)


register(
    name="RotaryEmbedding",
    domain="com.microsoft",
    infer=_infer_rotary,
    attributes=RotaryAttributes,
    expand=_expand_rotary,
    indices=(Indices(1, lambda node: [node.operand(2).shape[0]], wraps=False),),
    types=(FLOATS, INDICES, FLOATS, FLOATS),
)


# -- GemmaRotaryEmbedding --------------------------------------------------------------------------------------------


def _infer_gemma(node: Node) -> Inferred:
    angles, query, key = node.operand(0), node.operand(1), node.operand(3)
    checks.require(angles.rank == 3 and query.rank == 4, node, "emb is [batch, sequence, size], q has heads")
    for value, turned in ((query, node.operand(2)), (key, node.operand(4))):
        checks.require(value.shape == turned.shape, node, "an operand and its turned form differ in shape")
    return [(query.dtype, query.shape), (key.dtype, key.shape)]


def _expand_gemma(builder: Builder, node: Node) -> Sequence[Value]:
    """Build x cos(emb) + rotated x sin(emb), for queries and keys; all heads have the same angles."""
    angles = builder.op("Unsqueeze", node.operand(0), builder.constant(np.array([1])))
    dtype = node.operand(1).dtype
    sine, cosine = (in_type(builder, builder.op(name, angles), dtype) for name in ("Sin", "Cos"))
    return [
        builder.op(
            "Add",
            builder.op("Mul", node.operand(position), cosine),
            builder.op("Mul", node.operand(position + 1), sine),
        )
        for position in (1, 3)
    ]


register(
    name="GemmaRotaryEmbedding",
    domain="com.microsoft",
    infer=_infer_gemma,
    expand=_expand_gemma,
    types=(FLOATS,),
)
