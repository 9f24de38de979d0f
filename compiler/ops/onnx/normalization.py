"""Normalisations: two-pass statistics (the mean, then the mean of squared differences) and elementwise operations.

Statistics of half-precision inputs are computed in f32 where the operator's ``stash_type`` says so (its default).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan import dtypes
from ....runtime.plan.dtypes import FLOAT32, DType
from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS, same_as_input
from ..math.nodes import in_type
from ..math.reductions import mean, reduced_shape
from ..registry import Builder, Inferred, RawNode, register

# -- parts -----------------------------------------------------------------------------------------------------------


def along_axis_1(builder: Builder, vector: Value, rank: int) -> Value:
    """Unsqueeze a vector over channels to broadcast against [N, C, ...] of ``rank``."""
    if rank <= 2:
        return vector
    return builder.op("Unsqueeze", vector, builder.constant(np.arange(1, rank - 1, dtype=np.int64)))


def deviations(builder: Builder, value: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """Build the mean, the differences from it, and the variance (of the whole population) over ``axes``."""
    average = mean(builder, value, axes)
    difference = builder.op("Sub", value, average)
    variance = mean(builder, builder.op("Mul", difference, difference), axes)
    return average, difference, variance


def inverse_deviation(builder: Builder, variance: Value, epsilon: float) -> Value:
    """Build 1 / sqrt(variance + epsilon)."""
    return builder.op("Reciprocal", builder.op("Sqrt", builder.op("Add", variance, builder.scalar(epsilon, variance))))


def standardised(builder: Builder, value: Value, axes: Sequence[int], epsilon: float) -> Value:
    _, difference, variance = deviations(builder, value, axes)
    return builder.op("Mul", difference, inverse_deviation(builder, variance, epsilon))


def scaled(builder: Builder, value: Value, scale: Value | None, bias: Value | None) -> Value:
    if scale is not None:
        value = builder.op("Mul", value, scale)
    return value if bias is None else builder.op("Add", value, bias)


def _stash(node: Node) -> DType:
    """Return the type in which statistics are computed."""
    return dtypes.from_onnx(node.attributes.stash_type)


def _check_vector(node: Node, position: int, size: Dim) -> None:
    vector = node.operand(position)
    fits = vector.rank == 1 and ix.equal(vector.shape[0], size)
    checks.require(fits, node, f"input {position} must have one number for each of {ix.text(size)} channels")


def channel_axis(node: Node) -> Dim:
    """Return the number of channels (axis 1). Raise :class:`ShapeError` for a rank below 2."""
    value = node.operand(0)
    checks.require(value.rank >= 2, node, f"{node.op} needs a channel axis; the input has rank {value.rank}")
    return value.shape[1]


# -- BatchNormalization ----------------------------------------------------------------------------------------------


@record
class BatchNormalizationAttributes:
    epsilon: float = 1e-5
    momentum: float = 0.9
    training_mode: int = 0
    spatial: int = 1  #: of versions before 9: 0 has a number for each element of an example, 1 one for each channel


def _inference_form(raw: RawNode) -> None:
    """Convert versions before 14 in inference mode. Raise :class:`UnsupportedError` for training.

    Before version 14 further outputs requested training; before 7 ``is_test`` requested inference, and
    ``consumed_inputs`` listed inputs that could be overwritten.
    """
    is_training = not raw.attributes.pop("is_test", 1)
    raw.attributes.pop("consumed_inputs", None)
    if is_training or any(raw.outputs[1:]):
        raise UnsupportedError(
            "BatchNormalization in the training mode of opsets before 14 is not supported",
            hint="supported are inference, and training_mode=1 of opset 14",
        )


def _infer_batch(node: Node) -> Inferred:
    value = node.operand(0)
    checks.require_choice(node, "training_mode", (0, 1))
    checks.require_choice(node, "spatial", (0, 1))
    if not node.attributes.spatial:
        for position in range(1, 5):
            shape = node.operand(position).shape
            fits = len(shape) == value.rank - 1 and all(map(ix.equal, shape, value.shape[1:]))
            checks.require(fits, node, f"input {position} must have one number for each element of an example")
        return [(value.dtype, value.shape)]
    channels: Dim = value.shape[1] if value.rank > 1 else 1
    for position in range(1, 5):
        _check_vector(node, position, channels)
    result = (value.dtype, value.shape)
    if not node.attributes.training_mode:
        return [result]
    return [result, *((node.operand(position).dtype, (channels,)) for position in (3, 4))]


def _expand_batch(builder: Builder, node: Node) -> Sequence[Value]:
    """Build x * s + (bias - mean * s) with s = scale / sqrt(variance + epsilon): s and the addend are constants."""
    if node.attributes.training_mode:
        return _train_batch(builder, node)
    value = node.operand(0)
    scale, bias, average, variance = (node.operand(position) for position in range(1, 5))
    inverse = inverse_deviation(builder, in_type(builder, variance, FLOAT32), node.attributes.epsilon)
    factor = builder.op("Mul", in_type(builder, scale, FLOAT32), inverse)
    shift = builder.op("Mul", in_type(builder, average, FLOAT32), factor)
    addend = builder.op("Sub", in_type(builder, bias, FLOAT32), shift)
    if node.attributes.spatial:
        factor, addend = (along_axis_1(builder, each, value.rank) for each in (factor, addend))
    return [in_type(builder, scaled(builder, in_type(builder, value, FLOAT32), factor, addend), value.dtype)]


def _train_batch(builder: Builder, node: Node) -> Sequence[Value]:
    """Normalise with the statistics of this batch, and update the running ones. Computed in f32."""
    attributes: BatchNormalizationAttributes = node.attributes
    value = in_type(builder, node.operand(0), FLOAT32)
    scale, bias = (in_type(builder, node.operand(position), FLOAT32) for position in (1, 2))
    axes = [axis for axis in range(value.rank) if axis != 1]
    average, difference, variance = deviations(builder, value, axes)
    standard = builder.op("Mul", difference, inverse_deviation(builder, variance, attributes.epsilon))
    result = scaled(
        builder, standard, along_axis_1(builder, scale, value.rank), along_axis_1(builder, bias, value.rank)
    )
    results = [in_type(builder, result, node.operand(0).dtype)]
    for position, statistic in ((3, average), (4, variance)):
        running = node.operand(position)
        flat = builder.op("Reshape", statistic, builder.op("Shape", running))
        old = builder.op("Mul", in_type(builder, running, FLOAT32), builder.scalar(attributes.momentum, flat))
        new = builder.op("Mul", flat, builder.scalar(1 - attributes.momentum, flat))
        results.append(in_type(builder, builder.op("Add", old, new), running.dtype))
    return results


register(
    name="BatchNormalization",
    infer=_infer_batch,
    attributes=BatchNormalizationAttributes,
    adapters=((13, _inference_form),),
    expand=_expand_batch,
    types=(FLOATS,),
)


# -- LayerNormalization, RMSNormalization ----------------------------------------------------------------------------


@record
class LayerNormalizationAttributes:
    axis: int = -1
    epsilon: float = 1e-5
    stash_type: int = 1


def _normalised_axes(node: Node) -> tuple[int, ...]:
    rank = node.operand(0).rank
    return tuple(range(checks.normalise_axis(node, node.attributes.axis, rank), rank))


def _check_broadcast(node: Node, position: int) -> None:
    operand = node.optional(position)
    if operand is not None:
        shape = checks.broadcast_shapes(node, [node.operand(0).shape, operand.shape])
        checks.require(shape == node.operand(0).shape, node, f"input {position} does not broadcast to the input")


def _infer_layer(node: Node) -> Inferred:
    value = node.operand(0)
    _check_broadcast(node, 1)
    _check_broadcast(node, 2)
    statistics = (_stash(node), reduced_shape(value.shape, _normalised_axes(node), True))
    return [(value.dtype, value.shape), statistics, statistics]


def _expand_layer(builder: Builder, node: Node) -> Sequence[Value]:
    value = node.operand(0)
    stashed = in_type(builder, value, _stash(node))
    average, difference, variance = deviations(builder, stashed, _normalised_axes(node))
    inverse = inverse_deviation(builder, variance, node.attributes.epsilon)
    normal = in_type(builder, builder.op("Mul", difference, inverse), value.dtype)
    return [scaled(builder, normal, node.operand(1), node.optional(2)), average, inverse]


register(
    name="LayerNormalization",
    infer=_infer_layer,
    attributes=LayerNormalizationAttributes,
    expand=_expand_layer,
    types=(FLOATS,),
)


def _infer_rms(node: Node) -> Inferred:
    value = node.operand(0)
    _check_broadcast(node, 1)
    return [(node.operand(1).dtype, value.shape)]


def _infer_simplified(node: Node) -> Inferred:
    statistics = (_stash(node), reduced_shape(node.operand(0).shape, _normalised_axes(node), True))
    return [*_infer_rms(node), statistics]


def _expand_rms(builder: Builder, node: Node) -> Sequence[Value]:
    """Build the result, and the inverse root of the mean square where the node has that output."""
    value, scale = node.operand(0), node.operand(1)
    stashed = in_type(builder, value, _stash(node))
    square = mean(builder, builder.op("Mul", stashed, stashed), _normalised_axes(node))
    inverse = inverse_deviation(builder, square, node.attributes.epsilon)
    normal = in_type(builder, builder.op("Mul", stashed, inverse), scale.dtype)
    return [builder.op("Mul", normal, scale), inverse][: len(node.outputs)]


register(  # of onnxruntime, in the standard's domain: what became RMSNormalization
    name="SimplifiedLayerNormalization",
    infer=_infer_simplified,
    attributes=LayerNormalizationAttributes,
    expand=_expand_rms,
    types=(FLOATS,),
)
register(
    name="RMSNormalization",
    infer=_infer_rms,
    attributes=LayerNormalizationAttributes,
    expand=_expand_rms,
    types=(FLOATS,),
)


# -- InstanceNormalization, GroupNormalization -----------------------------------------------------------------------


@record
class InstanceNormalizationAttributes:
    epsilon: float = 1e-5


def _infer_instance(node: Node) -> Inferred:
    channels = channel_axis(node)
    checks.require(node.operand(0).rank >= 3, node, "instances have spatial axes")
    _check_vector(node, 1, channels)
    _check_vector(node, 2, channels)
    return same_as_input()(node)


def _expand_instance(builder: Builder, node: Node) -> Sequence[Value]:
    value = node.operand(0)
    stashed = in_type(builder, value, FLOAT32)
    normal = standardised(builder, stashed, range(2, value.rank), node.attributes.epsilon)
    scale, bias = (along_axis_1(builder, node.operand(position), value.rank) for position in (1, 2))
    return [scaled(builder, in_type(builder, normal, value.dtype), scale, bias)]


register(
    name="InstanceNormalization",
    infer=_infer_instance,
    attributes=InstanceNormalizationAttributes,
    expand=_expand_instance,
    types=(FLOATS,),
)


@record
class GroupNormalizationAttributes:
    """``per_group``: scale and bias have one number for each group (version 18), not for each channel."""

    num_groups: int = 0
    epsilon: float = 1e-5
    stash_type: int = 1
    per_group: int = 0


def _scale_of_groups(raw: RawNode) -> None:
    raw.attributes["per_group"] = 1


def _infer_group(node: Node) -> Inferred:
    attributes: GroupNormalizationAttributes = node.attributes
    channels = channel_axis(node)
    divides = attributes.num_groups > 0 and ix.equal(ix.modulo(channels, attributes.num_groups), 0)
    checks.require(divides, node, f"{ix.text(channels)} channels do not divide into {attributes.num_groups} groups")
    for position in (1, 2):
        _check_vector(node, position, attributes.num_groups if attributes.per_group else channels)
    return same_as_input()(node)


def _expand_group(builder: Builder, node: Node) -> Sequence[Value]:
    """Normalise with statistics over [N, G, C / G * spatial]."""
    attributes: GroupNormalizationAttributes = node.attributes
    value = node.operand(0)
    grouped_shape = builder.constant(np.array([0, attributes.num_groups, -1], np.int64))
    grouped = builder.op("Reshape", in_type(builder, value, _stash(node)), grouped_shape)
    normal = in_type(builder, standardised(builder, grouped, (2,), attributes.epsilon), value.dtype)
    scale, bias = node.operand(1), node.operand(2)
    if attributes.per_group:
        normal = scaled(builder, normal, along_axis_1(builder, scale, 3), along_axis_1(builder, bias, 3))
        scale_or_none, bias_or_none = None, None
    else:
        scale_or_none, bias_or_none = (along_axis_1(builder, vector, value.rank) for vector in (scale, bias))
    restored = builder.op("Reshape", normal, builder.op("Shape", value))
    return [scaled(builder, restored, scale_or_none, bias_or_none)]


register(
    name="GroupNormalization",
    infer=_infer_group,
    attributes=GroupNormalizationAttributes,
    adapters=((18, _scale_of_groups),),
    expand=_expand_group,
    types=(FLOATS,),
)
