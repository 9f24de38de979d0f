"""Products with an activation, as onnxruntime's optimiser leaves them: FusedConv, FusedGemm, FusedMatMul."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..checks import FLOATS, product_shape
from ..onnx.convolution import ConvAttributes, add_bias, convolution, infer_convolution
from ..onnx.matmul import GemmAttributes, infer_gemm
from ..registry import Builder, Inferred, register

#: Activation -> names of its parameters, in the order of ``activation_params``
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"),
    "HardSwish": (),
    "Elu": ("alpha",),
    "Softplus": (),
    "Softsign": (),
    "ThresholdedRelu": ("alpha",),
    "Celu": ("alpha",),
    "ScaledTanh": ("alpha", "beta"),
    "ParametricSoftplus": ("alpha", "beta"),
}

#: Activation that is no operator of the standard: ``alpha f(beta x)`` -> f
_SCALED = {"ScaledTanh": "Tanh", "ParametricSoftplus": "Softplus"}


def _check_activation(node: Node, name: str) -> None:
    if name and name not in _PARAMETERS:
        raise UnsupportedError.of_attribute(node.op, "activation", name, _PARAMETERS, origin=node.origin)


def _activated(builder: Builder, value: Value, name: str, parameters: Sequence[float]) -> Value:
    if not name:
        return value
    if name == "Clip":
        return builder.op("Clip", value, *(builder.scalar(bound, value) for bound in parameters))
    if name in _SCALED:
        alpha, beta = (builder.scalar(number, value) for number in parameters[:2])
        return builder.op("Mul", builder.op(_SCALED[name], builder.op("Mul", value, beta)), alpha)
    attributes: dict[str, Any] = dict(zip(_PARAMETERS[name], parameters))
    return builder.op(name, value, **attributes)


# -- FusedConv -------------------------------------------------------------------------------------------------------


@record
class FusedConvAttributes(ConvAttributes):
    activation: str = ""
    activation_params: tuple[float, ...] = ()


def infer_fused_conv(node: Node) -> Inferred:
    value, weight, bias = node.operand(0), node.operand(1), node.optional(2)
    _check_activation(node, node.attributes.activation)
    checks.require_same_type(node, [value, weight])
    if bias is not None:
        fits = bias.rank == 1 and ix.equal(bias.shape[0], weight.shape[0])
        checks.require(fits, node, "the bias has one number a channel")
    shape = infer_convolution(node, value, weight)
    added = node.optional(3)
    checks.require(added is None or added.shape == shape, node, "Z differs in shape from the result")
    return [(value.dtype, shape)]


def _expand_fused_conv(builder: Builder, node: Node) -> Sequence[Value]:
    """Convolve, add Z where it is present, and apply the activation to the sum."""
    attributes: FusedConvAttributes = node.attributes
    result = convolution(builder, node, node.operand(0), node.operand(1))
    result, added = add_bias(builder, result, node.optional(2)), node.optional(3)
    if added is not None:
        result = builder.op("Add", result, added)
    return [_activated(builder, result, attributes.activation, attributes.activation_params)]


register(
    name="FusedConv",
    domain="com.microsoft",
    infer=infer_fused_conv,
    attributes=FusedConvAttributes,
    expand=_expand_fused_conv,
    types=(FLOATS,),
)


# -- FusedMatMul, FusedGemm ------------------------------------------------------------------------------------------


@record
class FusedMatMulAttributes:
    alpha: float = 1.0
    transA: int = 0
    transB: int = 0
    transBatchA: int = 0
    transBatchB: int = 0


def _turned(node: Node, rank: int, matrix: int, batch: int) -> tuple[int, ...]:
    """Return the permutation of an operand.

    ``batch`` moves its first axis before its last one, then ``matrix`` swaps the last two. Raise :class:`ShapeError`
    for ``batch`` without batch axes.
    """
    axes = list(range(rank))
    if batch:
        checks.require(rank >= 3, node, "transBatch needs batch axes")
        axes = [*axes[1:-1], axes[0], axes[-1]]
    if matrix and rank > 1:
        axes[-2], axes[-1] = axes[-1], axes[-2]
    return tuple(axes)


def _permutations(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    attributes: FusedMatMulAttributes = node.attributes
    return (
        _turned(node, node.operand(0).rank, attributes.transA, attributes.transBatchA),
        _turned(node, node.operand(1).rank, attributes.transB, attributes.transBatchB),
    )


def _infer_fused_matmul(node: Node) -> Inferred:
    left, right = node.operand(0), node.operand(1)
    checks.require_same_type(node, [left, right])
    shapes = [tuple(value.shape[axis] for axis in perm) for value, perm in zip((left, right), _permutations(node))]
    return [(left.dtype, product_shape(node, *shapes))]


def _expand_fused_matmul(builder: Builder, node: Node) -> Sequence[Value]:
    operands = [
        builder.op("Transpose", node.operand(position), perm=perm) for position, perm in enumerate(_permutations(node))
    ]
    result = builder.op("MatMul", *operands)
    alpha = node.attributes.alpha
    return [result if alpha == 1.0 else builder.op("Mul", result, builder.scalar(alpha, result))]


register(
    name="FusedMatMul",
    domain="com.microsoft",
    infer=_infer_fused_matmul,
    attributes=FusedMatMulAttributes,
    expand=_expand_fused_matmul,
    types=(FLOATS,),
)


@record
class FusedGemmAttributes(GemmAttributes):
    activation: str = ""
    activation_alpha: float = 0.0
    activation_beta: float = 0.0
    activation_gamma: float = 0.0


def _infer_fused_gemm(node: Node) -> Inferred:
    _check_activation(node, node.attributes.activation)
    return infer_gemm(node)


def _expand_fused_gemm(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: FusedGemmAttributes = node.attributes
    result = builder.op(
        "Gemm",
        *node.inputs,
        alpha=attributes.alpha,
        beta=attributes.beta,
        transA=attributes.transA,
        transB=attributes.transB,
    )
    parameters = (attributes.activation_alpha, attributes.activation_beta, attributes.activation_gamma)
    return [_activated(builder, result, attributes.activation, parameters)]


register(
    name="FusedGemm",
    domain="com.microsoft",
    infer=_infer_fused_gemm,
    attributes=FusedGemmAttributes,
    expand=_expand_fused_gemm,
    types=(FLOATS,),
)
