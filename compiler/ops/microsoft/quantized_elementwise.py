"""Contributed operators on quantised tensors: dequantise, compute in f32, quantise; fusion makes one kernel of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..math.reductions import mean, reduced_shape
from ..onnx.quantize import BYTES, dequantize, quantize
from ..registry import Builder, Inferred, register

_FLOAT32 = frozenset({"float32"})
_TRIPLE = (BYTES, _FLOAT32, BYTES)


def _scalar(builder: Builder, node: Node, position: int) -> Value:
    """Return a scale or zero point of a whole tensor (one element of any rank) as a scalar."""
    value = node.operand(position)
    if value.rank == 0:
        return value
    checks.require(ix.product(value.shape) == 1, node, f"input {position} must be one number")
    return builder.op("Squeeze", value)


def _zero_point(builder: Builder, node: Node, position: int) -> Value | None:
    """Return the zero point of a whole tensor as a scalar; None if omitted."""
    return None if node.optional(position) is None else _scalar(builder, node, position)


def quantised_operand(builder: Builder, node: Node, first: int) -> Value:
    """Dequantise inputs ``first`` to ``first + 2``: integers, scale, zero point."""
    scale, zero_point = _scalar(builder, node, first + 1), _zero_point(builder, node, first + 2)
    return dequantize(builder, node.operand(first), scale, zero_point)


def quantised_result(builder: Builder, node: Node, value: Value, first: int) -> Value:
    """Quantise ``value`` with the scale and zero point of inputs ``first`` and ``first + 1``."""
    scale, zero_point = _scalar(builder, node, first), _zero_point(builder, node, first + 1)
    return quantize(builder, value, scale, zero_point, node.operand(0).dtype)


# -- elementwise -----------------------------------------------------------------------------------------------------


def _infer_binary(node: Node) -> Inferred:
    left, right = node.operand(0), node.operand(3)
    checks.require_same_type(node, [left, right])
    return [(left.dtype, checks.broadcast_shapes(node, [left.shape, right.shape]))]


def _binary(op: str) -> Callable[[Builder, Node], Sequence[Value]]:
    def expand(builder: Builder, node: Node) -> Sequence[Value]:
        value = builder.op(op, quantised_operand(builder, node, 0), quantised_operand(builder, node, 3))
        return [quantised_result(builder, node, value, 6)]

    return expand


for _op in ("Add", "Mul"):
    register(
        name=f"QLinear{_op}",
        domain="com.microsoft",
        infer=_infer_binary,
        expand=_binary(_op),
        types=(*_TRIPLE, *_TRIPLE, _FLOAT32, BYTES),
    )


@record
class QLinearLeakyReluAttributes:
    alpha: float = 0.01


def _infer_unary(node: Node) -> Inferred:
    return [(node.operand(0).dtype, node.operand(0).shape)]


def _expand_sigmoid(builder: Builder, node: Node) -> Sequence[Value]:
    return [quantised_result(builder, node, builder.op("Sigmoid", quantised_operand(builder, node, 0)), 3)]


def _expand_leaky_relu(builder: Builder, node: Node) -> Sequence[Value]:
    value = builder.op("LeakyRelu", quantised_operand(builder, node, 0), alpha=node.attributes.alpha)
    return [quantised_result(builder, node, value, 3)]


register(
    name="QLinearSigmoid",
    domain="com.microsoft",
    infer=_infer_unary,
    expand=_expand_sigmoid,
    types=(*_TRIPLE, _FLOAT32, BYTES),
)
register(
    name="QLinearLeakyRelu",
    domain="com.microsoft",
    infer=_infer_unary,
    attributes=QLinearLeakyReluAttributes,
    expand=_expand_leaky_relu,
    types=(*_TRIPLE, _FLOAT32, BYTES),
)


# -- pools -----------------------------------------------------------------------------------------------------------


@record
class GlobalPoolAttributes:
    channels_last: int = 0


def _spatial_axes(node: Node) -> tuple[int, ...]:
    rank = node.operand(0).rank
    checks.require(rank >= 3, node, f"{node.op} needs spatial axes; the input has rank {rank}")
    return tuple(range(1, rank - 1)) if node.attributes.channels_last else tuple(range(2, rank))


def _infer_global_pool(node: Node) -> Inferred:
    value, axes = node.operand(0), _spatial_axes(node)
    return [(value.dtype, tuple(1 if axis in axes else size for axis, size in enumerate(value.shape)))]


def _expand_global_pool(builder: Builder, node: Node) -> Sequence[Value]:
    return [quantised_result(builder, node, mean(builder, quantised_operand(builder, node, 0), _spatial_axes(node)), 3)]


register(
    name="QLinearGlobalAveragePool",
    domain="com.microsoft",
    infer=_infer_global_pool,
    attributes=GlobalPoolAttributes,
    expand=_expand_global_pool,
    types=(*_TRIPLE, _FLOAT32, BYTES),
)


@record
class QLinearReduceMeanAttributes:
    axes: tuple[int, ...]
    keepdims: int = 1


def _mean_axes(node: Node) -> tuple[int, ...]:
    """Return the axes of the mean; an empty list means all axes."""
    rank = node.operand(0).rank
    return checks.normalise_axes(node, node.attributes.axes, rank) or tuple(range(rank))


def _infer_mean(node: Node) -> Inferred:
    value = node.operand(0)
    return [(value.dtype, reduced_shape(value.shape, _mean_axes(node), bool(node.attributes.keepdims)))]


def _expand_mean(builder: Builder, node: Node) -> Sequence[Value]:
    value = mean(builder, quantised_operand(builder, node, 0), _mean_axes(node), bool(node.attributes.keepdims))
    return [quantised_result(builder, node, value, 3)]


register(
    name="QLinearReduceMean",
    domain="com.microsoft",
    infer=_infer_mean,
    attributes=QLinearReduceMeanAttributes,
    expand=_expand_mean,
    types=(*_TRIPLE, _FLOAT32, BYTES),
)


# -- QLinearConcat ---------------------------------------------------------------------------------------------------


@record
class QLinearConcatAttributes:
    axis: int


def _parts(node: Node) -> range:
    """Return the positions of the joined tensors: scale and zero point of the result come first, then triples."""
    count = len(node.inputs)
    checks.require(count >= 5 and (count - 2) % 3 == 0, node, f"{count} inputs are not two and triples")
    return range(2, count, 3)


def _infer_concat(node: Node) -> Inferred:
    first = node.operand(2)
    axis = checks.normalise_axis(node, node.attributes.axis, first.rank)
    size: ix.Dim = 0
    for position in _parts(node):
        value = node.operand(position)
        others = [each for at, each in enumerate(value.shape) if at != axis]
        checks.require(
            others == [each for at, each in enumerate(first.shape) if at != axis], node, "the parts differ in shape"
        )
        size = ix.add(size, value.shape[axis])
    return [(node.operand(1).dtype, (*first.shape[:axis], size, *first.shape[axis + 1 :]))]


def _expand_concat(builder: Builder, node: Node) -> Sequence[Value]:
    parts = [quantised_operand(builder, node, position) for position in _parts(node)]
    joined = builder.op("Concat", *parts, axis=node.attributes.axis)
    scale, zero_point = _scalar(builder, node, 0), _scalar(builder, node, 1)
    return [quantize(builder, joined, scale, zero_point, zero_point.dtype)]


register(
    name="QLinearConcat",
    domain="com.microsoft",
    infer=_infer_concat,
    attributes=QLinearConcatAttributes,
    expand=_expand_concat,
)
