"""SVMClassifier and SVMRegressor: kernels of each row with every support vector, and sums of them.

Of several classes there is a score for each pair of them; the one that wins most pairs is the label.  The coefficients
of a pair are spread over one column of a matrix, so that all scores are one product.  Probabilities are found from the
pairs by the iteration of Wu, Lin and Weng (``loom.CoupledProbabilities``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32, INT64
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from .. import checks
from ..registry import Builder, Inferred, register
from . import scores
from .scores import DOMAIN, FEATURES, TRANSFORMS

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
#: Probabilities of pairs stay this far from 0 and 1
_LEAST_PROBABILITY = 1e-7


@record
class SVMClassifierAttributes:
    """Without ``vectors_per_class`` the coefficients are [classes, features] of a linear model."""

    coefficients: tuple[float, ...]
    rho: tuple[float, ...]
    kernel_params: tuple[float, ...] = ()
    kernel_type: str = "LINEAR"
    support_vectors: tuple[float, ...] = ()
    vectors_per_class: tuple[int, ...] = ()
    prob_a: tuple[float, ...] = ()
    prob_b: tuple[float, ...] = ()
    classlabels_ints: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()
    post_transform: str = "NONE"

    @property
    def vectors(self) -> int:
        return sum(self.vectors_per_class)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return list(itertools.combinations(range(len(self.classlabels_ints)), 2))


@record
class SVMRegressorAttributes:
    """Without supports the coefficients are those of the features of a linear model."""

    coefficients: tuple[float, ...]
    rho: tuple[float, ...]
    kernel_params: tuple[float, ...] = ()
    kernel_type: str = "LINEAR"
    support_vectors: tuple[float, ...] = ()
    n_supports: int = 0
    one_class: int = 0
    post_transform: str = "NONE"


# -- kernels ----------------------------------------------------------------------------------------------------------


def _require_vectors(node: Node, vectors: int) -> int:
    """Return how many features each support vector has."""
    attributes = node.attributes
    checks.require_choice(node, "kernel_type", KERNELS)
    count = len(attributes.support_vectors)
    checks.require(vectors > 0 and count % vectors == 0, node, f"{count} numbers of {vectors} support vectors")
    parameters = len(attributes.kernel_params)
    checks.require(attributes.kernel_type == "LINEAR" or parameters == 3, node, f"{parameters} parameters of a kernel")
    return count // vectors


def _kernels(builder: Builder, node: Node, vectors: int) -> Value:
    """Return the kernel of each row with each support vector, [rows, vectors]."""
    attributes = node.attributes
    rows = scores.feature_rows(builder, node)
    supports = scores.floats(builder, attributes.support_vectors, vectors, len(attributes.support_vectors) // vectors)
    gamma, coefficient, degree = attributes.kernel_params or (0.0, 0.0, 0.0)
    if attributes.kernel_type == "RBF":
        apart = builder.op("Sub", builder.op("Unsqueeze", rows, scores.axes(builder, 1)), supports)
        squares = builder.op("ReduceSumSquare", apart, scores.axes(builder, 2), keepdims=0)
        return builder.op("Exp", builder.op("Mul", squares, builder.scalar(-gamma, squares)))
    if attributes.kernel_type == "LINEAR":
        return builder.op("Gemm", rows, supports, transB=1)
    offset = scores.floats(builder, [coefficient])
    product = builder.op("Gemm", rows, supports, offset, alpha=gamma, transB=1)
    if attributes.kernel_type == "SIGMOID":
        return builder.op("Tanh", product)
    return builder.op("Pow", product, builder.scalar(degree, product))


# -- SVMRegressor -----------------------------------------------------------------------------------------------------


def _infer_regressor(node: Node) -> Inferred:
    attributes: SVMRegressorAttributes = node.attributes
    rows, features = scores.row_sizes(node)
    terms = attributes.n_supports
    columns = _require_vectors(node, terms) if terms > 0 else len(attributes.coefficients)
    fits = len(attributes.coefficients) == (terms if terms > 0 else columns) > 0 and len(attributes.rho) > 0
    checks.require(fits, node, f"{len(attributes.coefficients)} coefficients and {len(attributes.rho)} offsets")
    scores.require_columns(node, features, columns)
    return [(FLOAT32, (rows, 1))]


def _expand_regressor(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: SVMRegressorAttributes = node.attributes
    supports = attributes.n_supports
    terms = _kernels(builder, node, supports) if supports > 0 else scores.feature_rows(builder, node)
    weight = scores.floats(builder, attributes.coefficients, len(attributes.coefficients), 1)
    result = builder.op("Gemm", terms, weight, scores.floats(builder, attributes.rho[:1]))
    if attributes.one_class:
        inside, outside = builder.scalar(1.0, result), builder.scalar(-1.0, result)
        result = builder.op("Where", builder.op("Greater", result, builder.scalar(0.0, result)), inside, outside)
    return [result]


# -- SVMClassifier ----------------------------------------------------------------------------------------------------


def _infer_classifier(node: Node) -> Inferred:
    attributes: SVMClassifierAttributes = node.attributes
    labels = scores.integer_labels(node, attributes.classlabels_ints, attributes.classlabels_strings, 2)
    checks.require_choice(node, "post_transform", TRANSFORMS)
    rows, features = scores.row_sizes(node)
    classes, pairs, vectors = len(labels), len(attributes.pairs), attributes.vectors
    coefficients, rho = len(attributes.coefficients), len(attributes.rho)
    if not vectors:
        fits = coefficients % classes == 0 and rho > 0
        checks.require(fits, node, f"{coefficients} coefficients and {rho} offsets for {classes} classes")
        scores.require_columns(node, features, coefficients // classes)
        return [(INT64, (rows,)), (FLOAT32, (rows, classes))]
    scores.require_columns(node, features, _require_vectors(node, vectors))
    fits = len(attributes.vectors_per_class) == classes and min(attributes.vectors_per_class) >= 0
    checks.require(fits, node, f"support vectors of {len(attributes.vectors_per_class)} classes, not {classes}")
    fits = coefficients >= (classes - 1) * vectors and rho >= pairs
    checks.require(fits, node, f"{coefficients} coefficients and {rho} offsets for {vectors} vectors, {pairs} pairs")
    likely = len(attributes.prob_a)
    fits = likely == len(attributes.prob_b) and (likely == 0 or likely >= pairs)
    checks.require(fits, node, f"probabilities of {likely} and {len(attributes.prob_b)} pairs, not {pairs}")
    if not likely and classes == 2:
        scores.refuse_quantile(node)
    return [(INT64, (rows,)), (FLOAT32, (rows, classes if likely or classes == 2 else pairs))]


def _pair_coefficients(attributes: SVMClassifierAttributes) -> np.ndarray:
    """Return the coefficients [vectors, pairs] of the vectors of two classes in the score of each pair.

    Row ``r`` of the attribute has, for a vector of class ``c``, its coefficient against class ``r``, or ``r + 1`` from
    ``c`` on.
    """
    vectors = attributes.vectors
    table = np.asarray(attributes.coefficients[: (len(attributes.classlabels_ints) - 1) * vectors], np.float32)
    table = table.reshape(-1, vectors)
    ends = np.cumsum(attributes.vectors_per_class)
    starts = ends - attributes.vectors_per_class
    result = np.zeros((vectors, len(attributes.pairs)), np.float32)
    for place, (one, other) in enumerate(attributes.pairs):
        result[starts[one] : ends[one], place] = table[other - 1, starts[one] : ends[one]]
        result[starts[other] : ends[other], place] = table[one, starts[other] : ends[other]]
    return result


def _most_pairs(builder: Builder, node: Node, product: Value) -> Value:
    """Return the label of the class that wins most pairs, of equals the first one."""
    attributes: SVMClassifierAttributes = node.attributes
    votes = np.zeros((len(attributes.pairs), 2, len(attributes.classlabels_ints)), np.float32)
    for place, sides in enumerate(attributes.pairs):
        for side, winner in enumerate(sides):
            votes[place, side, winner] = 1
    wins = builder.op("Cast", builder.op("Greater", product, builder.scalar(0.0, product)), to=FLOAT32.onnx)
    # a pair gives its vote to the second class, and moves it to the first one where that wins
    moved = builder.op("MatMul", wins, builder.constant(votes[:, 0] - votes[:, 1]))
    total = builder.op("Add", moved, builder.constant(votes[:, 1].sum(axis=0)))
    return scores.chosen_label(builder, total, attributes.classlabels_ints)


def _probabilities(builder: Builder, node: Node, product: Value) -> Value:
    """Return the probability of each class, [rows, classes], of the scores of pairs."""
    attributes: SVMClassifierAttributes = node.attributes
    pairs = len(attributes.pairs)
    slope, offset = (scores.floats(builder, each[:pairs]) for each in (attributes.prob_a, attributes.prob_b))
    exponent = builder.op("Neg", builder.op("Add", builder.op("Mul", product, slope), offset))
    limits = (builder.scalar(limit, product) for limit in (_LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY))
    likely = builder.op("Clip", builder.op("Sigmoid", exponent), *limits)
    return builder.op("CoupledProbabilities", likely, domain="loom", classes=len(attributes.classlabels_ints))


def _linear_label(builder: Builder, node: Node, product: Value) -> Value:
    """Return the label of the largest score.

    Of two classes the second one wins, as in onnxruntime, if the largest score is at least 0.5 where all coefficients
    are positive, and where they are not if it is positive.
    """
    attributes: SVMClassifierAttributes = node.attributes
    label = scores.chosen_label(builder, product, attributes.classlabels_ints)
    if len(attributes.classlabels_ints) > 2:
        return label
    largest = builder.op("ReduceMax", product, scores.axes(builder, 1), keepdims=0)
    comparison, least = ("GreaterOrEqual", 0.5) if min(attributes.coefficients) >= 0 else ("Greater", 0.0)
    wins = builder.op(comparison, largest, builder.scalar(least, product))
    return builder.op("Where", wins, builder.constant(np.asarray(attributes.classlabels_ints[1], np.int64)), label)


def _expand_classifier(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: SVMClassifierAttributes = node.attributes
    classes, transform = len(attributes.classlabels_ints), attributes.post_transform
    if not attributes.vectors:
        weight = scores.floats(builder, attributes.coefficients, classes, len(attributes.coefficients) // classes)
        rows, offset = scores.feature_rows(builder, node), scores.floats(builder, attributes.rho[:1])
        product = builder.op("Gemm", rows, weight, offset, transB=1)
        return [_linear_label(builder, node, product), scores.transformed(builder, product, transform)]
    weight = builder.constant(_pair_coefficients(attributes))
    offset = scores.floats(builder, attributes.rho[: len(attributes.pairs)])
    product = builder.op("Gemm", _kernels(builder, node, attributes.vectors), weight, offset)
    label = _most_pairs(builder, node, product)
    if attributes.prob_a:
        return [label, scores.transformed(builder, _probabilities(builder, node, product), transform)]
    if classes > 2:
        return [label, scores.transformed(builder, product, transform)]
    return [label, (scores.opposites if transform == "NONE" else scores.complement)(builder, product, transform)]


register(
    name="SVMRegressor",
    domain=DOMAIN,
    infer=_infer_regressor,
    attributes=SVMRegressorAttributes,
    expand=_expand_regressor,
    types=(FEATURES,),
)
register(
    name="SVMClassifier",
    domain=DOMAIN,
    infer=_infer_classifier,
    attributes=SVMClassifierAttributes,
    expand=_expand_classifier,
    types=(FEATURES,),
)
