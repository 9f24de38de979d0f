"""The sum of three embeddings, normalised: EmbedLayerNormalization and its quantised form (domain com.microsoft)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32, INT32
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..checks import FLOATS
from ..math.nodes import part
from ..math.reductions import reduce
from ..onnx.quantize import BYTES, dequantize
from ..registry import Builder, Indices, Inferred, register

_INT32 = frozenset({"int32"})


@record
class EmbedLayerNormalizationAttributes:
    epsilon: float = 1e-12
    mask_index_type: int = 1


def _infer(node: Node) -> Inferred:
    tokens, words, positions = node.operand(0), node.operand(2), node.operand(3)
    checks.require(tokens.rank == 2, node, f"input_ids of rank {tokens.rank}")
    checks.require((node.optional(1) is None) == (node.optional(4) is None), node, "segments need their embedding")
    checks.require(ix.equal(words.shape[1], positions.shape[1]), node, "the embeddings differ in size")
    shape = (*tokens.shape, words.shape[1])
    return [(words.dtype, shape), (INT32, tokens.shape[:1]), (words.dtype, shape)]


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    tokens, segments, places, mask = node.operand(0), node.optional(1), node.optional(8), node.optional(7)
    total = builder.op("Gather", node.operand(2), tokens)
    if places is None:
        table = part(builder, node.operand(3), 0, 0, tokens.shape[1])
        total = builder.op("Add", total, table)
    else:
        total = builder.op("Add", total, builder.op("Gather", node.operand(3), places))
    if segments is not None:
        total = builder.op("Add", total, builder.op("Gather", node.operand(4), segments))
    results = builder.ops(
        "LayerNormalization", total, node.operand(5), node.operand(6), epsilon=node.attributes.epsilon
    )
    if mask is not None:
        count = reduce(builder, mask, "sum", (1,), keepdims=False)
    else:
        count = builder.op("Broadcast", builder.constant(np.array(0, np.int32)), domain="loom", shape=tokens.shape[:1])
    return [results[0], count, total]


def _rows(position: int, table: int) -> Indices:
    return Indices(position, lambda node: [node.operand(table).shape[0]], wraps=False)


register(
    name="EmbedLayerNormalization",
    domain="com.microsoft",
    infer=_infer,
    attributes=EmbedLayerNormalizationAttributes,
    expand=_expand,
    indices=(_rows(0, 2), _rows(1, 4), _rows(8, 3)),
    types=(_INT32, _INT32, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, _INT32, _INT32),
)


# -- QEmbedLayerNormalization ----------------------------------------------------------------------------------------

#: Positions of tables and vectors with those of their scales and zero points
_QUANTISED = ((2, 8, 13), (3, 9, 14), (4, 10, 15), (5, 11, 16), (6, 12, 17))


@record
class QEmbedLayerNormalizationAttributes:
    epsilon: float = 1e-12


def _infer_quantised(node: Node) -> Inferred:
    tokens, words = node.operand(0), node.operand(2)
    checks.require(tokens.rank == 2, node, f"input_ids of rank {tokens.rank}")
    checks.require((node.optional(1) is None) == (node.optional(4) is None), node, "segments need their embedding")
    return [(FLOAT32, (*tokens.shape, words.shape[1])), (INT32, tokens.shape[:1])]


def _expand_quantised(builder: Builder, node: Node) -> Sequence[Value]:
    """Dequantise the tables and embed; fusion restricts dequantisation to the rows that are read."""
    floats: dict[int, Value] = {}
    for position, scale, zero_point in _QUANTISED:
        table = node.optional(position)
        if table is not None:
            shape = builder.constant(np.array([], np.int64))
            step, zero = (builder.op("Reshape", node.operand(each), shape) for each in (scale, zero_point))
            floats[position] = dequantize(builder, table, step, zero)
    results = builder.ops(
        "EmbedLayerNormalization",
        node.operand(0),
        node.optional(1),
        *(floats.get(position) for position in range(2, 7)),
        node.optional(7),
        domain="com.microsoft",
        epsilon=node.attributes.epsilon,
    )
    return results[:2]


register(
    name="QEmbedLayerNormalization",
    domain="com.microsoft",
    infer=_infer_quantised,
    attributes=QEmbedLayerNormalizationAttributes,
    expand=_expand_quantised,
    indices=(_rows(0, 2), _rows(1, 4)),
    types=(_INT32, _INT32, *[BYTES] * 5, _INT32, *[frozenset({"float32"})] * 5, *[BYTES] * 5),
)
