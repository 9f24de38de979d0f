"""Cases of the operators in ``compiler/ops/ml/support_vectors.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..case import Case, Cases, Tensor

_PARAMETERS = {"LINEAR": [0.0, 0.0, 0.0], "POLY": [0.5, 0.25, 3.0], "RBF": [0.3, 0.0, 0.0], "SIGMOID": [0.2, 0.1, 0.0]}


def _numbers(count: int, seed: int) -> list[float]:
    return [float(each) for each in np.random.default_rng(seed).normal(size=count).astype(np.float32)]


def _regressor(x: Tensor, supports: int, kernel: str = "LINEAR", **more: Any) -> Case:
    features = x.shape[-1]
    attributes: dict[str, Any] = {
        "kernel_type": kernel,
        "kernel_params": _PARAMETERS[kernel],
        "n_supports": supports,
        "coefficients": _numbers(supports or features, 1),
        "rho": [0.25],
    }
    if supports:
        attributes["support_vectors"] = _numbers(supports * features, 0)
    return Case((x,), {**attributes, **more})


def _classifier(x: Tensor, vectors: list[int], kernel: str = "RBF", likely: bool = False, **more: Any) -> Case:
    classes, features = len(vectors), x.shape[-1]
    pairs = classes * (classes - 1) // 2
    attributes: dict[str, Any] = {
        "kernel_type": kernel,
        "kernel_params": _PARAMETERS[kernel],
        "vectors_per_class": vectors,
        "support_vectors": _numbers(sum(vectors) * features, 0),
        "coefficients": _numbers((classes - 1) * sum(vectors), 1),
        "rho": _numbers(pairs, 2),
        "classlabels_ints": list(range(3, 3 + classes)),
    }
    if likely:
        attributes |= {"prob_a": [-1.5 - 0.1 * pair for pair in range(pairs)], "prob_b": _numbers(pairs, 3)}
    return Case((x,), {**attributes, **more}, outputs=2)


def _linear(x: Tensor, classes: int, **more: Any) -> Case:
    coefficients = _numbers(classes * x.shape[-1], 4)
    attributes = {"coefficients": coefficients, "rho": [0.125], "classlabels_ints": list(range(classes))}
    return Case((x,), {**attributes, "kernel_params": [0.0] * 3, "kernel_type": "LINEAR", **more}, outputs=2)


_X = Tensor((11, 5))

CASES: Cases = {
    "SVMRegressor": (
        _regressor(_X, 7),
        _regressor(_X, 7, "RBF"),
        _regressor(_X, 7, "POLY"),
        _regressor(_X, 7, "SIGMOID"),
        _regressor(_X, 7, "POLY", kernel_params=[0.5, 0.25, 2.0]),
        _regressor(_X, 0),
        _regressor(_X, 7, "RBF", one_class=1),
        _regressor(Tensor((5,)), 3, "RBF"),
    ),
    "SVMClassifier": (
        _classifier(_X, [3, 2, 4]),
        _classifier(_X, [3, 2], "POLY"),
        _classifier(_X, [3, 2], "SIGMOID", post_transform="LOGISTIC"),
        _classifier(_X, [3, 2, 1, 5], "LINEAR"),
        _classifier(_X, [3, 2, 4], likely=True),
        _classifier(_X, [3, 2], likely=True),
        _classifier(Tensor((65, 5)), [3, 2, 1, 1, 2, 4], likely=True),
        _linear(_X, 3),
        _linear(_X, 2),
        _linear(_X, 2, coefficients=[0.5, 0.25, 1.0, 0.0, 2.0] * 2),
        _linear(_X, 4, post_transform="SOFTMAX"),
        _classifier(Tensor((6, 5), "int64", -3, 3), [3, 2, 4]),
        _classifier(Tensor((5,)), [3, 2, 4]),
    ),
}
