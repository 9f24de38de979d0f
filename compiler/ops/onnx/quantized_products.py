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
from ..registry import Builder, Case, Inferred, Tensor, register
from .convolution import ConvAttributes, add_bias, convolution, infer_convolution
from .matmul import product_shape
from .normalization import in_type
from .quantize import BYTES, centred, dynamic_parameters, quantize

_FLOAT32 = frozenset({"float32"})
_SCALES = frozenset({"float32", "float16", "bfloat16"})


def _bytes(shape: tuple[int, ...], dtype: str = "uint8", *, constant: bool = False) -> Tensor:
    """Operands of cases.  Signed ones have 7 bits: onnxruntime's sums of pairs saturate at 16 bits on some
    processors."""
    low, high = (0, 255) if dtype == "uint8" else (-64, 63)
    return Tensor(shape, dtype, low, high, constant=constant)


def _scale(shape: tuple[int, ...] = (), low: float = 0.01, high: float = 0.1) -> Tensor:
    return Tensor(shape, low=low, high=high)


# -- parameters of rows, columns and channels ------------------------------------------------------------------------


def _of_rows(builder: Builder, parameter: Value | None) -> Value | None:
    """A parameter of the left operand: one number, one for each row, or already in a shape that broadcasts."""
    if parameter is None or parameter.rank != 1 or checks.is_size(parameter.shape[0], 1):
        return parameter
    return builder.op("Unsqueeze", parameter, builder.constant(np.array([1], np.int64)))


def _of_channels(builder: Builder, parameter: Value | None, rank: int) -> Value | None:
    """A parameter with one number, or one for each output channel, shaped to broadcast to [N, C, ...]."""
    if parameter is None or parameter.rank == 0 or checks.is_size(parameter.shape[0], 1):
        return parameter
    return builder.op("Unsqueeze", parameter, builder.constant(np.arange(1, rank - 1, dtype=np.int64)))


def _of_filters(builder: Builder, parameter: Value | None, rank: int) -> Value | None:
    """The same, shaped to broadcast to a weight [M, C, kernel...]."""
    if parameter is None or parameter.rank == 0 or checks.is_size(parameter.shape[0], 1):
        return parameter
    return builder.op("Unsqueeze", parameter, builder.constant(np.arange(1, rank, dtype=np.int64)))


def _vectors(node: Node, parameters: Sequence[int]) -> Iterator[tuple[int, Value]]:
    """The parameters, by their positions, that are given and more than one number."""
    for position in parameters:
        given = node.optional(position)
        if given is not None and given.rank and ix.product(given.shape) != 1:
            yield position, given


def _check_left(node: Node, left: int, parameters: Sequence[int]) -> None:
    value = node.operand(left)
    for position, given in _vectors(node, parameters):
        if given.rank == 1:
            fits = value.rank >= 2 and ix.equal(given.shape[0], value.shape[-2])
        else:
            fits = checks.broadcast_shapes(node, [value.shape, given.shape]) == value.shape
        checks.require(fits, node, f"input {position} has neither one number nor one for each row")


def _check_right(node: Node, right: int, parameters: Sequence[int]) -> None:
    value = node.operand(right)
    for position, given in _vectors(node, parameters):
        fits = checks.broadcast_shapes(node, [value.shape, given.shape]) == value.shape
        checks.require(fits, node, f"input {position} has neither one number nor one for each column")


def _check_channels(node: Node, weight: int, parameters: Sequence[int]) -> None:
    value = node.operand(weight)
    for position, given in _vectors(node, parameters):
        fits = given.rank == 1 and ix.equal(given.shape[0], value.shape[0])
        checks.require(fits, node, f"input {position} has neither one number nor one for each output channel")


# -- MatMulInteger, QLinearMatMul ------------------------------------------------------------------------------------


def _infer_matmul_integer(node: Node) -> Inferred:
    _check_left(node, 0, (2,))
    _check_right(node, 1, (3,))
    return [(INT32, product_shape(node, node.operand(0).shape, node.operand(1).shape))]


def _integer_product(
    builder: Builder, left: Value, right: Value, left_zero: Value | None, right_zero: Value | None
) -> Value:
    return builder.op(
        "MatMul", centred(builder, left, _of_rows(builder, left_zero)), centred(builder, right, right_zero)
    )


