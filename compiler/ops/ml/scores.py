"""What classifiers and regressors share: rows of features, transforms of scores, class labels.

Formulas are those of the operators' descriptions, and of onnxruntime's CPU provider where these leave a case open: the
inverse of the error function is Winitzki's approximation with a = 0.147, there as here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.errors import UnsupportedError
from ...ir.graph import Node, Value
from ...symbolic.polynomial import Dim
from .. import checks
from ..registry import Builder

#: The domain of these operators
DOMAIN = "ai.onnx.ml"
#: Adapters up to this version apply to nodes of any: they make operands of attributes that hold the model
EVERY_VERSION = 1 << 30
#: Element types of features that a device holds; float64 goes to the cpu
FEATURES = frozenset({"float32", "int32", "int64"})
#: What a classifier does with its scores
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")

_WINITZKI = 0.147
#: Scores this near to zero count as zero
_ZERO = 1e-7


def row_sizes(node: Node) -> tuple[Dim, Dim]:
    """Return how many rows and features the first operand has; a vector is one row.

    Raise :class:`ShapeError` for any other rank.
    """
    shape = node.operand(0).shape
    checks.require(len(shape) in (1, 2), node, f"features of rank {len(shape)}, not 1 or 2")
    return (shape[0], shape[1]) if len(shape) == 2 else (1, shape[0])


def feature_rows(builder: Builder, node: Node) -> Value:
    """Return the features as float32 [rows, features]."""
    value = builder.op("Cast", node.operand(0), to=FLOAT32.onnx)
    return value if value.rank == 2 else builder.op("Unsqueeze", value, axes(builder, 0))


def require_columns(node: Node, features: Dim, count: int) -> None:
    """Raise :class:`ShapeError` unless rows have ``count`` features."""
    checks.require(checks.may_equal(features, count), node, f"{features} features, the model has {count}")


def axes(builder: Builder, *numbers: int) -> Value:
    return builder.constant(np.asarray(numbers, np.int64))


def floats(builder: Builder, numbers: Sequence[float] | np.ndarray, *shape: int) -> Value:
    """Return a constant of float32 of a shape."""
    return builder.constant(np.asarray(numbers, np.float32).reshape(shape or (-1,)))


def integer_labels(node: Node, integers: Sequence[int], texts: Sequence[str], least: int = 1) -> Sequence[int]:
    """Return the labels of classes; raise :class:`UnsupportedError` where they are text, or fewer than ``least``."""
    if texts:
        reason = f"{node.op} with labels of text: a device holds numbers"
        raise UnsupportedError(reason, origin=node.origin, hint="export the model with integers as class labels")
    checks.require(len(integers) >= least, node, f"{len(integers)} class labels")
    return integers


def refuse_quantile(node: Node) -> None:
    """Raise :class:`UnsupportedError` for the quantile of a single score, which says nothing of the second class."""
    checks.require_choice(node, "post_transform", [each for each in TRANSFORMS if each != "PROBIT"])


def chosen_label(builder: Builder, scores: Value, labels: Sequence[int]) -> Value:
    """Return the label of the first largest score of each row, int64 [rows]."""
    best = builder.op("ArgMax", scores, axis=1, keepdims=0)
    return builder.op("Gather", builder.constant(np.asarray(labels, np.int64)), best)


def label_where(builder: Builder, condition: Value, positive: int, negative: int) -> Value:
    """Return one of two labels for each element of a bool, int64."""
    pair = [builder.constant(np.asarray(label, np.int64)) for label in (positive, negative)]
    return builder.op("Where", condition, *pair)


def side_by_side(builder: Builder, first: Value, second: Value) -> Value:
    """Return the scores [rows, 1] of two classes as [rows, 2]."""
    return builder.op("Concat", first, second, axis=1)


def complement(builder: Builder, score: Value, transform: str) -> Value:
    """Return the scores of two classes for ``s`` [rows, 1], ``1 - s`` and ``s``; see :func:`opposites`."""
    if transform == "LOGISTIC":
        return opposites(builder, score, transform)
    return side_by_side(builder, builder.op("Sub", builder.scalar(1.0, score), score), score)


def opposites(builder: Builder, score: Value, transform: str) -> Value:
    """Return the scores of two classes for ``s`` [rows, 1], ``-s`` and ``s``.

    As in onnxruntime, no transform but the logistic function is applied to a single score.
    """
    pair = side_by_side(builder, builder.op("Neg", score), score)
    return builder.op("Sigmoid", pair) if transform == "LOGISTIC" else pair


def transformed(builder: Builder, scores: Value, transform: str) -> Value:
    """Apply a transform to the scores [rows, classes] of each row."""
    if transform == "LOGISTIC":
        return builder.op("Sigmoid", scores)
    if transform == "SOFTMAX":
        return builder.op("Softmax", scores, axis=1)
    if transform == "SOFTMAX_ZERO":
        return _softmax_of_nonzero(builder, scores)
    return _probit(builder, scores) if transform == "PROBIT" else scores


def _softmax_of_nonzero(builder: Builder, scores: Value) -> Value:
    """Return the softmax over the scores that are not zero; a zero score stays zero."""
    largest = builder.op("ReduceMax", scores, axes(builder, 1), keepdims=1)
    powers = builder.op("Exp", builder.op("Sub", scores, largest))
    counts = builder.op("Greater", builder.op("Abs", scores), builder.scalar(_ZERO, scores))
    total = builder.op(
        "ReduceSum", builder.op("Where", counts, powers, builder.scalar(0.0, powers)), axes(builder, 1), keepdims=1
    )
    small = builder.op("Mul", scores, builder.op("Exp", builder.op("Neg", largest)))
    return builder.op("Div", builder.op("Where", counts, powers, small), total)


def _probit(builder: Builder, scores: Value) -> Value:
    """Return the quantile of the normal distribution at each score."""

    def number(value: float) -> Value:
        return builder.scalar(value, scores)

    position = builder.op("Sub", builder.op("Mul", scores, number(2.0)), number(1.0))
    sides = [builder.op(each, number(1.0), position) for each in ("Sub", "Add")]
    log = builder.op("Log", builder.op("Mul", *sides))
    first = builder.op("Add", builder.op("Mul", log, number(0.5)), number(2 / (math.pi * _WINITZKI)))
    square = builder.op("Sub", builder.op("Mul", first, first), builder.op("Mul", log, number(1 / _WINITZKI)))
    magnitude = builder.op("Sqrt", builder.op("Sub", builder.op("Sqrt", square), first))
    signed = builder.op("Where", builder.op("Less", position, number(0.0)), builder.op("Neg", magnitude), magnitude)
    return builder.op("Mul", signed, number(math.sqrt(2)))
