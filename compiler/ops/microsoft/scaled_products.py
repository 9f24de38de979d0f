"""Contributed products of floats with quantised weights: exact sums in int32, times the scales of both operands."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.dtypes import FLOAT32
from ...ir.graph import Node, Value
from ..checks import product_shape
from ..onnx.quantize import BYTES, dynamic_parameters, quantize
from ..onnx.quantized_products import check_left, check_right, integer_product, of_rows
from ..registry import Builder, Inferred, register

_FLOAT32 = frozenset({"float32"})


def scaled_product(
    builder: Builder,
    left: tuple[Value, Value, Value | None],
    right: tuple[Value, Value, Value | None],
    bias: Value | None,
) -> Value:
    """Build the product in f32 of two quantised tensors, each with its scale and zero point."""
    total = integer_product(builder, left[0], right[0], left[2], right[2])
    rows = of_rows(builder, left[1])
    assert rows is not None
    result = builder.op("Mul", builder.op("Cast", total, to=FLOAT32.onnx), builder.op("Mul", rows, right[1]))
    return result if bias is None else builder.op("Add", result, bias)


def _infer_dynamic_matmul(node: Node) -> Inferred:
    check_right(node, 1, (2, 3))
    return [(FLOAT32, product_shape(node, node.operand(0).shape, node.operand(1).shape))]


def _expand_dynamic_matmul(builder: Builder, node: Node) -> Sequence[Value]:
    value = node.operand(0)
    left = dynamically_quantised(builder, value)
    return [scaled_product(builder, left, (node.operand(1), node.operand(2), node.optional(3)), node.optional(4))]


def dynamically_quantised(builder: Builder, value: Value) -> tuple[Value, Value, Value]:
    """Quantise ``value`` to uint8 by its own range, and return it with its scale and zero point."""
    scale, zero_point = dynamic_parameters(builder, value)
    return quantize(builder, value, scale, zero_point, zero_point.dtype), scale, zero_point


register(
    name="DynamicQuantizeMatMul",
    domain="com.microsoft",
    infer=_infer_dynamic_matmul,
    expand=_expand_dynamic_matmul,
    types=(_FLOAT32, BYTES, _FLOAT32, BYTES, _FLOAT32),
)


def _infer_scaled_matmul(node: Node) -> Inferred:
    check_left(node, 0, (2, 4))
    check_right(node, 1, (3, 5))
    return [(node.operand(2).dtype, product_shape(node, node.operand(0).shape, node.operand(1).shape))]


def _expand_scaled_matmul(builder: Builder, node: Node) -> Sequence[Value]:
    left = (node.operand(0), node.operand(2), node.optional(4))
    return [scaled_product(builder, left, (node.operand(1), node.operand(3), node.optional(5)), node.optional(6))]


register(
    name="MatMulIntegerToFloat",
    domain="com.microsoft",
    infer=_infer_scaled_matmul,
    expand=_expand_scaled_matmul,
    types=(BYTES, BYTES, _FLOAT32, _FLOAT32, BYTES, BYTES, _FLOAT32),
)
