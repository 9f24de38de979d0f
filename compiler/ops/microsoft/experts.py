"""MoE (domain com.microsoft): a mixture of experts, of which each token goes through the ``k`` that its router prefers.

The weights of the chosen experts are gathered by index inside the products, ``fc1[expert[t, j], n, h]``, so a token
reads ``k`` experts however many there are.  Experts with equal router values are chosen in the order of their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.nodes import view
from ..onnx.topk import top_indices
from ..registry import Builder, Inferred, register

#: ``weight(projection, chosen)`` builds the weights [tokens, k, rows, columns] of the chosen experts
Weight = Callable[[int, Value], Value]

_ACTIVATIONS = ("relu", "relu2", "gelu", "silu", "identity", "swiglu", "geglu")
#: Activations of two halves, gate and linear
_GATED = ("swiglu", "geglu")


@record
class ExpertAttributes:
    """``swiglu_fusion`` is the order of gate and linear rows of fc1: 0 none (the linear half is fc3), 1 in turns, 2 one
    half after the other.
    """

    activation_alpha: float = 1.0
    activation_beta: float = 0.0
    activation_type: str = "relu"
    k: int = 1
    normalize_routing_weights: int = 0
    swiglu_fusion: int = 0
    swiglu_limit: float | None = None
    swiglu_limit_after_activation: int = 0
    use_sparse_mixer: int = 0


@record
class Experts:
    """Sizes of a mixture: those of one expert are the rows and columns of its matrices."""

    tokens: Dim
    count: int
    hidden: int
    inner: int  #: numbers between the two layers, after the activation

    def matrices(self, node: Node) -> list[tuple[int, int]]:
        """Return rows and columns of fc1, fc2 and, where there is one, fc3."""
        first = self.inner * (2 if node.attributes.swiglu_fusion else 1)
        sizes = [(first, self.hidden), (self.hidden, self.inner)]
        return [*sizes, (self.inner, self.hidden)] if has_separate_gate(node) else sizes


def has_separate_gate(node: Node) -> bool:
    """Return whether the linear half of a gated activation has a matrix of its own, fc3."""
    return node.attributes.activation_type in _GATED and not node.attributes.swiglu_fusion


def experts_of(node: Node, weights: Sequence[int]) -> Experts:
    """Check attributes and router, and return the sizes; ``weights`` are the inputs fc1, fc2 and fc3."""
    attributes: ExpertAttributes = node.attributes
    checks.require_choice(node, "activation_type", _ACTIVATIONS)
    checks.require_choice(node, "use_sparse_mixer", (0,))
    gated = attributes.activation_type in _GATED
    halves = (1, 2) if attributes.activation_type == "geglu" else (0, 1, 2) if gated else (0,)
    checks.require_choice(node, "swiglu_fusion", halves)
    if node.optional(weights[2]) is not None and not has_separate_gate(node):
        raise UnsupportedError(
            f"{node.op} with fc3 (input {weights[2]}) and activation_type '{attributes.activation_type}'",
            origin=node.origin,
            hint="a gate of its own is defined for activation_type swiglu with swiglu_fusion = 0; its default "
            "activation_alpha and activation_beta are those of silu(fc1) * fc3",
        )
    value, router = node.operand(0), node.operand(1)
    checks.require(value.rank in (2, 3), node, f"the input has rank {value.rank}, not 2 or 3")
    hidden = checks.concrete(node, value.shape[-1], "the last dimension of the input")
    tokens = ix.product(list(value.shape[:-1]))
    first = node.operand(weights[0])
    checks.require(first.rank == 3, node, f"fc1 has rank {first.rank}, not 3")
    count, rows = (checks.concrete(node, size, "the sizes of fc1") for size in first.shape[:2])
    fits = router.rank == 2 and ix.equal(router.shape[0], tokens) and router.shape[1] == count
    shape = checks.describe_shape(router.shape)
    checks.require(fits, node, f"router_probs of shape {shape} for {ix.text(tokens)} tokens and {count} experts")
    checks.require(1 <= attributes.k <= count, node, f"k is {attributes.k} of {count} experts")
    fused = bool(attributes.swiglu_fusion)
    checks.require(not fused or rows % 2 == 0, node, f"fc1 has {rows} rows, which are not two halves")
    return Experts(tokens, count, hidden, rows // 2 if fused else rows)


def require_shape(node: Node, position: int, what: str, shape: tuple[int, ...]) -> None:
    """Raise :class:`ShapeError` if input ``position`` is present and has another shape."""
    value = node.optional(position)
    if value is not None:
        reason = f"{what} (input {position}) of shape {checks.describe_shape(value.shape)}, not {shape}"
        checks.require(value.shape == shape, node, reason)


# -- the network -----------------------------------------------------------------------------------------------------


def mixture(
    builder: Builder, node: Node, experts: Experts, weight: Weight, biases: Sequence[int], mixing: Value | None = None
) -> Value:
    """Build the weighted sum of the outputs of the chosen experts; ``biases`` are inputs, ``mixing`` weighs experts."""
    attributes: ExpertAttributes = node.attributes
    value, router = node.operand(0), node.operand(1)
    chosen = top_indices(builder, router, 1, attributes.k, True)

    def product(operand: Value, projection: int) -> Value:
        matrices = builder.op("Transpose", weight(projection, chosen), perm=(0, 1, 3, 2))
        result, bias = builder.op("MatMul", operand, matrices), node.optional(biases[projection])
        if bias is None:
            return result
        rows = builder.op("Gather", bias, chosen, axis=0)
        return builder.op("Add", result, view(builder, rows, *result.shape))

    tokens = view(builder, value, experts.tokens, 1, 1, experts.hidden)
    inner = product(tokens, 0)
    if has_separate_gate(node):
        inner = _gated(builder, attributes, inner, product(tokens, 2))
    elif attributes.swiglu_fusion:
        inner = _gated(builder, attributes, *_halves(builder, inner, attributes.swiglu_fusion == 1))
    else:
        inner = _activated(builder, attributes.activation_type, inner)
    weights = _routing_weights(builder, attributes, router, chosen, mixing)
    weights = view(builder, weights, experts.tokens, attributes.k, 1, 1)
    outputs = builder.op("Mul", product(inner, 1), weights)
    axes = builder.constant(np.array([1], np.int64))
    return view(builder, builder.op("ReduceSum", outputs, axes, keepdims=0), *value.shape)


def _routing_weights(
    builder: Builder, attributes: ExpertAttributes, router: Value, chosen: Value, mixing: Value | None
) -> Value:
    """Build the weights [tokens, k]: ``mixing`` at the chosen experts, or a softmax over all or over the chosen."""
    if mixing is None and attributes.normalize_routing_weights:
        return builder.op("Softmax", builder.op("GatherElements", router, chosen, axis=1), axis=1)
    source = builder.op("Softmax", router, axis=1) if mixing is None else mixing
    weights = builder.op("GatherElements", source, chosen, axis=1)
    if not attributes.normalize_routing_weights:
        return weights
    axes = builder.constant(np.array([1], np.int64))
    return builder.op("Div", weights, builder.op("ReduceSum", weights, axes, keepdims=1))


def _halves(builder: Builder, value: Value, in_turns: bool) -> list[Value]:
    """Slice the gate and the linear half of the last axis."""
    *outer, size = value.shape
    half = ix.number(size) // 2
    step, second = (2, 1) if in_turns else (1, half)
    return [
        builder.op(
            "StridedSlice",
            value,
            domain="loom",
            starts=(*(0 for _ in outer), start),
            steps=(*(1 for _ in outer), step),
            sizes=(*outer, half),
        )
        for start in (0, second)
    ]


def _activated(builder: Builder, name: str, value: Value) -> Value:
    if name == "gelu":
        return builder.op("Gelu", value, approximate="tanh")
    if name == "silu":
        return builder.op("Mul", value, builder.op("Sigmoid", value))
    if name == "identity":
        return value
    positive = builder.op("Relu", value)
    return builder.op("Mul", positive, positive) if name == "relu2" else positive


def _gated(builder: Builder, attributes: ExpertAttributes, gate: Value, linear: Value) -> Value:
    """Build ``G sigmoid(alpha G) (L + beta)``, G and L clamped to the limit, or ``gelu(gate) linear``."""
    if attributes.activation_type == "geglu":
        return builder.op("Mul", _activated(builder, "gelu", gate), linear)
    limit = math.inf if attributes.swiglu_limit is None else attributes.swiglu_limit
    late = bool(attributes.swiglu_limit_after_activation)
    if not late:
        gate = _limited(builder, gate, None, limit)
    scaled = gate
    if attributes.activation_alpha != 1.0:
        scaled = builder.op("Mul", gate, builder.scalar(attributes.activation_alpha, gate))
    gate = builder.op("Mul", gate, builder.op("Sigmoid", scaled))
    if late:
        gate = _limited(builder, gate, None, limit)
    linear = _limited(builder, linear, -limit, limit)
    if attributes.activation_beta != 0.0:
        linear = builder.op("Add", linear, builder.scalar(attributes.activation_beta, linear))
    return builder.op("Mul", gate, linear)


def _limited(builder: Builder, value: Value, low: float | None, high: float) -> Value:
    if math.isinf(high):
        return value
    bounds = [None if bound is None else builder.scalar(bound, value) for bound in (low, high)]
    return builder.op("Clip", value, *bounds)


# -- MoE -------------------------------------------------------------------------------------------------------------

_WEIGHTS, _BIASES = (2, 4, 6), (3, 5, 7)


def _infer(node: Node) -> Inferred:
    experts = experts_of(node, _WEIGHTS)
    if has_separate_gate(node):
        checks.require(node.optional(6) is not None, node, "swiglu_fusion = 0 needs fc3 (input 6)")
    for number, (rows, columns) in enumerate(experts.matrices(node)):
        name = f"fc{number + 1}"
        require_shape(node, _WEIGHTS[number], f"{name}_experts_weights", (experts.count, rows, columns))
        require_shape(node, _BIASES[number], f"{name}_experts_bias", (experts.count, rows))
    value = node.operand(0)
    checks.require_same_type(node, [each for each in node.inputs if each is not None])
    return [(value.dtype, value.shape)]


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    def weight(projection: int, chosen: Value) -> Value:
        return builder.op("Gather", node.operand(_WEIGHTS[projection]), chosen, axis=0)

    return [mixture(builder, node, experts_of(node, _WEIGHTS), weight, _BIASES)]


register(
    name="MoE",
    domain="com.microsoft",
    infer=_infer,
    attributes=ExpertAttributes,
    expand=_expand,
    types=(FLOATS,),
)
