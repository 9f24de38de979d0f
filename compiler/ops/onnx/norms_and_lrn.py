"""Normalisation by norms and by local response: LpNormalization, MeanVarianceNormalization, LRN."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.errors import LimitError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..checks import FLOATS, same_as_input
from ..math.nodes import in_type
from ..math.reductions import power_norm, reduce
from ..registry import Builder, Inferred, register
from .normalization import channel_axis, deviations

#: Neighbouring channels that LRN adds
MAX_LRN_TERMS = 1024


@record
class LpNormalizationAttributes:
    axis: int = -1
    p: int = 2


def _infer_lp(node: Node) -> Inferred:
    checks.require(node.attributes.p in (1, 2), node, f"p must be 1 or 2, not {node.attributes.p}")
    checks.normalise_axis(node, node.attributes.axis, node.operand(0).rank)
    return same_as_input()(node)


def _expand_lp(builder: Builder, node: Node) -> Sequence[Value]:
    """Build x / norm, and 0 where the norm is 0."""
    value = node.operand(0)
    axis = checks.normalise_axis(node, node.attributes.axis, value.rank)
    norm = power_norm(builder, value, node.attributes.p, lambda powers: reduce(builder, powers, "sum", (axis,)))
    zero, one = builder.scalar(0.0, value), builder.scalar(1.0, value)
    divisor = builder.op("Where", builder.op("Equal", norm, zero), one, norm)
    return [builder.op("Div", value, divisor)]


register(
    name="LpNormalization",
    infer=_infer_lp,
    attributes=LpNormalizationAttributes,
    expand=_expand_lp,
    types=(FLOATS,),
)


@record
class MeanVarianceAttributes:
    axes: tuple[int, ...] = (0, 2, 3)


def _infer_mean_variance(node: Node) -> Inferred:
    checks.normalise_axes(node, node.attributes.axes, node.operand(0).rank)
    return same_as_input()(node)


def _expand_mean_variance(builder: Builder, node: Node) -> Sequence[Value]:
    """Build (x - mean) / (deviation + 1e-9), as in the operator's function body."""
    value = node.operand(0)
    stashed = in_type(builder, value, FLOAT32)
    axes = checks.normalise_axes(node, node.attributes.axes, value.rank)
    _, difference, variance = deviations(builder, stashed, axes)
    divisor = builder.op("Add", builder.op("Sqrt", variance), builder.scalar(1e-9, variance))
    return [in_type(builder, builder.op("Div", difference, divisor), value.dtype)]


register(
    name="MeanVarianceNormalization",
    infer=_infer_mean_variance,
    attributes=MeanVarianceAttributes,
    expand=_expand_mean_variance,
    types=(FLOATS,),
)


@record
class LrnAttributes:
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0
    size: int = 1


def _infer_lrn(node: Node) -> Inferred:
    channel_axis(node)
    checks.require(node.attributes.size >= 1, node, f"size must be positive, not {node.attributes.size}")
    return same_as_input()(node)


def _expand_lrn(builder: Builder, node: Node) -> Sequence[Value]:
    """Build x / (bias + alpha / size * sum of squares over ``size`` neighbouring channels) ^ beta."""
    attributes: LrnAttributes = node.attributes
    value = node.operand(0)
    before = (attributes.size - 1) // 2
    after = attributes.size - 1 - before
    furthest = max(ix.bounds(value.shape[1])[1] - 1, 0)  # those beyond add nothing
    before, after = min(before, furthest), min(after, furthest)
    terms = before + after + 1
    if terms > MAX_LRN_TERMS:
        raise LimitError(f"a sum over {terms:,} channels; at most {MAX_LRN_TERMS:,} are added", origin=node.origin)
    squares = builder.op("Mul", value, value)
    pads = [0] * (2 * value.rank)
    pads[1], pads[value.rank + 1] = before, after
    padded = builder.op("Pad", squares, builder.constant(np.array(pads, np.int64)), builder.scalar(0.0, value))
    total = None
    for offset in range(terms):
        start = builder.constant(np.array([offset], np.int64))
        end = builder.constant(np.array([offset - terms + 1 or np.iinfo(np.int64).max], np.int64))
        part = builder.op("Slice", padded, start, end, builder.constant(np.array([1], np.int64)))
        total = part if total is None else builder.op("Add", total, part)
    assert total is not None
    factor = builder.scalar(attributes.alpha / attributes.size, value)
    base = builder.op("Add", builder.op("Mul", total, factor), builder.scalar(attributes.bias, value))
    return [builder.op("Div", value, builder.op("Pow", base, builder.scalar(attributes.beta, value)))]


register(
    name="LRN",
    infer=_infer_lrn,
    attributes=LrnAttributes,
    expand=_expand_lrn,
    types=(FLOATS,),
)
