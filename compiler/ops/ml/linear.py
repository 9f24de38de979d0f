"""LinearClassifier and LinearRegressor: a product with the coefficients, and a transform of the scores."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.dtypes import FLOAT32, INT64
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic.polynomial import Dim
from .. import checks
from ..registry import Builder, Inferred, register
from . import scores
from .scores import DOMAIN, FEATURES, TRANSFORMS


@record
class LinearClassifierAttributes:
    """``multi_class`` changes nothing, as in onnxruntime."""

    coefficients: tuple[float, ...]
    intercepts: tuple[float, ...] = ()
    classlabels_ints: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()
    multi_class: int = 0
    post_transform: str = "NONE"


@record
class LinearRegressorAttributes:
    coefficients: tuple[float, ...] = ()
    intercepts: tuple[float, ...] = ()
    targets: int = 1
    post_transform: str = "NONE"


def _require_coefficients(node: Node, targets: int) -> tuple[Dim, int]:
    """Return the number of rows, and of features by the coefficients, which are [targets, features]."""
    checks.require_choice(node, "post_transform", TRANSFORMS)
    count = len(node.attributes.coefficients)
    checks.require(targets > 0 and count % targets == 0, node, f"{count} coefficients for {targets} targets")
    rows, features = scores.row_sizes(node)
    scores.require_columns(node, features, count // targets)
    return rows, count // targets


def _product(builder: Builder, node: Node, targets: int, features: int) -> Value:
    """Return the scores [rows, targets]."""
    attributes = node.attributes
    weight = scores.floats(builder, attributes.coefficients, targets, features)
    bias = scores.floats(builder, attributes.intercepts) if len(attributes.intercepts) == targets else None
    return builder.op("Gemm", scores.feature_rows(builder, node), weight, bias, transB=1)


# -- LinearClassifier -------------------------------------------------------------------------------------------------


def _infer_classifier(node: Node) -> Inferred:
    attributes: LinearClassifierAttributes = node.attributes
    classes = len(attributes.intercepts)
    labels = scores.integer_labels(node, attributes.classlabels_ints, attributes.classlabels_strings, 0)
    checks.require(classes > 0, node, "the classifier has no intercepts, which say how many classes it has")
    checks.require(len(labels) == max(classes, 2), node, f"{len(labels)} labels for {classes} intercepts")
    if classes == 1:
        scores.refuse_quantile(node)
    rows, _ = _require_coefficients(node, classes)
    return [(INT64, (rows,)), (FLOAT32, (rows, max(classes, 2)))]


def _expand_classifier(builder: Builder, node: Node) -> Sequence[Value]:
    """Compute labels and scores: with one score and two labels, a positive score is the second label."""
    attributes: LinearClassifierAttributes = node.attributes
    classes, labels = len(attributes.intercepts), attributes.classlabels_ints
    product = _product(builder, node, classes, len(attributes.coefficients) // classes)
    if classes > 1:
        label = scores.chosen_label(builder, product, labels)
        return [label, scores.transformed(builder, product, attributes.post_transform)]
    wins = builder.op("Greater", builder.op("Squeeze", product, scores.axes(builder, 1)), builder.scalar(0.0, product))
    label = scores.label_where(builder, wins, positive=labels[1], negative=labels[0])
    return [label, scores.complement(builder, product, attributes.post_transform)]


def _infer_regressor(node: Node) -> Inferred:
    targets = node.attributes.targets
    rows, _ = _require_coefficients(node, targets)
    return [(FLOAT32, (rows, targets))]


def _expand_regressor(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: LinearRegressorAttributes = node.attributes
    targets = attributes.targets
    product = _product(builder, node, targets, len(attributes.coefficients) // targets)
    if targets == 1 and attributes.post_transform != "PROBIT":
        return [product]  # as in onnxruntime, nothing but a quantile transforms a single score
    return [scores.transformed(builder, product, attributes.post_transform)]


register(
    name="LinearClassifier",
    domain=DOMAIN,
    infer=_infer_classifier,
    attributes=LinearClassifierAttributes,
    expand=_expand_classifier,
    types=(FEATURES,),
)
register(
    name="LinearRegressor",
    domain=DOMAIN,
    infer=_infer_regressor,
    attributes=LinearRegressorAttributes,
    expand=_expand_regressor,
    types=(FEATURES,),
)
