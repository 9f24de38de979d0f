"""Contributed operators with windows on quantised tensors, channels first or last: QLinearConv, QLinearAveragePool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.graph import Node, Value
from .. import checks
from ..math.channels_last import channels_first, channels_last, last_shape, seen_first
from ..onnx.convolution import ConvAttributes
from ..onnx.pooling import AveragePoolAttributes, explicit
from ..onnx.quantize import BYTES
from ..registry import Builder, Case, Inferred, Tensor, register, registry
from .quantized_elementwise import byte_tensor, quantised_operand, quantised_result, scale_tensor, zero_tensor

_FLOAT32 = frozenset({"float32"})


# -- QLinearConv -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QLinearConvAttributes(ConvAttributes):
    channels_last: int = 0


_STANDARD = registry.get("QLinearConv")


def _infer_convolution(node: Node) -> Inferred:
    if not node.attributes.channels_last:
        return _STANDARD.infer(node)
    checks.require(node.operand(0).rank >= 3, node, f"the input has rank {node.operand(0).rank}")
    ((dtype, shape),) = _STANDARD.infer(seen_first(node))
    return [(dtype, last_shape(shape))]


def _expand_convolution(builder: Builder, node: Node) -> Sequence[Value]:
    """The weight is [M, C, kernel...] either way."""
    attributes: QLinearConvAttributes = node.attributes
    last = attributes.channels_last
    value = channels_first(builder, node.operand(0)) if last else node.operand(0)
    result = builder.op(
        "QLinearConv",
        value,
        *node.inputs[1:],
        auto_pad=attributes.auto_pad,
        dilations=attributes.dilations,
        group=attributes.group,
        kernel_shape=attributes.kernel_shape,
        pads=attributes.pads,
        strides=attributes.strides,
    )
    return [channels_last(builder, result) if last else result]


def _convolution_case(value: Tensor, weight: tuple[int, ...], *, bias: bool = False, **attributes: object) -> Case:
    """Weights of 6 bits: onnxruntime's sums of pairs saturate at 16 bits on some processors."""
    operands = [value, scale_tensor(0.02), zero_tensor(13, value.dtype), Tensor(weight, "int8", -32, 31, constant=True)]
    operands += [scale_tensor(0.01), zero_tensor(0, "int8"), scale_tensor(0.1), zero_tensor(9, value.dtype)]
    if bias:
        operands.append(Tensor((weight[0],), "int32", -500, 500, constant=True))
    return Case(tuple(operands), dict(attributes))


register(
    name="QLinearConv",
    domain="com.microsoft",
    infer=_infer_convolution,
    cases=(
        _convolution_case(byte_tensor((1, 3, 7, 5)), (4, 3, 3, 3), pads=[1, 1, 1, 1]),
        _convolution_case(byte_tensor((1, 7, 5, 3)), (4, 3, 3, 3), bias=True, pads=[1, 0, 1, 2], channels_last=1),
        _convolution_case(byte_tensor((2, 7, 5, 4)), (6, 2, 3, 3), group=2, strides=[2, 1], channels_last=1),
        _convolution_case(byte_tensor((1, 7, 5, 4)), (4, 1, 3, 3), bias=True, group=4, channels_last=1),
        _convolution_case(byte_tensor((2, 9, 3), "int8"), (4, 3, 3), channels_last=1),
    ),
    attributes=QLinearConvAttributes,
    expand=_expand_convolution,
    types=_STANDARD.types,
)


# -- QLinearAveragePool ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QLinearAveragePoolAttributes(AveragePoolAttributes):
    channels_last: int = 0


def _infer_pool(node: Node) -> Inferred:
    last = node.attributes.channels_last
    checks.require(node.operand(0).rank >= 3, node, f"the input has rank {node.operand(0).rank}")
    seen = seen_first(node) if last else node
    value = seen.operand(0)
    shape = (*value.shape[:2], *explicit(seen, "average").output_spatial)
    return [(value.dtype, last_shape(shape) if last else shape)]


def _expand_pool(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: QLinearAveragePoolAttributes = node.attributes
    value = quantised_operand(builder, node, 0)
    pooled = builder.op(
        "AveragePool",
        channels_first(builder, value) if attributes.channels_last else value,
        auto_pad=attributes.auto_pad,
        ceil_mode=attributes.ceil_mode,
        count_include_pad=attributes.count_include_pad,
        dilations=attributes.dilations,
        kernel_shape=attributes.kernel_shape,
        pads=attributes.pads,
        strides=attributes.strides,
    )
    if attributes.channels_last:
        pooled = channels_last(builder, pooled)
    return [quantised_result(builder, node, pooled, 3)]


def _pool_case(shape: tuple[int, ...], dtype: str = "uint8", **attributes: object) -> Case:
    parameters = (scale_tensor(0.0371), zero_tensor(13, dtype), scale_tensor(0.0213), zero_tensor(9, dtype))
    return Case((byte_tensor(shape, dtype), *parameters), dict(attributes))


register(
    name="QLinearAveragePool",
    domain="com.microsoft",
    infer=_infer_pool,
    cases=(
        _pool_case((1, 3, 7, 5), kernel_shape=[3, 2]),
        _pool_case((1, 3, 7, 6), "int8", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        _pool_case((1, 7, 5, 3), kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1, channels_last=1),
        _pool_case((2, 9, 4), kernel_shape=[3], strides=[2], channels_last=1),
    ),
    attributes=QLinearAveragePoolAttributes,
    expand=_expand_pool,
    types=(BYTES, _FLOAT32, BYTES, _FLOAT32, BYTES),
)
