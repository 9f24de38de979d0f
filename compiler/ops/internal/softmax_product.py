"""``loom.SoftmaxProduct``: softmax(scores) values, the second half of attention as one operator.

Rewrites make it of a softmax and the matrix product behind it; its kernel never writes the weights to memory, and
computes the scores itself where they come from a matrix product (:mod:`compiler.attention`).

Few queries with many keys do not fill a GPU: then the keys are split into parts, whose results ``loom.MergeParts`` puts
together in a fixed order.  A part gives its weighted sum of values, padded to whole vectors, then one more vector with
its highest score and its sum of powers.

Which keys a query attends may be known by a range for each query, as in caches with spare capacity: the kernel then
reads those keys and no other, and its parts are parts of the range.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from ....runtime.plan.dtypes import BY_NAME, FLOAT32
from ....runtime.plan.record import record
from ...ir.coordinates import Sizes
from ...ir.graph import Node
from ...symbolic import polynomial as ix
from ...symbolic.lanes import LANES
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS, INDICES, product_shape
from ..registry import Inferred, register
from .attended_keys import AttendedKeysAttributes

#: The lowest finite number: the highest score of no keys
LOWEST = -3.4028234e38


@record
class SoftmaxProductAttributes:
    """``zero_rows``: a row whose scores are all -infinity gives zeros; otherwise NaN, as 0 / 0.

    The rows of scores are those of ``groups`` heads of queries, one head after another, which share keys and values.
    With ``attended`` a key outside the range of its query counts as if its score were -infinity; the first axis of the
    scores is the batch of the range then.
    """

    zero_rows: bool
    parts: int = 1
    groups: int = 1
    attended: AttendedKeysAttributes | None = None


def padded_size(size: int) -> int:
    """Round the size of a weighted sum up to whole vectors."""
    return -(-size // LANES) * LANES


def _infer(node: Node) -> Inferred:
    """Infer [..., M, D] in the type of the values, from scores [..., M, N] and values [..., N, D].

    Operands 2 and 3 are the offsets and lengths of the ranges of keys, if there are any.

    With several parts the result is [..., M, parts, D in whole vectors + 4] in float32.
    """
    scores, values = node.operand(0), node.operand(1)
    checks.require(min(scores.rank, values.rank) >= 2, node, "scores and values have rank 2 at least")
    shape = product_shape(node, scores.shape, values.shape)
    parts = node.attributes.parts
    if parts == 1:
        return [(values.dtype, shape)]
    return [(FLOAT32, (*shape[:-1], parts, padded_size(ix.number(shape[-1])) + LANES))]


def _parts_array(scores: np.ndarray, values: np.ndarray, parts: int) -> np.ndarray:
    results = []
    chunk = -(-scores.shape[-1] // parts)
    for part in range(parts):
        own = slice(part * chunk, (part + 1) * chunk)
        highest = scores[..., own].max(-1, keepdims=True, initial=np.float32(LOWEST))
        powers = np.exp(scores[..., own] - highest)
        sums = np.matmul(powers, values[..., own, :])
        tail = np.concatenate([highest, powers.sum(-1, keepdims=True)], -1)
        tail = np.broadcast_to(tail, (*sums.shape[:-1], 2))
        pads = [np.zeros((*sums.shape[:-1], size), sums.dtype) for size in (-sums.shape[-1] % LANES, 2)]
        results.append(np.concatenate([sums, pads[0], tail, pads[1]], -1))
    return np.stack(results, -2)


def _is_attended(
    attended: AttendedKeysAttributes,
    shape: tuple[int, ...],
    groups: int,
    ranges: Sequence[np.ndarray | None],
    size: Sizes,
) -> np.ndarray:
    """Return which of the keys each row of scores of ``shape`` attends."""
    rows, keys = shape[-2:]
    query = np.arange(rows) % (rows // groups)
    offsets, lengths = (None if each is None else each.astype(np.int64).reshape(-1, 1, 1) for each in ranges)
    position = (int(ix.evaluate(attended.offset, size)) if offsets is None else offsets) + query[None, :, None]
    distance = np.arange(keys) - position
    mask = np.broadcast_to(True, distance.shape)
    if attended.before >= 0:
        mask = mask & (distance >= -attended.before)
    if attended.after >= 0:
        mask = mask & (distance <= attended.after)
    if lengths is not None:
        mask = mask & (np.arange(keys) < lengths)
    return mask.reshape(len(mask), *(1,) * (len(shape) - 3), rows, keys)


def softmax_product_array(
    scores: np.ndarray,
    values: np.ndarray,
    attributes: SoftmaxProductAttributes,
    ranges: Sequence[np.ndarray | None] = (None, None),
    sizes: Sizes = MappingProxyType({}),
) -> np.ndarray:
    """Evaluate the operator with numpy; half-precision floats are computed in f32.

    ``ranges`` are the offsets and lengths of ranges of keys, ``sizes`` the values of declared dynamic dimensions.
    """
    compute = np.float64 if scores.dtype == np.float64 else np.float32
    scores = scores.astype(compute)
    if attributes.attended is not None:
        inside = _is_attended(attributes.attended, scores.shape, attributes.groups, ranges, sizes)
        scores = np.where(inside, scores, compute(-np.inf))
    if attributes.parts > 1:
        return _parts_array(scores, values.astype(compute), attributes.parts).astype(np.float32)
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
    attributes=SoftmaxProductAttributes,
    family="attention",
    types=(FLOATS, FLOATS, INDICES, INDICES),
)


@record
class MergePartsAttributes:
    """``size`` elements of a value, as ``dtype``; without any of the ``keys`` the result is zero."""

    size: int
    dtype: str
    zero_rows: bool
    keys: Dim


def _infer_merged(node: Node) -> Inferred:
    attributes: MergePartsAttributes = node.attributes
    return [(BY_NAME[attributes.dtype], (*node.operand(0).shape[:-2], attributes.size))]


def merged_array(parts: np.ndarray, attributes: MergePartsAttributes, sizes: Sizes) -> np.ndarray:
    """Merge parts [..., parts, size in whole vectors + 4] with numpy; ``sizes`` are those of declared dimensions."""
    size = padded_size(attributes.size)
    highest = parts[..., size : size + 1]
    factors = np.exp(highest - highest.max(-2, keepdims=True))
    total = (factors * parts[..., size + 1 : size + 2]).sum(-2)
    if attributes.zero_rows or not ix.evaluate(attributes.keys, sizes):
        total = np.where(total == 0, np.float32(1), total)
    result = (factors * parts[..., : attributes.size]).sum(-2) / total
    return result.astype(BY_NAME[attributes.dtype].numpy)


register(
    name="MergeParts",
    domain="loom",
    infer=_infer_merged,
    attributes=MergePartsAttributes,
    family="attention_merge",
    types=(FLOATS,),
)
