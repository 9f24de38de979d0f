"""Contributed operators that quantising tools write: QGemm, QLinearWhere, the two conversions in their older domain."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..onnx.quantize import BYTES, centred, dequantize, quantize
from ..registry import Builder, Inferred, OpDef, register, registry

_FLOAT32 = frozenset({"float32"})


# -- the conversions -------------------------------------------------------------------------------------------------


def _register_conversion(standard: OpDef) -> None:
    """Register the standard operator in the domain of Microsoft as well.

    Tools of onnxruntime wrote 16-bit integers in that domain before opset 21.
    """
    register(
        name=standard.name,
        domain="com.microsoft",
        infer=standard.infer,
        attributes=standard.attributes,
        expand=standard.expand,
        types=standard.types,
    )


_register_conversion(registry.get("QuantizeLinear"))
_register_conversion(registry.get("DequantizeLinear"))


# -- QGemm -----------------------------------------------------------------------------------------------------------


@record
class QGemmAttributes:
    alpha: float = 1.0
    transA: int = 0
    transB: int = 0


def _infer_gemm(node: Node) -> Inferred:
    left, right, attributes = node.operand(0), node.operand(3), node.attributes
    checks.require(left.rank == right.rank == 2, node, f"operands of ranks {left.rank} and {right.rank}, not 2")
    m, k = reversed(left.shape) if attributes.transA else left.shape
    inner, n = reversed(right.shape) if attributes.transB else right.shape
    checks.require(ix.equal(k, inner), node, f"inner sizes {ix.text(k)} and {ix.text(inner)}")
    for position in (1, 2):
        count = ix.product(node.operand(position).shape)
        checks.require(count == 1, node, f"input {position} must be one number")
    for position in (4, 5):
        count = ix.product(node.operand(position).shape)
        fits = count == 1 or ix.equal(count, n)
        checks.require(fits, node, f"input {position} has neither one number nor one for each column")
    zero = node.optional(8)
    checks.require(
        (node.optional(7) is None) == (zero is None), node, "the result's scale and zero point come together"
    )
    return [(FLOAT32 if zero is None else zero.dtype, (m, n))]


def _expand_gemm(builder: Builder, node: Node) -> Sequence[Value]:
    """Build ``alpha * scales * (A - a_zero) (B - b_zero)``.

    The bias has the unit of the sums, so it is added to them.
    """
    attributes: QGemmAttributes = node.attributes
    left = centred(builder, node.operand(0), _number(builder, node.operand(2)))
    if attributes.transA:
        left = builder.op("Transpose", left, perm=(1, 0))
    right = node.operand(3)
    if attributes.transB:
        right = builder.op("Transpose", right, perm=(1, 0))
    total = builder.op("MatMul", left, centred(builder, right, _number(builder, node.operand(5))))
    bias = node.optional(6)
    if bias is not None:
        total = builder.op("Add", total, bias)
    factor = builder.op("Mul", _number(builder, node.operand(1)), _number(builder, node.operand(4)))
    factor = builder.op("Mul", factor, builder.scalar(attributes.alpha, factor))
    result = builder.op("Mul", builder.op("Cast", total, to=FLOAT32.onnx), factor)
    scale, zero = node.optional(7), node.optional(8)
    if scale is None or zero is None:
        return [result]
    return [quantize(builder, result, _number(builder, scale), _number(builder, zero), zero.dtype)]


def _number(builder: Builder, value: Value) -> Value:
    """Squeeze a parameter of one element to a scalar; return others unchanged."""
    return builder.op("Squeeze", value) if value.rank and ix.product(value.shape) == 1 else value


register(
    name="QGemm",
    domain="com.microsoft",
    infer=_infer_gemm,
    attributes=QGemmAttributes,
    expand=_expand_gemm,
    types=(BYTES, _FLOAT32, BYTES, BYTES, _FLOAT32, BYTES, frozenset({"int32"}), _FLOAT32, BYTES),
)


# -- QLinearWhere ----------------------------------------------------------------------------------------------------


def _infer_where(node: Node) -> Inferred:
    condition, left, right = node.operand(0), node.operand(1), node.operand(4)
    checks.require_same_type(node, [left, right])
    return [(left.dtype, checks.broadcast_shapes(node, [condition.shape, left.shape, right.shape]))]


def _expand_where(builder: Builder, node: Node) -> Sequence[Value]:
    numbers = [_number(builder, node.operand(position)) for position in (2, 3, 5, 6, 7, 8)]
    left = dequantize(builder, node.operand(1), numbers[0], numbers[1])
    right = dequantize(builder, node.operand(4), numbers[2], numbers[3])
    chosen = builder.op("Where", node.operand(0), left, right)
    return [quantize(builder, chosen, numbers[4], numbers[5], node.operand(1).dtype)]


register(
    name="QLinearWhere",
    domain="com.microsoft",
    infer=_infer_where,
    expand=_expand_where,
    types=(frozenset({"bool"}), BYTES, _FLOAT32, BYTES, BYTES, _FLOAT32, BYTES, _FLOAT32, BYTES),
)
