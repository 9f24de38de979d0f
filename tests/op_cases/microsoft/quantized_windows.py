"""Cases of the operators in ``compiler/ops/microsoft/quantized_windows.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor
from .quantized_elementwise import byte_tensor, scale_tensor, zero_tensor


def _convolution_case(value: Tensor, weight: tuple[int, ...], *, bias: bool = False, **attributes: object) -> Case:
    """Weights of 6 bits: onnxruntime's sums of pairs saturate at 16 bits on some processors."""
    operands = [value, scale_tensor(0.02), zero_tensor(13, value.dtype), Tensor(weight, "int8", -32, 31, constant=True)]
    operands += [scale_tensor(0.01), zero_tensor(0, "int8"), scale_tensor(0.1), zero_tensor(9, value.dtype)]
    if bias:
        operands.append(Tensor((weight[0],), "int32", -500, 500, constant=True))
    return Case(tuple(operands), dict(attributes))


def _pool_case(shape: tuple[int, ...], dtype: str = "uint8", **attributes: object) -> Case:
    parameters = (scale_tensor(0.0371), zero_tensor(13, dtype), scale_tensor(0.0213), zero_tensor(9, dtype))
    return Case((byte_tensor(shape, dtype), *parameters), dict(attributes))


CASES: Cases = {
    "QLinearConv": (
        _convolution_case(byte_tensor((1, 3, 7, 5)), (4, 3, 3, 3), pads=[1, 1, 1, 1]),
        _convolution_case(byte_tensor((1, 7, 5, 3)), (4, 3, 3, 3), bias=True, pads=[1, 0, 1, 2], channels_last=1),
        _convolution_case(byte_tensor((2, 7, 5, 4)), (6, 2, 3, 3), group=2, strides=[2, 1], channels_last=1),
        _convolution_case(byte_tensor((1, 7, 5, 4)), (4, 1, 3, 3), bias=True, group=4, channels_last=1),
        _convolution_case(byte_tensor((2, 9, 3), "int8"), (4, 3, 3), channels_last=1),
    ),
    "QLinearAveragePool": (
        _pool_case((1, 3, 7, 5), kernel_shape=[3, 2]),
        _pool_case((1, 3, 7, 6), "int8", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        _pool_case((1, 7, 5, 3), kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1, channels_last=1),
        _pool_case((2, 9, 4), kernel_shape=[3], strides=[2], channels_last=1),
    ),
}
