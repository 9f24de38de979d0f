"""``loom.SoftmaxProduct``: softmax(scores) values, the second half of attention as one operator.

Rewrites make it of a softmax and the matrix product behind it; its kernel never writes the weights to memory, and
computes the scores itself where they come from a matrix product (:mod:`compiler.attention`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..ir import Node
from . import common
from .common import FLOATS
from .matmul import product_shape
from .registry import Inferred, register


@dataclass(frozen=True, slots=True)
class SoftmaxProductAttributes:
    """``zero_rows``: a row whose scores are all -infinity gives zeros; otherwise NaN, as 0 / 0."""

    zero_rows: bool


def _infer(node: Node) -> Inferred:
    """Scores [..., M, N] and values [..., N, D]; the result [..., M, D] has the type of the values."""
    scores, values = node.operand(0), node.operand(1)
    common.require(min(scores.rank, values.rank) >= 2, node, "scores and values have rank 2 at least")
    return [(values.dtype, product_shape(node, scores.shape, values.shape))]


def softmax_product_array(scores: np.ndarray, values: np.ndarray, attributes: SoftmaxProductAttributes) -> np.ndarray:
    """The operator with numpy; half-precision floats are computed in f32."""
    compute = np.float64 if scores.dtype == np.float64 else np.float32
    scores = scores.astype(compute)
    if not scores.shape[-1]:
        return np.matmul(scores, values.astype(compute)).astype(values.dtype)
    highest = np.maximum(scores.max(-1, keepdims=True), np.finfo(np.float32).min)
    powers = np.exp(scores - highest)
    total = powers.sum(-1, keepdims=True)
    if attributes.zero_rows:
        total = np.where(total == 0, compute(1), total)
    return np.matmul(powers / total, values.astype(compute)).astype(values.dtype)


register(
    name="SoftmaxProduct",
    domain="loom",
    infer=_infer,
    cases=(),
    attributes=SoftmaxProductAttributes,
    family="attention",
    types=(FLOATS,),
)