register(
    name="MatMulInteger",
    infer=_infer_matmul_integer,
    cases=(
        Case((_bytes((3, 7)), _bytes((7, 5)))),
        Case((_bytes((3, 7)), _bytes((7, 5), "int8"), Tensor((), "uint8", data=131))),
        Case((_bytes((3, 8)), _bytes((8, 12), constant=True), Tensor((1,), "uint8", data=[12]), _bytes((12,)))),
        Case((_bytes((2, 3, 7), "int8"), _bytes((2, 7, 4), "int8"), Tensor((), "int8", data=-3), _bytes((1,), "int8"))),
        Case((_bytes((1, 64)), _bytes((64, 33), "int8", constant=True), Tensor((), "uint8", data=131))),
    ),
    expand=lambda builder, node: [
        _integer_product(builder, node.operand(0), node.operand(1), node.optional(2), node.optional(3))
    ],
    types=(BYTES,),
)


def _infer_qlinear_matmul(node: Node) -> Inferred:
    _check_left(node, 0, (1, 2))
    _check_right(node, 3, (4, 5))
    return [(node.operand(7).dtype, product_shape(node, node.operand(0).shape, node.operand(3).shape))]


def _requantised(builder: Builder, total: Value, factor: Value, zero_point: Value) -> Value:
    """int32 sums times ``factor``, rounded, as integers of the type of ``zero_point``."""
    scaled = builder.op("Mul", builder.op("Cast", total, to=FLOAT32.onnx), factor)
    return quantize(builder, scaled, builder.scalar(1.0, scaled), zero_point, zero_point.dtype)


def _factor(builder: Builder, left: Value, right: Value, result: Value) -> Value:
    """What a unit of the sums is in units of the result."""
    left, right, result = (in_type(builder, each, FLOAT32) for each in (left, right, result))
    return builder.op("Div", builder.op("Mul", left, right), result)


def _expand_qlinear_matmul(builder: Builder, node: Node) -> Sequence[Value]:
    left, left_scale, left_zero, right, right_scale, right_zero, scale, zero = (
        node.operand(position) for position in range(8)
    )
    total = _integer_product(builder, left, right, left_zero, right_zero)
    rows = _of_rows(builder, left_scale)
    assert rows is not None
    return [_requantised(builder, total, _factor(builder, rows, right_scale, scale), zero)]


def _qlinear_case(left: Tensor, right: Tensor, columns: tuple[int, ...], zero: str = "uint8") -> Case:
    left_zero = Tensor((), left.dtype, data=5)
    right_zero = Tensor(columns, right.dtype, 0, 9)
    result = (_scale((), 4.0, 9.0), Tensor((), zero, data=99))
    return Case((left, _scale(), left_zero, right, _scale(columns), right_zero, *result))


