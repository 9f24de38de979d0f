"""Cases of the operators in ``compiler/ops/ml/linear.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..case import Case, Cases, Tensor


def _numbers(count: int, seed: int = 0) -> list[float]:
    return [float(each) for each in np.random.default_rng(seed).normal(size=count).astype(np.float32)]


def _classifier(x: Tensor, classes: int, labels: list[int], transform: str = "NONE", **more: Any) -> Case:
    features = x.shape[-1]
    attributes = {
        "coefficients": _numbers(classes * features),
        "intercepts": _numbers(classes, 1),
        "classlabels_ints": labels,
        "post_transform": transform,
        **more,
    }
    return Case((x,), attributes, outputs=2)


def _regressor(x: Tensor, targets: int, transform: str = "NONE", **more: Any) -> Case:
    attributes = {"coefficients": _numbers(targets * x.shape[-1]), "targets": targets, "post_transform": transform}
    return Case((x,), {**attributes, **more})


CASES: Cases = {
    "LinearClassifier": (
        _classifier(Tensor((7, 5)), 3, [4, 8, 2]),
        _classifier(Tensor((7, 5)), 3, [0, 1, 2], "SOFTMAX", multi_class=1),
        _classifier(Tensor((9, 5)), 2, [0, 1], "LOGISTIC"),
        _classifier(Tensor((9, 5)), 1, [3, 9]),
        _classifier(Tensor((9, 5)), 1, [3, 9], "LOGISTIC"),
        _classifier(Tensor((9, 5)), 1, [3, 9], "SOFTMAX"),
        _classifier(Tensor((5,)), 3, [0, 1, 2], "SOFTMAX_ZERO"),
        _classifier(Tensor((6, 4), "int64", -9, 9), 3, [0, 1, 2]),
        _classifier(Tensor((6, 4), low=0.0, high=0.2), 3, [0, 1, 2], "PROBIT", intercepts=[0.2, 0.5, 0.6]),
    ),
    "LinearRegressor": (
        _regressor(Tensor((7, 5)), 1, intercepts=[0.5]),
        _regressor(Tensor((7, 5)), 3, intercepts=[0.5, 1.0, 2.0]),
        _regressor(Tensor((5,)), 3),
        _regressor(Tensor((7, 5)), 2, "LOGISTIC"),
        _regressor(Tensor((7, 5)), 1, "LOGISTIC"),
        _regressor(Tensor((7, 5), low=0.0, high=0.1), 1, "PROBIT", intercepts=[0.5]),
        _regressor(Tensor((7, 5)), 3, "SOFTMAX"),
    ),
}
