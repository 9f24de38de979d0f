"""TfIdfVectorizer over integers: counts of the n-grams of a pool, as comparisons and sums.

For a number of skips and a length n, the n-grams of a row are its elements at distances of 1 + skips.  Each is compared
with every n-gram of the pool of that length, and the matches are summed.  Strings are beyond a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic.polynomial import Dim
from .. import checks
from ..registry import Builder, Inferred, register


@record
class TfIdfVectorizerAttributes:
    max_gram_length: int
    max_skip_count: int
    min_gram_length: int
    mode: str
    ngram_counts: tuple[int, ...]
    ngram_indexes: tuple[int, ...]
    pool_int64s: tuple[int, ...] = ()
    pool_strings: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()


def _infer(node: Node) -> Inferred:
    attributes: TfIdfVectorizerAttributes = node.attributes
    value = node.operand(0)
    if attributes.pool_strings:
        raise UnsupportedError(
            "the attribute 'pool_strings' of TfIdfVectorizer is not supported",
            origin=node.origin,
            hint="supported is pool_int64s",
        )
    checks.require_choice(node, "mode", ("TF", "IDF", "TFIDF"))
    checks.require(value.rank in (1, 2), node, f"the input has rank {value.rank}, not 1 or 2")
    checks.require(bool(attributes.ngram_indexes), node, "there are no n-grams")
    checks.require(min(attributes.ngram_indexes) >= 0, node, "ngram_indexes are columns of the result")
    _check_pools(node)
    size = max(attributes.ngram_indexes) + 1
    return [(FLOAT32, (*value.shape[:-1], size))]


def _check_pools(node: Node) -> None:
    """Check that the pool has whole n-grams of every length, each with a column and, if there are any, a weight.

    Raise :class:`ShapeError` otherwise.
    """
    attributes: TfIdfVectorizerAttributes = node.attributes
    bounds, count = [*attributes.ngram_counts, len(attributes.pool_int64s)], 0
    for length, (start, stop) in enumerate(pairwise(bounds), 1):
        whole = 0 <= start <= stop and (stop - start) % length == 0
        checks.require(whole, node, f"ngram_counts: from {start} to {stop} there are no n-grams of {length}")
        count += (stop - start) // length
    columns, weights = len(attributes.ngram_indexes), len(attributes.weights)
    checks.require(count == columns, node, f"{columns} ngram_indexes for {count} n-grams")
    checks.require(weights in (0, columns), node, f"{weights} weights for {columns} n-grams")


def _pools(node: Node) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield (n, n-grams [count, n], their columns in the output) of each requested length."""
    attributes: TfIdfVectorizerAttributes = node.attributes
    bounds = [*attributes.ngram_counts, len(attributes.pool_int64s)]
    done = 0
    for length, (start, stop) in enumerate(pairwise(bounds), 1):
        grams = np.asarray(attributes.pool_int64s[start:stop], np.int64).reshape(-1, length)
        columns = np.asarray(attributes.ngram_indexes[done : done + len(grams)], np.int64)
        done += len(grams)
        if len(grams) and attributes.min_gram_length <= length <= attributes.max_gram_length:
            yield length, grams, columns


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: TfIdfVectorizerAttributes = node.attributes
    value = node.operand(0)
    rows = value if value.rank == 2 else builder.op("Unsqueeze", value, _axes(builder, 0))
    tokens = checks.concrete(node, rows.shape[1], "the length of the rows")
    size = max(attributes.ngram_indexes) + 1
    total: Value | None = None
    for length, grams, columns in _pools(node):
        counts = _counts(builder, rows, tokens, length, grams, attributes.max_skip_count)
        if counts is not None:
            spread = np.zeros((len(grams), size), np.float32)
            spread[np.arange(len(grams)), columns] = 1
            part = builder.op("MatMul", counts, builder.constant(spread))
            total = part if total is None else builder.op("Add", total, part)
    if total is None:
        shape: tuple[Dim, ...] = (rows.shape[0], size)
        total = builder.constant(np.zeros([checks.concrete(node, dim, "the batch") for dim in shape], np.float32))
    total = _weighted(builder, node, total, size)
    return [total if value.rank == 2 else builder.op("Squeeze", total, _axes(builder, 0))]


def _axes(builder: Builder, *axes: int) -> Value:
    return builder.constant(np.array(axes, np.int64))


def _counts(builder: Builder, rows: Value, tokens: int, length: int, grams: np.ndarray, skips: int) -> Value | None:
    """Count each n-gram in each row over all numbers of skips, [rows, n-grams]; None where rows are too short.

    A single token has no distances: it is counted once, not for every number of skips.
    """
    total: Value | None = None
    for distance in range(1, skips + 2 if length > 1 else 2):
        windows = tokens - (length - 1) * distance
        if windows <= 0:
            break
        at = np.arange(windows)[:, None] + distance * np.arange(length)[None, :]
        # [rows, 1, windows, n] against [n-grams, 1, n]
        taken = builder.op("Gather", rows, builder.constant(at.astype(np.int64)), axis=1)
        taken = builder.op("Unsqueeze", taken, _axes(builder, 1))
        pool = builder.op("Cast", builder.constant(grams[:, None, :]), to=rows.dtype.onnx)
        equal = builder.op("Cast", builder.op("Equal", taken, pool), to=FLOAT32.onnx)
        matches = builder.op("ReduceMin", equal, _axes(builder, 3), keepdims=0)
        part = builder.op("ReduceSum", matches, _axes(builder, 2), keepdims=0)
        total = part if total is None else builder.op("Add", total, part)
    return total


def _weighted(builder: Builder, node: Node, counts: Value, size: int) -> Value:
    """Weight the counts. TF: unchanged; TFIDF: times the weights; IDF: the weights of n-grams that occur."""
    attributes: TfIdfVectorizerAttributes = node.attributes
    if attributes.mode == "TF":
        return counts
    if attributes.mode == "IDF":
        counts = builder.op("Min", counts, builder.scalar(1.0, counts))
    if not attributes.weights:
        return counts
    weights = np.ones(size, np.float32)
    weights[list(attributes.ngram_indexes)] = attributes.weights
    return builder.op("Mul", counts, builder.constant(weights))


register(
    name="TfIdfVectorizer",
    infer=_infer,
    attributes=TfIdfVectorizerAttributes,
    expand=_expand,
    types=(checks.INDICES,),
)
