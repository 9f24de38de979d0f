"""Contributed operators that add a bias before something else: BiasAdd, BiasSplitGelu, BiasSoftmax, BiasDropout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import BOOL
from ....runtime.plan.record import record
from ...ir.graph import Node, Shape, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..checks import FLOATS
from ..onnx.dropout import is_training
from ..registry import Builder, Inferred, register


def _biased_shape(node: Node) -> Shape:
    value, bias = node.operand(0), node.operand(1)
    shape = checks.broadcast_shapes(node, [value.shape, bias.shape])
    checks.require(shape == value.shape, node, "the bias does not broadcast to the input")
    return value.shape


def _biased(builder: Builder, node: Node) -> Value:
    return builder.op("Add", node.operand(0), node.operand(1))


# -- BiasAdd ---------------------------------------------------------------------------------------------------------


def _infer_add(node: Node) -> Inferred:
    shape = _biased_shape(node)
    checks.require(node.operand(2).shape == shape, node, "the skip connection differs in shape from the input")
    return [(node.operand(0).dtype, shape)]


register(
    name="BiasAdd",
    domain="com.microsoft",
    infer=_infer_add,
    expand=lambda builder, node: [builder.op("Add", _biased(builder, node), node.operand(2))],
    types=(FLOATS,),
)


# -- BiasSplitGelu ---------------------------------------------------------------------------------------------------


def _infer_split(node: Node) -> Inferred:
    shape = _biased_shape(node)
    checks.require(len(shape) > 0, node, "the input is a scalar")
    checks.require(ix.equal(ix.modulo(shape[-1], 2), 0), node, f"{ix.text(shape[-1])} elements have no halves")
    return [(node.operand(0).dtype, (*shape[:-1], ix.floordiv(shape[-1], 2)))]


def _expand_split(builder: Builder, node: Node) -> Sequence[Value]:
    """Multiply the first half of the last axis by the Gelu of the second one."""
    left, right = builder.ops("Split", _biased(builder, node), axis=-1, num_outputs=2)
    return [builder.op("Mul", left, builder.op("Gelu", right))]


register(
    name="BiasSplitGelu",
    domain="com.microsoft",
    infer=_infer_split,
    expand=_expand_split,
    types=(FLOATS,),
)


# -- BiasSoftmax -----------------------------------------------------------------------------------------------------


@record
class BiasSoftmaxAttributes:
    """All axes from ``axis`` on are one.  ``is_inner_broadcast`` says on which side of it the bias lacks axes, as the
    shape of the bias does.
    """

    is_inner_broadcast: int
    axis: int = 1


def _infer_softmax(node: Node) -> Inferred:
    shape = _biased_shape(node)
    checks.normalise_axis(node, node.attributes.axis, len(shape))
    return [(node.operand(0).dtype, shape)]


register(
    name="BiasSoftmax",
    domain="com.microsoft",
    infer=_infer_softmax,
    attributes=BiasSoftmaxAttributes,
    expand=lambda builder, node: [
        builder.op("Softmax", _biased(builder, node), axis=node.attributes.axis, flatten=1),
    ],
    types=(FLOATS,),
)


# -- BiasDropout -----------------------------------------------------------------------------------------------------


@record
class BiasDropoutAttributes:
    seed: int | None = None


def _infer_dropout(node: Node) -> Inferred:
    shape, residual = _biased_shape(node), node.optional(2)
    checks.require(residual is None or residual.shape == shape, node, "the residual differs in shape from the input")
    is_training(node, 4)  # refuses a mode that is not known
    return [(node.operand(0).dtype, shape), (BOOL, shape)]


def _expand_dropout(builder: Builder, node: Node) -> Sequence[Value]:
    """Drop elements of the sum with the bias, then add the residual."""
    residual = node.optional(2)
    mode = builder.constant(np.asarray(is_training(node, 4)))
    result, mask = builder.ops("Dropout", _biased(builder, node), node.optional(3), mode, seed=node.attributes.seed)
    return [result if residual is None else builder.op("Add", result, residual), mask]


register(
    name="BiasDropout",
    domain="com.microsoft",
    infer=_infer_dropout,
    attributes=BiasDropoutAttributes,
    expand=_expand_dropout,
    static_inputs=(4,),
    types=(FLOATS, FLOATS, FLOATS, FLOATS, frozenset({"bool"})),
)
