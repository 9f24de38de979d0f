"""GroupQueryAttention (domain com.microsoft): causal attention with a cache of keys and values, as decoders export it.

``seqlens_k`` counts the valid keys of each sequence less one, new ones included.  New keys stand behind the valid keys
of the past; without a past they stand at the front, padding of a prompt behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime.dtypes import INT32
from ...runtime.errors import UnsupportedError
from .. import expr as ex
from .. import index as ix
from ..expr import Expr
from ..index import Dim
from ..ir import Node, Value
from . import common
from .attention_contributed import scale_of
from .attention_core import attend, attended_keys, join_heads, part, rotate, split_heads, view
from .common import FLOATS, INDICES
from .registry import Builder, Case, Inferred, Read, Tensor, register

_INT32 = frozenset({"int32"})


@dataclass(frozen=True, slots=True)
class GroupQueryAttentionAttributes:
    """``k_quant_type`` and the like concern caches of integers, which are refused."""

    num_heads: int
    kv_num_heads: int
    do_rotary: int = 0
    k_quant_type: str = "NONE"
    kv_cache_bit_width: int = 0
    local_window_size: int = -1
    qk_output: int = 0
    rotary_interleaved: int = 0
    scale: float = 0.0
    smooth_softmax: int = 0
    softcap: float = 0.0
    v_quant_type: str = "NONE"


# -- the cache -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendAttributes:
    """``keys``: how long the result is along axis 2."""

    keys: Dim


def _infer_appended(node: Node) -> Inferred:
    batch, heads, _, size = node.operand(0).shape
    return [(node.operand(0).dtype, (batch, heads, node.attributes.keys, size))]


def _read_appended(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    """Operands: past, new, and how many elements of the past count for each sequence.  Zeros follow the last new
    one."""
    batch, head, key, element = coordinates
    past, new = node.operand(0), node.operand(1)
    valid = ex.cast(read(2, [batch]), "i32")
    distance = ex.coordinate(key) - valid
    zero = ex.const(0, new.dtype.compute)
    fresh = ex.as_index(
        ex.binary("min", ex.binary("max", distance, ex.const(0, "i32")), ex.coordinate(ix.add(new.shape[2], -1))),
        0,
        max(ix.bounds(new.shape[2])[1] - 1, 0),
    )
    inside = ex.compare("lt", distance, ex.coordinate(new.shape[2]))
    appended = ex.guard(inside, read(1, [batch, head, fresh, element]), zero)
    if past.shape[2] == 0:
        return appended
    old = ix.minimum(key, ix.add(past.shape[2], -1))
    return ex.guard(ex.compare("lt", distance, ex.const(0, "i32")), read(0, [batch, head, old, element]), appended)


register(
    name="AppendKeys",
    domain="loom",
    infer=_infer_appended,
    cases=(),
    attributes=AppendAttributes,
    gather=_read_appended,
    reads=3,
)


# -- the operator ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sizes:
    batch: Dim
    queries: Dim
    size: Dim
    past: Dim
    keys: Dim


def _sizes(node: Node) -> _Sizes:
    attributes: GroupQueryAttentionAttributes = node.attributes
    query, key, past = node.operand(0), node.optional(1), node.optional(3)
    heads, shared = attributes.num_heads, attributes.kv_num_heads
    common.require(heads > 0 and shared > 0 and heads % shared == 0, node, f"{heads} heads share {shared}")
    common.require(query.rank == 3, node, f"the query has rank {query.rank}")
    batch, queries, hidden = query.shape
    count = heads if key is not None else heads + 2 * shared
    common.require(ix.equal(ix.modulo(hidden, count), 0), node, f"{ix.text(hidden)} is not {count} heads")
    total = common.static_dims(node, 6, "total_sequence_length")[0]
    before: Dim = 0 if past is None else past.shape[2]
    # a cache that is longer than what is valid is one of fixed size: it stays as long as it is
    return _Sizes(batch, queries, ix.floordiv(hidden, count), before, ix.maximum(total, before))


def _infer(node: Node) -> Inferred:
    attributes: GroupQueryAttentionAttributes = node.attributes
    for name in ("k_quant_type", "v_quant_type"):
        common.require_choice(node, name, ("NONE",))
    common.require_choice(node, "qk_output", (0,))
    if attributes.do_rotary:
        common.require(node.optional(7) is not None and node.optional(8) is not None, node, "do_rotary needs caches")
    sizes, dtype = _sizes(node), node.operand(0).dtype
    result = (sizes.batch, sizes.queries, ix.multiply(sizes.size, attributes.num_heads))
    present = (sizes.batch, attributes.kv_num_heads, sizes.keys, sizes.size)
    return [(dtype, result), (dtype, present), (dtype, present)]


def _projections(builder: Builder, node: Node, size: Dim) -> list[Value]:
    """Heads of query, key and value, which may come joined in one tensor."""
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


def _positions(builder: Builder, valid: Value, sizes: _Sizes) -> Value:
    """Positions [batch, queries] of the new tokens."""
    steps = builder.op("Range", *(_number(builder, size) for size in (0, sizes.queries, 1)))
    batch = sizes.batch
    moved = builder.op("Add", view(builder, valid, batch, 1), steps)
    return builder.op("Broadcast", moved, domain="loom", shape=(batch, sizes.queries))


def _number(builder: Builder, size: Dim) -> Value:
    if isinstance(size, ix.Index):
        return builder.op("Dimensions", domain="loom", elements=(size,), shape=(), dtype=INT32)
    return builder.constant(np.array(size, np.int32))


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: GroupQueryAttentionAttributes = node.attributes
    sizes = _sizes(node)
    query, key, value = _projections(builder, node, sizes.size)
    lengths = builder.op("Add", view(builder, node.operand(5), sizes.batch), _number(builder, 1))
    if sizes.past == 0:
        valid = builder.op("Mul", lengths, _number(builder, 0))
    else:
        valid = builder.op("Sub", lengths, _number(builder, sizes.queries))
    if attributes.do_rotary:
        cosines, sines, positions = node.operand(7), node.operand(8), node.optional(9)
        if positions is None:
            positions = _positions(builder, valid, sizes)
        pairs = common.concrete(node, cosines.shape[1], "the width of cos_cache")
        query, key = (
            rotate(builder, each, cosines, sines, positions, bool(attributes.rotary_interleaved), pairs)
            for each in (query, key)
        )
    present = []
    for past, new in ((node.optional(3), key), (node.optional(4), value)):
        if past is None or (sizes.past == 0 and sizes.keys == sizes.queries):
            present.append(new)
        else:
            present.append(builder.op("AppendKeys", past, new, valid, domain="loom", keys=sizes.keys))
    window = attributes.local_window_size
    masks = [
        attended_keys(
            builder, sizes.queries, sizes.keys, offsets=valid, before=window - 1 if window > 0 else -1, after=0
        )
    ]
    bias = node.optional(10)
    if bias is not None and bias.shape[-1] != sizes.keys:
        raise UnsupportedError("GroupQueryAttention with an attention_bias for fewer keys", origin=node.origin)
    attended = attend(
        builder,
        query,
        *present,
        scale=scale_of(node, sizes.size),
        softcap=attributes.softcap,
        biases=[] if bias is None else [bias],
        masks=masks,
        sink=_sink(builder, node),
    )
    return [join_heads(builder, attended.result), *present]


def _sink(builder: Builder, node: Node) -> Value | None:
    """A score without a value: that of each head (input 11), or 0 with ``smooth_softmax``."""
    given = node.optional(11)
    if given is not None:
        return builder.op("Cast", view(builder, given, 1, node.attributes.num_heads, 1, 1), to=1)
    return builder.constant(np.zeros((1, 1, 1, 1), np.float32)) if node.attributes.smooth_softmax > 0 else None


def _case(
    *,
    heads: int = 4,
    shared: int = 2,
    queries: int = 1,
    past: int = 5,
    lengths: tuple[int, ...] = (5, 5),
    total: int | None = None,
    joined: bool = False,
    rotary: bool = False,
    **attributes: object,
) -> Case:
    batch, size = len(lengths), 16
    cache = Tensor((batch, shared, past, size))
    widths = (heads + 2 * shared,) if joined else (heads, shared, shared)
    operands: list[Tensor | None] = [Tensor((batch, queries, count * size)) for count in widths]
    operands += [None] * (3 - len(operands))
    operands += [cache, cache]
    operands.append(Tensor((batch,), "int32", data=list(lengths)))
    operands.append(Tensor((), "int32", data=total or max(lengths) + 1, constant=True))
    if rotary:
        operands += [Tensor((16, size // 2), low=-1.0, high=1.0)] * 2
    fields = {"num_heads": heads, "kv_num_heads": shared, "do_rotary": int(rotary), **attributes}
    return Case(tuple(operands), fields, outputs=3)


register(
    name="GroupQueryAttention",
    domain="com.microsoft",
    infer=_infer,
    cases=(
        _case(),
        _case(queries=4, past=0, lengths=(3, 3)),
        _case(rotary=True),
        _case(rotary=True, rotary_interleaved=1, joined=True),
        _case(queries=4, past=0, lengths=(3, 3), rotary=True),
        _case(local_window_size=3, lengths=(5, 5)),
        _case(softcap=2.0, scale=0.3),
        _case(smooth_softmax=1),
        _case(joined=True, heads=3, shared=1),
        _case(queries=2, past=5, lengths=(6,)),
        _case(past=9, lengths=(5, 3), total=6),
        _case(past=5, lengths=(5, 3)),
    ),
    attributes=GroupQueryAttentionAttributes,
    expand=_expand,
    types=(FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, _INT32, _INT32, FLOATS, FLOATS, INDICES, FLOATS, FLOATS),
    static_inputs=(6,),
)
