"""``loom.LinearAttention``: a recurrence over time whose state is a matrix for each head.

With keys ``k``, values ``v``, decay ``d`` and rate ``b`` of a step the state S [keys, values] becomes
``d S + k (b (v - d S' k))'``, of which rules leave parts out, and its outputs are ``scale S' q``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import polynomial as ix
from ..registry import Inferred, register

#: Positions of the operands
QUERY, KEY, VALUE, STATE, DECAY, RATE = range(6)


@record
class RecurrenceAttributes:
    """``retrieves``: a value is first reduced by what the state holds for its key; ``scale`` is that of the outputs."""

    retrieves: bool
    scale: float


def _infer(node: Node) -> Inferred:
    """Infer [batch, heads, steps * queries + keys, values] in f32: the outputs of the queries of each step, then the
    state.

    Query [batch, steps, heads, queries, keys], key [batch, steps, heads, keys], value [batch, steps, heads, values],
    state [batch, heads, keys, values], decay [batch, steps, heads, keys], rate [batch, steps, heads].
    """
    batch, steps, heads, queries, keys = node.operand(QUERY).shape
    rows = ix.add(ix.multiply(steps, queries), keys)
    return [(FLOAT32, (batch, heads, rows, node.operand(VALUE).shape[-1]))]


register(
    name="LinearAttention",
    domain="loom",
    infer=_infer,
    attributes=RecurrenceAttributes,
    family="linear_attention",
)


def linear_attention_array(attributes: RecurrenceAttributes, operands: Sequence[np.ndarray | None]) -> np.ndarray:
    """Evaluate ``loom.LinearAttention`` with numpy; operands by position, None for omitted ones."""
    padded: list[np.ndarray | None] = [*operands, *[None] * (6 - len(operands))]
    query, key, value, initial, decay, rate = padded
    assert query is not None and key is not None and value is not None
    batch, steps, heads, queries, keys = query.shape
    state = np.zeros((batch, heads, keys, value.shape[-1]), np.float32) if initial is None else initial.copy()
    outputs = np.zeros((batch, heads, steps, queries, value.shape[-1]), np.float32)
    for step in range(steps):
        k, v = key[:, step], value[:, step]
        if decay is not None:
            state = state * decay[:, step, ..., None]
        if attributes.retrieves:
            v = v - np.einsum("bhkv,bhk->bhv", state, k)
        if rate is not None:
            v = v * rate[:, step, :, None]
        state = state + k[..., None] * v[..., None, :]
        outputs[:, :, step] = np.einsum("bhkv,bhqk->bhqv", state, query[:, step]) * np.float32(attributes.scale)
    rows = outputs.reshape(batch, heads, steps * queries, value.shape[-1])
    return np.concatenate([rows, state], 2).astype(np.float32)
