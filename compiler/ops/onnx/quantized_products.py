"""Products of quantised tensors: exact sums in int32, scaled afterwards.

``MatMulInteger`` and ``ConvInteger`` give the sums; ``QLinearMatMul`` and ``QLinearConv`` bring them to the scale of
the result and round.  Padding of a convolution stands for 0, so it is added after the zero point is subtracted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32, INT32
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..checks import product_shape
from ..math.nodes import in_type
from ..registry import Builder, Inferred, register
from .convolution import ConvAttributes, add_bias, convolution, infer_convolution
from .quantize import BYTES, centred, quantize

_SCALES = frozenset({"float32", "float16", "bfloat16"})


# -- parameters of rows, columns and channels ------------------------------------------------------------------------


def of_rows(builder: Builder, parameter: Value | None) -> Value | None:
    """Reshape a parameter of the left operand to broadcast: one number, one for each row, or already in shape."""
    if parameter is None or parameter.rank != 1 or checks.is_size(parameter.shape[0], 1):
        return parameter
    return builder.op("Unsqueeze", parameter, builder.constant(np.array([1], np.int64)))


def _of_channels(builder: Builder, parameter: Value | None, rank: int) -> Value | None:
    """Reshape a parameter, one number or one for each output channel, to broadcast to [N, C, ...] of ``rank``."""
    if parameter is None or parameter.rank == 0 or checks.is_size(parameter.shape[0], 1):
        return parameter
    return builder.op("Unsqueeze", parameter, builder.constant(np.arange(1, rank - 1, dtype=np.int64)))


def _of_filters(builder: Builder, parameter: Value | None, rank: int) -> Value | None:
    """Reshape a parameter, one number or one for each output channel, to broadcast to a weight [M, C, kernel...]."""
    if parameter is None or parameter.rank == 0 or checks.is_size(parameter.shape[0], 1):
        return parameter
    return builder.op("Unsqueeze", parameter, builder.constant(np.arange(1, rank, dtype=np.int64)))


def _vectors(node: Node, parameters: Sequence[int]) -> Iterator[tuple[int, Value]]:
    """Yield those of the parameters, with their positions, that are present and have more than one number."""
    for position in parameters:
        parameter = node.optional(position)
        if parameter is not None and parameter.rank and ix.product(parameter.shape) != 1:
            yield position, parameter


def check_left(node: Node, left: int, parameters: Sequence[int]) -> None:
    value = node.operand(left)
    for position, parameter in _vectors(node, parameters):
        if parameter.rank == 1:
            fits = value.rank >= 2 and ix.equal(parameter.shape[0], value.shape[-2])
        else:
            fits = checks.broadcast_shapes(node, [value.shape, parameter.shape]) == value.shape
        checks.require(fits, node, f"input {position} has neither one number nor one for each row")


def check_right(node: Node, right: int, parameters: Sequence[int]) -> None:
    value = node.operand(right)
    for position, parameter in _vectors(node, parameters):
        fits = checks.broadcast_shapes(node, [value.shape, parameter.shape]) == value.shape
        checks.require(fits, node, f"input {position} has neither one number nor one for each column")


def _check_channels(node: Node, weight: int, parameters: Sequence[int]) -> None:
    value = node.operand(weight)
    for position, parameter in _vectors(node, parameters):
        fits = parameter.rank == 1 and ix.equal(parameter.shape[0], value.shape[0])
        checks.require(fits, node, f"input {position} has neither one number nor one for each output channel")


# -- MatMulInteger, QLinearMatMul ------------------------------------------------------------------------------------


def _infer_matmul_integer(node: Node) -> Inferred:
    check_left(node, 0, (2,))
    check_right(node, 1, (3,))
    return [(INT32, product_shape(node, node.operand(0).shape, node.operand(1).shape))]


def integer_product(
    builder: Builder, left: Value, right: Value, left_zero: Value | None, right_zero: Value | None
) -> Value:
    return builder.op(
        "MatMul", centred(builder, left, of_rows(builder, left_zero)), centred(builder, right, right_zero)
    )


register(
    name="MatMulInteger",
    infer=_infer_matmul_integer,
    expand=lambda builder, node: [
        integer_product(builder, node.operand(0), node.operand(1), node.optional(2), node.optional(3))
    ],
    types=(BYTES,),
)


def _infer_qlinear_matmul(node: Node) -> Inferred:
    check_left(node, 0, (1, 2))
    check_right(node, 3, (4, 5))
    return [(node.operand(7).dtype, product_shape(node, node.operand(0).shape, node.operand(3).shape))]


def _requantised(builder: Builder, total: Value, factor: Value, zero_point: Value) -> Value:
    """Multiply int32 sums by ``factor`` and round, to integers of the type of ``zero_point``."""
    scaled = builder.op("Mul", builder.op("Cast", total, to=FLOAT32.onnx), factor)
    return quantize(builder, scaled, builder.scalar(1.0, scaled), zero_point, zero_point.dtype)


def _factor(builder: Builder, left: Value, right: Value, result: Value) -> Value:
    """Build the unit of the sums in units of the result, ``left * right / result``, from the three scales."""
    left, right, result = (in_type(builder, each, FLOAT32) for each in (left, right, result))
    return builder.op("Div", builder.op("Mul", left, right), result)


def _expand_qlinear_matmul(builder: Builder, node: Node) -> Sequence[Value]:
    left, left_scale, left_zero, right, right_scale, right_zero, scale, zero = (
        node.operand(position) for position in range(8)
    )
    total = integer_product(builder, left, right, left_zero, right_zero)
    rows = of_rows(builder, left_scale)
    assert rows is not None
    return [_requantised(builder, total, _factor(builder, rows, right_scale, scale), zero)]


register(
    name="QLinearMatMul",
    infer=_infer_qlinear_matmul,
    expand=_expand_qlinear_matmul,
    types=(BYTES, _SCALES, BYTES, BYTES, _SCALES, BYTES, _SCALES, BYTES),
)


# -- ConvInteger, QLinearConv ----------------------------------------------------------------------------------------


def _infer_conv_integer(node: Node) -> Inferred:
    _check_channels(node, 1, (3,))
    return [(INT32, infer_convolution(node, node.operand(0), node.operand(1)))]


def _integer_convolution(
    builder: Builder, node: Node, value: Value, weight: Value, value_zero: Value | None, weight_zero: Value | None
) -> Value:
    filters = _of_filters(builder, weight_zero, weight.rank)
    return convolution(builder, node, centred(builder, value, value_zero), centred(builder, weight, filters))


def _expand_conv_integer(builder: Builder, node: Node) -> Sequence[Value]:
    operands = (node.operand(0), node.operand(1), node.optional(2), node.optional(3))
    return [_integer_convolution(builder, node, *operands)]


register(
    name="ConvInteger",
    infer=_infer_conv_integer,
    attributes=ConvAttributes,
    expand=_expand_conv_integer,
    types=(BYTES,),
)


def _infer_qlinear_conv(node: Node) -> Inferred:
    _check_channels(node, 3, (4, 5))
    return [(node.operand(7).dtype, infer_convolution(node, node.operand(0), node.operand(3)))]


def _expand_qlinear_conv(builder: Builder, node: Node) -> Sequence[Value]:
    value, value_scale, value_zero, weight, weight_scale, weight_zero, scale, zero = (
        node.operand(position) for position in range(8)
    )
    total = _integer_convolution(builder, node, value, weight, value_zero, weight_zero)
    channels = _of_channels(builder, weight_scale, value.rank)
    assert channels is not None
    total = add_bias(builder, total, node.optional(8))
    return [_requantised(builder, total, _factor(builder, value_scale, channels, scale), zero)]


register(
    name="QLinearConv",
    infer=_infer_qlinear_conv,
    attributes=ConvAttributes,
    expand=_expand_qlinear_conv,
    types=(BYTES, _SCALES, BYTES, BYTES, _SCALES, BYTES, _SCALES, BYTES, frozenset({"int32"})),
)
