"""GatedDeltaNet (domain com.microsoft): LinearAttention of packed sequences, with the activations of its gates.

Sequences of one length follow each other along the first axis, or have an axis of their own.  The state is
[batch, heads, values, keys], in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Shape, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.nodes import in_type, part, transposed, view
from ..registry import Builder, Inferred, register
from .block_quantized import repeated
from .linear_attention import RULES, recurrence, shared

#: Inputs
_SEQUENCES, _DECAY, _RATE, _STATE, _GATE, _BIAS, _COUNTS, _ACTIVE = 3, 4, 5, 6, 7, 8, 9, 10
_GATES = ("none", "softplus", "qwen", "sigmoid", "kda")
#: Added to the sum of squares of a vector that is normalised
_EPSILON = 1e-12


@record
class GatedDeltaNetAttributes:
    """``chunk_size`` is a hint to other runtimes; ``scale`` 0 stands for one over the root of the size of a key."""

    beta_activation: str = "none"
    chunk_size: int = 64
    gate_activation: str = "none"
    gate_lower_bound: float = -5.0
    qk_l2_norm: int = 0
    scale: float = 0.0
    state_update_capacity: int = 0
    update_rule: str = "gated_delta"


@record
class _Sizes:
    tokens: Shape  #: leading axes of the operands
    batch: Dim
    steps: Dim
    key_heads: int
    heads: int
    keys: int
    values: int

    @property
    def state(self) -> Shape:
        return self.batch, self.heads, self.values, self.keys


def _of_heads(node: Node) -> _Sizes:
    """Return the sizes of a node with keys and values of their own."""
    query, value, state = node.operand(0), node.operand(2), node.optional(_STATE)
    tokens = query.shape[:-2]
    if query.rank == 4:
        batch, steps = tokens
    else:
        checks.require(state is not None, node, "initial_state (input 6) must tell the number of sequences")
        assert state is not None
        batch, steps = state.shape[0], _steps(node, tokens[0], state.shape[0])
    numbers = (*query.shape[-2:], *value.shape[-2:])
    key_heads, keys, heads, values = (checks.concrete(node, size, "heads and their sizes") for size in numbers)
    return _Sizes(tokens, batch, steps, key_heads, heads, keys, values)


def _of_joined(node: Node) -> _Sizes:
    """Return the sizes of a node whose query holds keys and values behind it."""
    query, state = node.operand(0), node.optional(_STATE)
    fits = state is not None and state.rank == 4 and query.rank == 2
    checks.require(fits, node, "joined query, key and value [tokens, size] need initial_state (input 6)")
    assert state is not None
    batch, *numbers = state.shape
    heads, values, keys = (checks.concrete(node, size, "heads and their sizes") for size in numbers)
    left = checks.concrete(node, query.shape[1], "the size of a token") - heads * values
    checks.require(left > 0 and left % (2 * keys) == 0, node, f"{left} numbers are no queries and keys of {keys}")
    return _Sizes(query.shape[:1], batch, _steps(node, query.shape[0], batch), left // (2 * keys), heads, keys, values)


def _steps(node: Node, tokens: Dim, batch: Dim) -> Dim:
    steps = ix.divide(tokens, batch)
    checks.require(
        steps is not None, node, f"{ix.text(tokens)} tokens are not {ix.text(batch)} sequences of one length"
    )
    assert steps is not None
    return steps


def _sizes(node: Node) -> _Sizes:
    key, value = node.optional(1), node.optional(2)
    checks.require((key is None) == (value is None), node, "key and value come together")
    if key is None or value is None:
        return _of_joined(node)
    query = node.operand(0)
    ranks = [query.rank, key.rank, value.rank]
    checks.require(ranks in ([3] * 3, [4] * 3), node, f"query, key and value of ranks {ranks}, not 3 or 4")
    fits = key.shape == query.shape and value.shape[:-2] == query.shape[:-2]
    shapes = ", ".join(checks.describe_shape(each.shape) for each in (query, key, value))
    checks.require(fits, node, f"query, key and value of shapes {shapes}")
    return _of_heads(node)


def _require(node: Node, position: int, what: str, wanted: Sequence[Shape], *, needed: bool) -> None:
    """Raise :class:`ShapeError` unless input ``position`` has one of the shapes, or is omitted and not needed."""
    value = node.optional(position)
    checks.require(value is not None or not needed, node, f"{what} (input {position}) is missing")
    if value is not None:
        texts = " or ".join(map(checks.describe_shape, wanted))
        checks.require(
            value.shape in wanted, node, f"{what} of shape {checks.describe_shape(value.shape)}, not {texts}"
        )


def _infer(node: Node) -> Inferred:
    attributes: GatedDeltaNetAttributes = node.attributes
    checks.require_choice(node, "update_rule", RULES)
    checks.require_choice(node, "gate_activation", _GATES)
    checks.require_choice(node, "beta_activation", ("none", "sigmoid"))
    checks.require_choice(node, "state_update_capacity", (0,))
    for position, what in ((_SEQUENCES, "cu_seqlens"), (_COUNTS, "capture_count"), (_ACTIVE, "state_update_active")):
        if node.optional(position) is not None:
            raise UnsupportedError(
                f"GatedDeltaNet with {what} (input {position})",
                origin=node.origin,
                hint="sequences of one length without captured updates are supported: pad them, with a decay of 0 and "
                "a rate of 0 behind their ends",
            )
    sizes = _sizes(node)
    fits = sizes.key_heads > 0 and sizes.keys > 0 and sizes.heads % sizes.key_heads == 0
    checks.require(fits, node, f"{sizes.key_heads} heads of keys for {sizes.heads} of values")
    of_heads = (*sizes.tokens, sizes.heads)
    rule = attributes.update_rule
    gated = "gated" in rule and attributes.gate_activation != "none"
    _require(node, _DECAY, "decay", [of_heads, (*of_heads, sizes.keys)], needed="gated" in rule)
    _require(node, _RATE, "beta", [of_heads], needed="delta" in rule)
    _require(node, _STATE, "initial_state", [sizes.state], needed=False)
    _require(node, _GATE, "a_log", [(sizes.heads,)], needed=gated)
    each = sizes.heads * sizes.keys
    _require(node, _BIAS, "dt_bias", [(sizes.heads,), (sizes.heads, sizes.keys), (each,)], needed=gated)
    return [(node.operand(0).dtype, (*of_heads, sizes.values)), (FLOAT32, sizes.state)]


# -- lowering --------------------------------------------------------------------------------------------------------


def _query_key_value(builder: Builder, node: Node, sizes: _Sizes) -> list[Value]:
    """Build the three [batch, steps, heads, size]."""
    shapes = [(sizes.key_heads, sizes.keys)] * 2 + [(sizes.heads, sizes.values)]
    start, parts = 0, []
    for position, (heads, size) in enumerate(shapes):
        value = node.optional(position)
        if node.optional(1) is None:
            value, start = part(builder, node.operand(0), 1, start, heads * size), start + heads * size
        assert value is not None
        parts.append(view(builder, in_type(builder, value, FLOAT32), sizes.batch, sizes.steps, heads, size))
    return parts


def _normalised(builder: Builder, value: Value) -> Value:
    axes = builder.constant(np.array([-1], np.int64))
    squares = builder.op("ReduceSumSquare", value, axes, keepdims=1)
    return builder.op("Div", value, builder.op("Sqrt", builder.op("Add", squares, builder.scalar(_EPSILON, squares))))


def _decay(builder: Builder, node: Node, sizes: _Sizes) -> Value:
    """Build the factors [batch, steps, heads, keys] of the state."""
    attributes: GatedDeltaNetAttributes = node.attributes
    gates = in_type(builder, node.operand(_DECAY), FLOAT32)
    own = sizes.keys if gates.rank > len(sizes.tokens) + 1 else 1
    value = view(builder, gates, sizes.batch, sizes.steps, sizes.heads, own)
    if attributes.gate_activation != "none":
        bias = node.operand(_BIAS)
        each = ix.number(ix.product(list(bias.shape))) // sizes.heads
        value = builder.op("Add", value, view(builder, bias, sizes.heads, each))
        rate = view(builder, builder.op("Exp", node.operand(_GATE)), sizes.heads, 1)
        if attributes.gate_activation in ("softplus", "qwen"):
            value = builder.op("Neg", builder.op("Mul", rate, builder.op("Softplus", value)))
        else:
            bound = builder.scalar(attributes.gate_lower_bound, value)
            value = builder.op("Mul", builder.op("Sigmoid", builder.op("Mul", rate, value)), bound)
    factors = builder.op("Exp", value)
    return factors if factors.shape[-1] == sizes.keys else repeated(builder, factors, 3, sizes.keys, sizes.keys)


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: GatedDeltaNetAttributes = node.attributes
    sizes, state, rule = _sizes(node), node.optional(_STATE), attributes.update_rule
    query, key, value = _query_key_value(builder, node, sizes)
    if attributes.qk_l2_norm:
        query, key = _normalised(builder, query), _normalised(builder, key)
    query = view(builder, shared(builder, query, sizes.heads), sizes.batch, sizes.steps, sizes.heads, 1, sizes.keys)
    decay = _decay(builder, node, sizes) if "gated" in rule else None
    rate = None
    if "delta" in rule:
        beta = in_type(builder, node.operand(_RATE), FLOAT32)
        beta = builder.op("Sigmoid", beta) if attributes.beta_activation == "sigmoid" else beta
        rate = view(builder, beta, sizes.batch, sizes.steps, sizes.heads)
    before = None if state is None else transposed(builder, state, 0, 1, 3, 2)
    operands = [query, shared(builder, key, sizes.heads), value, before, decay, rate]
    scale = attributes.scale or 1.0 / math.sqrt(sizes.keys)
    outputs, state = recurrence(builder, operands, "delta" in rule, scale)
    outputs = view(builder, outputs, *sizes.tokens, sizes.heads, sizes.values)
    return [in_type(builder, outputs, node.operand(0).dtype), transposed(builder, state, 0, 1, 3, 2)]


_INTEGERS = frozenset({"int32"})
_FLOAT32 = frozenset({"float32"})

register(
    name="GatedDeltaNet",
    domain="com.microsoft",
    infer=_infer,
    attributes=GatedDeltaNetAttributes,
    expand=_expand,
    types=(FLOATS, FLOATS, FLOATS, _INTEGERS, FLOATS, FLOATS, _FLOAT32, _FLOAT32, _FLOAT32, _INTEGERS, _INTEGERS),
)
