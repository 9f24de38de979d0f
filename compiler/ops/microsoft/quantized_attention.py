"""QAttention (domain com.microsoft): Attention with quantised input and weights."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..onnx.quantize import BYTES
from ..registry import Builder, Inferred, register
from .attention import attend_projections, hidden_sizes, infer_projected
from .scaled_products import scaled_product

_FLOAT32 = frozenset({"float32"})


@record
class QAttentionAttributes:
    num_heads: int
    do_rotary: int = 0
    mask_filter_value: float = -10000.0
    past_present_share_buffer: int = 0
    scale: float = 0.0
    unidirectional: int = 0


def _infer(node: Node) -> Inferred:
    results = infer_projected(node, node.optional(8), FLOAT32)
    columns = node.operand(1).shape[1]
    for position, count in ((3, 1), (6, 1), (4, columns), (7, columns)):
        operand = node.optional(position)
        fits = operand is None or ix.product(operand.shape) in (1, count)
        checks.require(fits, node, f"input {position} has neither one number nor one for each column")
    return results


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    value, weight = node.operand(0), node.operand(1)

    def parameter(position: int) -> Value:
        operand = node.operand(position)
        return builder.op("Squeeze", operand) if operand.rank == 1 and ix.product(operand.shape) == 1 else operand

    zeros = [None if node.optional(position) is None else parameter(position) for position in (6, 7)]
    left, right = (value, parameter(3), zeros[0]), (weight, parameter(4), zeros[1])
    product = scaled_product(builder, left, right, node.operand(2))
    return attend_projections(builder, node, product, hidden_sizes(node), node.optional(5), node.optional(8))


register(
    name="QAttention",
    domain="com.microsoft",
    infer=_infer,
    attributes=QAttentionAttributes,
    expand=_expand,
    types=(BYTES, BYTES, *(_FLOAT32,) * 3, frozenset({"int32"}), BYTES, BYTES, _FLOAT32),
)
