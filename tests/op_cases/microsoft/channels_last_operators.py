"""Cases of the operators in ``compiler/ops/microsoft/channels_last_operators.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _pool_case(shape: tuple[int, ...], dtype: str, **attributes: object) -> Case:
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    return Case((Tensor(shape, dtype, low, high),), dict(attributes))


def _conv_case(value: tuple[int, ...], weight: tuple[int, ...], *, bias: bool = False, **attributes: object) -> Case:
    operands = [Tensor(value), Tensor(weight, constant=True)]
    if bias:
        operands.append(Tensor((weight[0],), constant=True))
    return Case(tuple(operands), dict(attributes))


_CHANNELS = (Tensor((4,)), Tensor((4,)))

_SUMMED = (Tensor((2, 5, 3, 4)), *_CHANNELS)

CASES: Cases = {
    "NhwcMaxPool": (
        _pool_case((1, 7, 5, 3), "uint8", kernel_shape=[3, 2]),
        _pool_case((2, 7, 6, 4), "int8", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        _pool_case((1, 9, 8, 5), "uint8", kernel_shape=[2, 3], dilations=[2, 1], ceil_mode=1, strides=[2, 2]),
        _pool_case((2, 9, 4), "int8", kernel_shape=[3], strides=[2]),
    ),
    "NhwcConv": (
        _conv_case((1, 7, 5, 3), (4, 3, 3, 3), bias=True, pads=[1, 1, 1, 1]),
        _conv_case((2, 9, 7, 4), (6, 3, 2, 2), group=2, strides=[2, 1], kernel_shape=[3, 2]),
        _conv_case((1, 5, 6, 8), (4, 1, 1, 8), bias=True),
    ),
    "NhwcFusedConv": (
        _conv_case((1, 7, 5, 3), (4, 3, 3, 3), bias=True, activation="Relu", pads=[1, 1, 1, 1]),
        _conv_case((2, 9, 7, 4), (6, 2, 3, 2), group=2, activation="LeakyRelu", activation_params=[0.2]),
        Case((Tensor((1, 7, 5, 3)), Tensor((4, 3, 3, 3)), Tensor((4,)), Tensor((1, 5, 3, 4))), {"activation": "Relu"}),
    ),
    "GroupNorm": (
        Case((Tensor((2, 5, 3, 4)), *_CHANNELS), {"groups": 2, "activation": 0}),
        Case((Tensor((1, 7, 5, 4)), *_CHANNELS), {"groups": 4, "activation": 1, "epsilon": 1e-2}),
        Case((Tensor((2, 4, 5, 3)), *_CHANNELS), {"groups": 1, "activation": 1, "channels_last": 0}),
    ),
    "SkipGroupNorm": (
        Case((*_SUMMED, Tensor((2, 5, 3, 4)), Tensor((4,))), {"groups": 2, "activation": 1}, outputs=2),
        Case((*_SUMMED, Tensor((2, 1, 1, 4))), {"groups": 2, "activation": 0}, outputs=2),
        Case((*_SUMMED, Tensor((2, 4)), Tensor((4,))), {"groups": 4, "activation": 0}),
    ),
}
