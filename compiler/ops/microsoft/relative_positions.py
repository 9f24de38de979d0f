"""Biases of attention by the distance between query and key: RelativePositionBias, GatedRelativePositionBias."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..checks import FLOATS
from ..math.attention_core import split_heads
from ..math.reductions import reduce
from ..registry import Builder, Inferred, register

_INT64 = frozenset({"int64"})


# -- RelativePositionBias --------------------------------------------------------------------------------------------


@record
class RelativePositionBiasAttributes:
    max_distance: int
    is_bidirectional: int = 0


def buckets(distances: np.ndarray, count: int, farthest: int, both: bool) -> np.ndarray:
    """Return the row of the table, of ``count`` rows, for each distance of a key after its query.

    Half of the rows are for one distance each, the others for spans that grow up to ``farthest``.  With ``both`` keys
    after their query have rows of their own, the second half; else they count as the query's own position.
    """
    offset = np.zeros_like(distances)
    if both:
        count //= 2
        offset = np.where(distances > 0, count, 0)
        away = np.abs(distances)
    else:
        away = np.maximum(-distances, 0)
    near = count // 2
    steps = np.log(np.maximum(away, 1).astype(np.float32) / np.float32(near)) / np.float32(math.log(farthest / near))
    far = np.minimum(near + (steps * np.float32(count - near)).astype(np.int64), count - 1)
    return offset + np.where(away < near, away, far)


def _length(node: Node, position: int, what: str) -> int:
    return int(checks.static_elements(node, node.operand(position), what).reshape(-1)[0])


def _infer_bias(node: Node) -> Inferred:
    table = node.operand(0)
    checks.require(table.rank == 2, node, f"the table has rank {table.rank}")
    count = checks.concrete(node, table.shape[0], "the number of buckets")
    near = count // (4 if node.attributes.is_bidirectional else 2)
    fits = 0 < near < node.attributes.max_distance
    checks.require(fits, node, f"max_distance {node.attributes.max_distance} for a table of {count} rows")
    queries, keys = _length(node, 1, "query_length"), _length(node, 2, "key_length")
    return [(table.dtype, (1, table.shape[1], queries, keys))]


def _expand_bias(builder: Builder, node: Node) -> Sequence[Value]:
    """Build the bias [1, heads, queries, keys]: gather the table's row of each distance between query and key."""
    attributes: RelativePositionBiasAttributes = node.attributes
    table = node.operand(0)
    count = checks.concrete(node, table.shape[0], "the number of buckets")
    queries, keys = _length(node, 1, "query_length"), _length(node, 2, "key_length")
    distances = np.arange(1 - queries, keys)
    rows = buckets(distances, count, attributes.max_distance, bool(attributes.is_bidirectional))
    of_distance = builder.op("Gather", table, builder.constant(rows), axis=0)
    place = builder.constant(np.arange(queries - 1, -1, -1).reshape(queries, 1))
    places = builder.op("Add", place, builder.constant(np.arange(keys).reshape(1, keys)))
    bias = builder.op("Gather", of_distance, places, axis=0)
    return [builder.op("Unsqueeze", builder.op("Transpose", bias, perm=(2, 0, 1)), _axes(builder, 0))]


def _axes(builder: Builder, *axes: int) -> Value:
    return builder.constant(np.array(axes, np.int64))


register(
    name="RelativePositionBias",
    domain="com.microsoft",
    infer=_infer_bias,
    attributes=RelativePositionBiasAttributes,
    expand=_expand_bias,
    static_inputs=(1, 2),
    types=(FLOATS, _INT64, _INT64),
)


# -- GatedRelativePositionBias ---------------------------------------------------------------------------------------


@record
class GatedRelativePositionBiasAttributes:
    num_heads: int


def _infer_gated(node: Node) -> Inferred:
    query, bias, positions, weight = (node.operand(position) for position in range(4))
    heads = node.attributes.num_heads
    checks.require(node.optional(6) is None, node, "queries whose padding is removed (token_offset)")
    checks.require(query.rank == 3 and bias.rank == 1, node, "query_layer is [batch, sequence, hidden]")
    divides = heads > 0 and ix.equal(ix.modulo(query.shape[2], heads), 0)
    checks.require(divides, node, f"{ix.text(query.shape[2])} numbers do not divide into {heads} heads")
    checks.require(weight.rank == 2 and ix.equal(ix.modulo(weight.shape[1], 2), 0), node, "the weight has two halves")
    checks.require(positions.rank == 4, node, f"rel_pos has rank {positions.rank}")
    return [(query.dtype, (query.shape[0], heads, query.shape[1], positions.shape[3]))]


def _expand_gated(builder: Builder, node: Node) -> Sequence[Value]:
    """Build (u (r a - 1) + 2) times the bias, where u and r are sigmoids of the sums of the two halves of a product."""
    query, added, positions, weight, bias, scale = (node.operand(position) for position in range(6))
    heads = split_heads(builder, builder.op("Add", query, added), node.attributes.num_heads)
    product = builder.op("Add", builder.op("MatMul", heads, weight), bias)
    gates = []
    for half in builder.ops("Split", product, axis=-1, num_outputs=2):
        gates.append(builder.op("Sigmoid", reduce(builder, half, "sum", (3,))))
    one, two = builder.scalar(1.0, query), builder.scalar(2.0, query)
    inner = builder.op("Sub", builder.op("Mul", gates[1], scale), one)
    gate = builder.op("Add", builder.op("Mul", gates[0], inner), two)
    return [builder.op("Mul", gate, positions)]


register(
    name="GatedRelativePositionBias",
    domain="com.microsoft",
    infer=_infer_gated,
    attributes=GatedRelativePositionBiasAttributes,
    expand=_expand_gated,
    types=(FLOATS,),
)
