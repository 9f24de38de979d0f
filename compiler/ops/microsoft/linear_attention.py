"""LinearAttention (domain com.microsoft): attention as a recurrence, whose state holds what keys stand for.

Heads are packed along the last axis.  Several query heads may share a head of the state (as in grouped attention), or
several heads of the state a query head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.nodes import in_type, part, transposed, view
from ..registry import Builder, Inferred, register
from .block_quantized import repeated

RULES = ("linear", "gated", "delta", "gated_delta")


@record
class LinearAttentionAttributes:
    """``chunk_size`` is a hint to other runtimes; ``scale`` 0 stands for one over the root of the size of a key."""

    kv_num_heads: int
    q_num_heads: int
    chunk_size: int = 64
    scale: float = 0.0
    state_window: int = 0
    update_rule: str = "gated_delta"


@record
class _Sizes:
    batch: Dim
    steps: Dim
    heads: int  #: of the state
    queries: int  #: query heads for each of them
    key_heads: int
    keys: int  #: numbers of a key
    values: int

    @property
    def state(self) -> tuple[Dim, ...]:
        return self.batch, self.heads, self.keys, self.values


def _parts(node: Node, value: Value, heads: int, what: str) -> int:
    """Return the numbers of one head of a packed operand."""
    size = checks.concrete(node, value.shape[-1], f"the last dimension of {what}")
    checks.require(size % heads == 0, node, f"{what} of {size} numbers for {heads} heads")
    return size // heads


def _sizes(node: Node) -> _Sizes:
    attributes: LinearAttentionAttributes = node.attributes
    query, key, value = (node.operand(position) for position in range(3))
    for what, each in (("query", query), ("key", key), ("value", value)):
        fits = each.rank == 3 and each.shape[:2] == query.shape[:2]
        shape = checks.describe_shape(each.shape)
        checks.require(fits, node, f"{what} of shape {shape} is not [batch, steps, heads * size] as the query is")
    heads, asking = attributes.kv_num_heads, attributes.q_num_heads
    fits = heads > 0 and asking > 0 and (asking % heads == 0 or heads % asking == 0)
    checks.require(fits, node, f"{asking} heads of queries for {heads} of the state")
    keys = _parts(node, query, asking, "query")
    checks.require(keys > 0, node, "keys of no numbers")
    key_heads = _parts(node, key, keys, "key")
    checks.require(
        key_heads > 0 and heads % key_heads == 0, node, f"{key_heads} heads of keys for {heads} of the state"
    )
    values = _parts(node, value, heads, "value")
    batch, steps, _ = query.shape
    return _Sizes(batch, steps, heads, max(asking // heads, 1), key_heads, keys, values)


def _require_one_of(node: Node, position: int, what: str, wanted: Sequence[tuple[Dim, ...]]) -> None:
    value = node.optional(position)
    texts = " or ".join(map(checks.describe_shape, wanted))
    checks.require(
        value is not None, node, f"update_rule '{node.attributes.update_rule}' needs {what} of shape {texts}"
    )
    assert value is not None
    checks.require(value.shape in wanted, node, f"{what} of shape {checks.describe_shape(value.shape)}, not {texts}")


def _infer(node: Node) -> Inferred:
    attributes: LinearAttentionAttributes = node.attributes
    checks.require_choice(node, "update_rule", RULES)
    checks.require_choice(node, "state_window", (0,))
    sizes, query, past = _sizes(node), node.operand(0), node.optional(3)
    steps = (sizes.batch, sizes.steps)
    if "gated" in attributes.update_rule:
        _require_one_of(node, 4, "decay", [(*steps, sizes.heads), (*steps, sizes.heads * sizes.keys)])
    if "delta" in attributes.update_rule:
        _require_one_of(node, 5, "beta", [(*steps, sizes.heads), (*steps, 1)])
    if past is not None:
        _require_one_of(node, 3, "past_state", [sizes.state])
    outputs = sizes.heads * sizes.queries * sizes.values
    return [(query.dtype, (*steps, outputs)), (query.dtype if past is None else past.dtype, sizes.state)]


def shared(builder: Builder, value: Value, heads: int) -> Value:
    """Repeat the heads of axis 2 so that neighbours of the ``heads`` share them."""
    own = ix.number(value.shape[2])
    return value if own == heads else repeated(builder, value, 2, heads // own, heads)


def _operands(builder: Builder, node: Node, sizes: _Sizes) -> list[Value | None]:
    """Build what ``loom.LinearAttention`` reads."""
    steps, rule = (sizes.batch, sizes.steps), node.attributes.update_rule
    groups = min(node.attributes.q_num_heads, sizes.heads)
    query = shared(builder, view(builder, node.operand(0), *steps, groups, sizes.queries, sizes.keys), sizes.heads)
    key = shared(builder, view(builder, node.operand(1), *steps, sizes.key_heads, sizes.keys), sizes.heads)
    value = view(builder, node.operand(2), *steps, sizes.heads, sizes.values)
    decay = rate = None
    if "gated" in rule:
        factors = builder.op("Exp", node.operand(4))
        own = ix.number(factors.shape[2]) // sizes.heads
        decay = view(builder, factors, *steps, sizes.heads, own)
        if own != sizes.keys:
            decay = repeated(builder, decay, 3, sizes.keys, sizes.keys)
    if "delta" in rule:
        rate = shared(builder, node.operand(5), sizes.heads)
    return [query, key, value, node.optional(3), decay, rate]


def recurrence(
    builder: Builder, operands: Sequence[Value | None], retrieves: bool, scale: float
) -> tuple[Value, Value]:
    """Build the outputs [batch, steps, heads, queries, values] and the last state [batch, heads, keys, values], in f32.

    ``operands`` are those of ``loom.LinearAttention``.
    """
    query = operands[0]
    assert query is not None
    batch, steps, heads, queries, keys = query.shape
    result = builder.op("LinearAttention", *operands, domain="loom", retrieves=retrieves, scale=scale)
    rows = ix.multiply(steps, queries)
    outputs = view(builder, part(builder, result, 2, 0, rows), batch, heads, steps, queries, result.shape[-1])
    return transposed(builder, outputs, 0, 2, 1, 3, 4), part(builder, result, 2, rows, keys)


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: LinearAttentionAttributes = node.attributes
    sizes = _sizes(node)
    scale = attributes.scale or 1.0 / math.sqrt(sizes.keys)
    outputs, state = recurrence(builder, _operands(builder, node, sizes), "delta" in attributes.update_rule, scale)
    outputs = view(builder, outputs, sizes.batch, sizes.steps, sizes.heads * sizes.queries * sizes.values)
    return [in_type(builder, each, value.dtype) for each, value in zip((outputs, state), node.outputs)]


register(
    name="LinearAttention",
    domain="com.microsoft",
    infer=_infer,
    attributes=LinearAttentionAttributes,
    expand=_expand,
    types=(FLOATS,),
)