register(
    name="QLinearMatMul",
    infer=_infer_qlinear_matmul,
    cases=(
        _qlinear_case(_bytes((3, 7)), _bytes((7, 5)), ()),
        _qlinear_case(_bytes((2, 3, 8), "int8"), _bytes((2, 8, 4), "int8"), (1,), "int8"),
        _qlinear_case(_bytes((3, 8)), _bytes((8, 12), "int8", constant=True), (12,)),
    ),
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
    cases=(
        Case((_bytes((1, 3, 7, 5)), _bytes((4, 3, 3, 3), constant=True))),
        Case(
            (_bytes((2, 3, 7, 9)), _bytes((5, 3, 3, 3), "int8", constant=True), Tensor((), "uint8", data=131)),
            {"pads": [1, 1, 1, 1]},
        ),
        Case(
            (_bytes((1, 4, 9, 7)), _bytes((6, 2, 3, 3)), Tensor((), "uint8", data=7), Tensor((), "uint8", data=9)),
            {"group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]},
        ),
        Case((_bytes((1, 4, 9, 7)), _bytes((4, 1, 3, 3)), Tensor((), "uint8", data=7)), {"group": 4}),
        Case((_bytes((2, 3, 17)), _bytes((4, 3, 5)), Tensor((), "uint8", data=3)), {"pads": [2, 1], "dilations": [2]}),
    ),
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


def _qlinear_conv_case(
    value: Tensor, weight: Tensor, *, channels: bool = False, bias: bool = False, **fields: object
) -> Case:
    count = weight.shape[0]
    per = (count,) if channels else ()
    zero = 0 if weight.dtype == "int8" else 120  # onnxruntime has no other zero points for int8 weights of channels
    operands = [
        value,
        _scale(),
        Tensor((), value.dtype, data=5),
        weight,
        _scale(per),
        Tensor(per, weight.dtype, zero, zero, constant=True),
        _scale((), 4.0, 9.0),
        Tensor((), value.dtype, data=99),
    ]
    if bias:
        operands.append(Tensor((count,), "int32", -5000, 5000, constant=True))
    return Case(tuple(operands), dict(fields))


register(
    name="QLinearConv",
    infer=_infer_qlinear_conv,
    cases=(
        _qlinear_conv_case(_bytes((1, 3, 7, 5)), _bytes((4, 3, 3, 3), constant=True)),
        _qlinear_conv_case(
            _bytes((2, 3, 7, 9)),
            _bytes((5, 3, 3, 3), "int8", constant=True),
            channels=True,
            bias=True,
            pads=[1, 1, 1, 1],
        ),
        _qlinear_conv_case(
            _bytes((1, 4, 9, 7)), _bytes((4, 1, 3, 3), constant=True), bias=True, group=4, strides=[2, 2]
        ),
        _qlinear_conv_case(_bytes((1, 4, 9, 7), "int8"), _bytes((4, 4, 1, 1), "int8", constant=True), channels=True),
    ),
    attributes=ConvAttributes,
    expand=_expand_qlinear_conv,
    types=(BYTES, _SCALES, BYTES, BYTES, _SCALES, BYTES, _SCALES, BYTES, frozenset({"int32"})),
)


# -- contributed: products of floats with quantised weights ----------------------------------------------------------


def scaled_product(
    builder: Builder,
    left: tuple[Value, Value, Value | None],
    right: tuple[Value, Value, Value | None],
    bias: Value | None,
) -> Value:
    """The product of two quantised tensors, each with its scale and zero point, in f32."""
    total = _integer_product(builder, left[0], right[0], left[2], right[2])
    rows = _of_rows(builder, left[1])
    assert rows is not None
    result = builder.op("Mul", builder.op("Cast", total, to=FLOAT32.onnx), builder.op("Mul", rows, right[1]))
    return result if bias is None else builder.op("Add", result, bias)


def _infer_dynamic_matmul(node: Node) -> Inferred:
    _check_right(node, 1, (2, 3))
    return [(FLOAT32, product_shape(node, node.operand(0).shape, node.operand(1).shape))]


def _expand_dynamic_matmul(builder: Builder, node: Node) -> Sequence[Value]:
    value = node.operand(0)
    left = dynamically_quantised(builder, value)
    return [scaled_product(builder, left, (node.operand(1), node.operand(2), node.optional(3)), node.optional(4))]


def dynamically_quantised(builder: Builder, value: Value) -> tuple[Value, Value, Value]:
    """``value`` as uint8 with the scale and zero point of its own range."""
    scale, zero_point = dynamic_parameters(builder, value)
    return quantize(builder, value, scale, zero_point, zero_point.dtype), scale, zero_point


_WEIGHT = _bytes((7, 5), "int8", constant=True)

register(
    name="DynamicQuantizeMatMul",
    domain="com.microsoft",
    infer=_infer_dynamic_matmul,
    cases=(
        Case((Tensor((3, 7)), _WEIGHT, _scale(()))),
        Case((Tensor((3, 7)), _WEIGHT, _scale((5,)), _bytes((5,), "int8", constant=True))),
        Case((Tensor((2, 3, 7)), _WEIGHT, _scale((1,)), None, Tensor((5,)))),
        Case((Tensor((3, 7)), _bytes((7, 5), constant=True), _scale(()), Tensor((), "uint8", data=120), Tensor((5,)))),
    ),
    expand=_expand_dynamic_matmul,
    types=(_FLOAT32, BYTES, _FLOAT32, BYTES, _FLOAT32),
)


def _infer_scaled_matmul(node: Node) -> Inferred:
    _check_left(node, 0, (2, 4))
    _check_right(node, 1, (3, 5))
    return [(node.operand(2).dtype, product_shape(node, node.operand(0).shape, node.operand(1).shape))]


def _expand_scaled_matmul(builder: Builder, node: Node) -> Sequence[Value]:
    left = (node.operand(0), node.operand(2), node.optional(4))
    return [scaled_product(builder, left, (node.operand(1), node.operand(3), node.optional(5)), node.optional(6))]


register(
    name="MatMulIntegerToFloat",
    domain="com.microsoft",
    infer=_infer_scaled_matmul,
    cases=(
        Case((_bytes((3, 7)), _WEIGHT, _scale(()), _scale(()))),
        Case((_bytes((3, 7)), _WEIGHT, _scale(()), _scale((5,)), Tensor((), "uint8", data=120))),
        Case((_bytes((3, 7)), _WEIGHT, _scale(()), _scale(()), None, Tensor((), "int8", data=9), Tensor((5,)))),
    ),
    expand=_expand_scaled_matmul,
    types=(BYTES, BYTES, _FLOAT32, _FLOAT32, BYTES, BYTES, _FLOAT32),
)
