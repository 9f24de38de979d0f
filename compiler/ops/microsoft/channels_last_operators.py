"""Contributed operators with the channels last: NhwcMaxPool, NhwcConv, NhwcFusedConv, GroupNorm, SkipGroupNorm.

onnxruntime's layout pass and its optimiser of diffusion models write them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..checks import FLOATS
from ..math.channels_last import channels_first, channels_first_node, channels_last, first_shape, last_shape
from ..math.nodes import fields_of, in_type
from ..onnx.convolution import ConvAttributes
from ..onnx.pooling import MaxPoolAttributes, explicit
from ..registry import Builder, Inferred, register, registry
from .fused import FusedConvAttributes, infer_fused_conv

_BYTES = frozenset({"int8", "uint8"})


def _check_image(node: Node) -> None:
    value = node.operand(0)
    checks.require(value.rank >= 3, node, f"{node.op} needs spatial axes; the input has rank {value.rank}")


# -- NhwcMaxPool -----------------------------------------------------------------------------------------------------


def _infer_max_pool(node: Node) -> Inferred:
    _check_image(node)
    seen = channels_first_node(node)
    value = seen.operand(0)
    return [(value.dtype, last_shape((*value.shape[:2], *explicit(seen, "max").output_spatial)))]


def _expand_max_pool(builder: Builder, node: Node) -> Sequence[Value]:
    pooled = builder.op("MaxPool", channels_first(builder, node.operand(0)), **fields_of(node.attributes))
    return [channels_last(builder, pooled)]


register(
    name="NhwcMaxPool",
    domain="com.microsoft",
    infer=_infer_max_pool,
    attributes=MaxPoolAttributes,
    expand=_expand_max_pool,
    types=(_BYTES | FLOATS,),
)


# -- NhwcConv, NhwcFusedConv -----------------------------------------------------------------------------------------

_CONV = registry.get("Conv")


def _with_filters_first(node: Node) -> Node:
    """Return a detached copy whose first two operands have their channels first, for shape rules only."""
    seen = channels_first_node(node)
    weight = node.operand(1)
    checks.require(weight.rank == node.operand(0).rank, node, f"the weight has rank {weight.rank}")
    turned = Value(0, weight.name, weight.dtype, first_shape(weight.shape))
    return Node(0, node.op, node.domain, [seen.operand(0), turned, *node.inputs[2:]], node.attributes, node.origins)


def _infer_conv(node: Node) -> Inferred:
    _check_image(node)
    ((dtype, shape),) = _CONV.infer(_with_filters_first(node))
    return [(dtype, last_shape(shape))]


def _expand_conv(builder: Builder, node: Node) -> Sequence[Value]:
    """Build a Conv between layout conversions; the weight is [M, kernel..., C / group]."""
    value, weight = (channels_first(builder, node.operand(position)) for position in (0, 1))
    result = builder.op("Conv", value, weight, *node.inputs[2:], **fields_of(node.attributes))
    return [channels_last(builder, result)]


register(
    name="NhwcConv",
    domain="com.microsoft",
    infer=_infer_conv,
    attributes=ConvAttributes,
    expand=_expand_conv,
    types=(FLOATS,),
)


def _seen_with_sum(node: Node) -> Node:
    """Return a detached copy of ``node`` whose operands 0 and Z (3) have their channels first, for shape rules only."""
    seen, added = channels_first_node(node), node.optional(3)
    if added is None:
        return seen
    turned = Value(0, added.name, added.dtype, first_shape(added.shape))
    return Node(0, node.op, node.domain, [*seen.inputs[:3], turned], node.attributes, node.origins)


def _infer_fused(node: Node) -> Inferred:
    _check_image(node)
    ((dtype, shape),) = infer_fused_conv(_seen_with_sum(node))
    return [(dtype, last_shape(shape))]


def _expand_fused(builder: Builder, node: Node) -> Sequence[Value]:
    """Build a FusedConv between layout conversions.

    The weight is [M, C / group, kernel...]: the layout pass converts activations only.
    """
    added = node.optional(3)
    result = builder.op(
        "FusedConv",
        channels_first(builder, node.operand(0)),
        node.operand(1),
        node.optional(2),
        None if added is None else channels_first(builder, added),
        domain="com.microsoft",
        **fields_of(node.attributes),
    )
    return [channels_last(builder, result)]


register(
    name="NhwcFusedConv",
    domain="com.microsoft",
    infer=_infer_fused,
    attributes=FusedConvAttributes,
    expand=_expand_fused,
    types=(FLOATS,),
)


# -- GroupNorm, SkipGroupNorm ----------------------------------------------------------------------------------------


@record
class GroupNormAttributes:
    """``activation``: 0 for none, 1 for x sigmoid(x)."""

    activation: int
    groups: int
    channels_last: int = 1
    epsilon: float = 1e-5


def _infer_group_norm(node: Node) -> Inferred:
    attributes: GroupNormAttributes = node.attributes
    value = node.operand(0)
    checks.require_choice(node, "activation", (0, 1))
    checks.require(value.rank >= 3, node, f"the input has rank {value.rank}")
    channels = value.shape[-1 if attributes.channels_last else 1]
    divides = attributes.groups > 0 and ix.equal(ix.modulo(channels, attributes.groups), 0)
    checks.require(divides, node, f"{ix.text(channels)} channels do not divide into {attributes.groups} groups")
    for position in (1, 2):
        vector = node.operand(position)
        fits = vector.rank == 1 and ix.equal(vector.shape[0], channels)
        checks.require(fits, node, f"input {position} must have one number for each of {ix.text(channels)} channels")
    return [(value.dtype, value.shape)]


def _normalised(builder: Builder, node: Node, value: Value) -> Value:
    """Normalise groups in f32 and round once."""
    attributes: GroupNormAttributes = node.attributes
    dtype, last = value.dtype, attributes.channels_last
    value = in_type(builder, value, FLOAT32)
    value = builder.op(
        "GroupNormalization",
        channels_first(builder, value) if last else value,
        *(in_type(builder, node.operand(position), FLOAT32) for position in (1, 2)),
        num_groups=attributes.groups,
        epsilon=attributes.epsilon,
    )
    if attributes.activation:
        value = builder.op("Mul", value, builder.op("Sigmoid", value))
    return in_type(builder, channels_last(builder, value) if last else value, dtype)


register(
    name="GroupNorm",
    domain="com.microsoft",
    infer=_infer_group_norm,
    attributes=GroupNormAttributes,
    expand=lambda builder, node: [_normalised(builder, node, node.operand(0))],
    types=(FLOATS,),
)


def _infer_skip(node: Node) -> Inferred:
    value, skip = node.operand(0), node.operand(3)
    checks.require(node.attributes.channels_last == 1, node, "the channels are the last axis")
    flat = skip.rank == 2 and skip.shape == (value.shape[0], value.shape[-1])
    spread = skip.rank == value.rank and checks.broadcast_shapes(node, [value.shape, skip.shape]) == value.shape
    checks.require(flat or spread, node, f"skip of shape {checks.describe_shape(skip.shape)}")
    bias = node.optional(4)
    if bias is not None:
        shape = checks.describe_shape(bias.shape)
        checks.require(bias.shape == value.shape[-1:], node, f"the bias has an element a channel, not {shape}")
    result = _infer_group_norm(node)[0]
    return [result, result]


def _expand_skip(builder: Builder, node: Node) -> Sequence[Value]:
    """Normalise the sum of input, skip (one element for each or for all positions) and bias.

    The second output is the sum itself.
    """
    value, skip, bias = node.operand(0), node.operand(3), node.optional(4)
    if skip.rank == 2:
        skip = builder.op("Unsqueeze", skip, builder.constant(np.arange(1, value.rank - 1, dtype=np.int64)))
    total = builder.op("Add", value, skip)
    if bias is not None:
        total = builder.op("Add", total, bias)
    return [_normalised(builder, node, total), total]


register(
    name="SkipGroupNorm",
    domain="com.microsoft",
    infer=_infer_skip,
    attributes=GroupNormAttributes,
    expand=_expand_skip,
    types=(FLOATS,),
)
