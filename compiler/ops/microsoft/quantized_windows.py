"""Contributed operators with windows on quantised tensors, channels first or last: QLinearConv, QLinearAveragePool."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from .. import checks
from ..math.channels_last import channels_first, channels_first_node, channels_last, last_shape
from ..math.nodes import fields_of
from ..onnx.convolution import ConvAttributes
from ..onnx.pooling import AveragePoolAttributes, explicit
from ..onnx.quantize import BYTES
from ..registry import Builder, Inferred, register, registry
from .quantized_elementwise import quantised_operand, quantised_result

_FLOAT32 = frozenset({"float32"})


# -- QLinearConv -----------------------------------------------------------------------------------------------------


@record
class QLinearConvAttributes(ConvAttributes):
    channels_last: int = 0


_STANDARD = registry.get("QLinearConv")


def _infer_convolution(node: Node) -> Inferred:
    if not node.attributes.channels_last:
        return _STANDARD.infer(node)
    checks.require(node.operand(0).rank >= 3, node, f"the input has rank {node.operand(0).rank}")
    ((dtype, shape),) = _STANDARD.infer(channels_first_node(node))
    return [(dtype, last_shape(shape))]


def _expand_convolution(builder: Builder, node: Node) -> Sequence[Value]:
    """Build a QLinearConv, between layout conversions for channels last; the weight is [M, C, kernel...] either way."""
    last = node.attributes.channels_last
    value = channels_first(builder, node.operand(0)) if last else node.operand(0)
    result = builder.op(
        "QLinearConv",
        value,
        *node.inputs[1:],
        **fields_of(node.attributes, ConvAttributes),
    )
    return [channels_last(builder, result) if last else result]


register(
    name="QLinearConv",
    domain="com.microsoft",
    infer=_infer_convolution,
    attributes=QLinearConvAttributes,
    expand=_expand_convolution,
    types=_STANDARD.types,
)


# -- QLinearAveragePool ----------------------------------------------------------------------------------------------


@record
class QLinearAveragePoolAttributes(AveragePoolAttributes):
    channels_last: int = 0


def _infer_pool(node: Node) -> Inferred:
    last = node.attributes.channels_last
    checks.require(node.operand(0).rank >= 3, node, f"the input has rank {node.operand(0).rank}")
    seen = channels_first_node(node) if last else node
    value = seen.operand(0)
    shape = (*value.shape[:2], *explicit(seen, "average").output_spatial)
    return [(value.dtype, last_shape(shape) if last else shape)]


def _expand_pool(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: QLinearAveragePoolAttributes = node.attributes
    value = quantised_operand(builder, node, 0)
    pooled = builder.op(
        "AveragePool",
        channels_first(builder, value) if attributes.channels_last else value,
        **fields_of(attributes, AveragePoolAttributes),
    )
    if attributes.channels_last:
        pooled = channels_last(builder, pooled)
    return [quantised_result(builder, node, pooled, 3)]


register(
    name="QLinearAveragePool",
    domain="com.microsoft",
    infer=_infer_pool,
    attributes=QLinearAveragePoolAttributes,
    expand=_expand_pool,
    types=(BYTES, _FLOAT32, BYTES, _FLOAT32, BYTES),
)
