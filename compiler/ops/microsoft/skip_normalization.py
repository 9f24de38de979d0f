"""Contributed operators of onnxruntime (domain com.microsoft) that its optimiser and exporters leave in models."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan import dtypes
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from .. import checks
from ..checks import FLOATS, same_as_input
from ..math.activation_functions import gelu, gelu_tanh, number, sigmoid
from ..math.nodes import in_type
from ..math.reductions import mean, reduced_shape
from ..onnx.elementwise import define
from ..onnx.normalization import deviations, inverse_deviation, scaled
from ..registry import Builder, Infer, Inferred, register


@record
class QuickGeluAttributes:
    alpha: float = 1.702


define("Gelu", lambda node, args: gelu(args[0]), infer=same_as_input(), types=(FLOATS,), domain="com.microsoft")
define(
    "QuickGelu",
    lambda node, args: args[0] * sigmoid(number(node.attributes.alpha) * args[0]),
    infer=same_as_input(),
    types=(FLOATS,),
    attributes=QuickGeluAttributes,
    domain="com.microsoft",
)


def _infer_bias_gelu(node: Node) -> Inferred:
    value, bias = node.operand(0), node.optional(1)
    if bias is not None:
        shape = checks.broadcast_shapes(node, [value.shape, bias.shape])
        checks.require(shape == value.shape, node, "the bias does not broadcast to the input")
    return [(value.dtype, value.shape)]


def _biased(args: Sequence[Expr]) -> Expr:
    return args[0] + args[1] if len(args) > 1 else args[0]


for _name, _function in (("BiasGelu", gelu), ("FastGelu", gelu_tanh)):
    define(
        _name,
        (lambda function: lambda node, args: function(_biased(args)))(_function),
        infer=_infer_bias_gelu,
        types=(FLOATS,),
        domain="com.microsoft",
    )


@record
class SkipNormalizationAttributes:
    """Attributes of SkipLayerNormalization and SkipSimplifiedLayerNormalization."""

    epsilon: float = 1e-12


def _check_last_axis(node: Node, positions: Sequence[int]) -> None:
    size = node.operand(0).shape[-1]
    for position in positions:
        vector = node.optional(position)
        if vector is not None:
            fits = vector.rank == 1 and ix.equal(vector.shape[0], size)
            checks.require(fits, node, f"input {position} must have one number for each of {ix.text(size)} elements")


def _infer_skip(parameters: Sequence[int]) -> Infer:
    def infer(node: Node) -> Inferred:
        value, skip = node.operand(0), node.operand(1)
        checks.require(value.rank >= 2, node, f"the input has rank {value.rank}")
        shape = checks.broadcast_shapes(node, [value.shape, skip.shape])
        checks.require(shape == value.shape, node, "the skip connection does not broadcast to the input")
        _check_last_axis(node, parameters)
        statistics = (dtypes.FLOAT32, reduced_shape(value.shape, (value.rank - 1,), True))
        return [(value.dtype, value.shape), statistics, statistics, (value.dtype, value.shape)]

    return infer


def _sum_of_branches(builder: Builder, node: Node, bias: int) -> Value:
    total = builder.op("Add", node.operand(0), node.operand(1))
    vector = node.optional(bias)
    return total if vector is None else builder.op("Add", total, vector)


def _expand_skip_layer(builder: Builder, node: Node) -> Sequence[Value]:
    """Build the LayerNormalization of input + skip + bias; the sum is the fourth output."""
    total = _sum_of_branches(builder, node, 4)
    average, difference, variance = deviations(builder, in_type(builder, total, dtypes.FLOAT32), (total.rank - 1,))
    inverse = inverse_deviation(builder, variance, node.attributes.epsilon)
    normal = in_type(builder, builder.op("Mul", difference, inverse), total.dtype)
    return [scaled(builder, normal, node.operand(2), node.optional(3)), average, inverse, total]


def _expand_skip_rms(builder: Builder, node: Node) -> Sequence[Value]:
    """Build the RMSNormalization of input + skip + bias; the sum is the fourth output."""
    total = _sum_of_branches(builder, node, 3)
    stashed = in_type(builder, total, dtypes.FLOAT32)
    axes = (total.rank - 1,)
    inverse = inverse_deviation(
        builder, mean(builder, builder.op("Mul", stashed, stashed), axes), node.attributes.epsilon
    )
    normal = in_type(builder, builder.op("Mul", stashed, inverse), total.dtype)
    average = mean(builder, stashed, axes)
    return [builder.op("Mul", normal, node.operand(2)), average, inverse, total]


register(
    name="SkipLayerNormalization",
    domain="com.microsoft",
    infer=_infer_skip((2, 3, 4)),
    attributes=SkipNormalizationAttributes,
    expand=_expand_skip_layer,
    types=(FLOATS,),
)
register(
    name="SkipSimplifiedLayerNormalization",
    domain="com.microsoft",
    infer=_infer_skip((2, 3)),
    attributes=SkipNormalizationAttributes,
    expand=_expand_skip_rms,
    types=(FLOATS,),
)
