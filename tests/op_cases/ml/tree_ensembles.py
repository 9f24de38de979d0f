"""Cases of the operators in ``compiler/ops/ml/tree_ensembles.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...support.decision_trees import MODES, Weights, quarters, random_trees
from ..case import Case, Cases, Tensor

_FEATURES = 4


def _rows(rows: int, *, gaps: bool = False) -> Tensor:
    return Tensor((rows, _FEATURES), data=quarters(rows, _FEATURES, gaps=gaps))


def _all_of(targets: int, *, positive: bool = False) -> Any:
    """Weights of leaves that add to every target."""

    def weights(tree: int, generator: np.random.Generator) -> Weights:
        numbers = generator.random(targets) if positive else generator.normal(size=targets)
        return [(target, float(number)) for target, number in enumerate(numbers.astype(np.float32))]

    return weights


def _some_of(targets: int) -> Any:
    """Weights of leaves that add to one target or to several."""

    def weights(tree: int, generator: np.random.Generator) -> Weights:
        chosen = generator.choice(targets, generator.integers(1, targets), replace=False)
        return [(int(target), float(np.float32(generator.normal()))) for target in chosen]

    return weights


def _in_turns(targets: int) -> Any:
    """Weights of leaves of which those of a tree add to one target."""
    return lambda tree, generator: [(tree % targets, float(np.float32(generator.normal())))]


def _only(target: int, *, positive: bool = False) -> Any:
    """Weights of leaves that all add to one target."""

    def weights(tree: int, generator: np.random.Generator) -> Weights:
        return [(target, float(np.float32(generator.random() / 5 if positive else generator.normal())))]

    return weights


def _regressor(x: Tensor, targets: int, weights: Any, *, trees: int = 7, depth: int = 3, **more: Any) -> Case:
    options = {name: more.pop(name) for name in ("modes", "missing") if name in more}
    attributes = random_trees(trees, depth, _FEATURES, weights, prefix="target", **options)
    return Case((x,), {**attributes, "n_targets": targets, **more}, version=3)


def _classifier(x: Tensor, labels: list[int], weights: Any, transform: str = "NONE", **more: Any) -> Case:
    options = {"trees": more.pop("trees", 7), "depth": more.pop("depth", 3)}
    attributes = random_trees(features=_FEATURES, weights_of=weights, prefix="class", **options)
    attributes |= {"classlabels_int64s": labels, "post_transform": transform, **more}
    return Case((x,), attributes, outputs=2, version=3)


#: onnxruntime takes integers as members alone
_FRACTIONS = np.array([0.25, -1.0, 0.5, np.nan, 1.0, np.nan], np.float32)
_MEMBERS = {
    "nodes_splits": np.array([0.5, 0.0, -0.25, 0.0], np.float32),
    "nodes_featureids": [0, 1, 2, 3],
    "nodes_modes": np.array([0, 6, 3, 6], np.uint8),
    "nodes_truenodeids": [1, 0, 2, 4],
    "nodes_trueleafs": [0, 1, 1, 1],
    "nodes_falsenodeids": [2, 1, 3, 3],
    "nodes_falseleafs": [0, 1, 1, 1],
    "membership_values": np.array([1.0, 2.0, 0.0, np.nan, 1.0, np.nan], np.float32),
    "leaf_targetids": [0, 1, 0, 1, 0],
    "leaf_weights": np.array([1.5, -2.0, 0.25, 4.0, 8.0], np.float32),
    "tree_roots": [0, 3],
    "n_targets": 2,
}

CASES: Cases = {
    "TreeEnsembleRegressor": (
        _regressor(_rows(9), 1, _only(0)),
        _regressor(_rows(33), 3, _all_of(3), base_values=[0.5, -1.0, 2.0]),
        _regressor(_rows(9), 3, _some_of(3)),
        _regressor(_rows(9), 3, _in_turns(3)),
        _regressor(_rows(9, gaps=True), 1, _only(0), modes=MODES, missing=True, depth=5),
        _regressor(_rows(9, gaps=True), 1, _only(0), modes=MODES),
        _regressor(_rows(9), 2, _all_of(2), aggregate_function="AVERAGE"),
        _regressor(_rows(9), 3, _some_of(3), trees=2, aggregate_function="MIN", base_values=[0.5, 1.0, 2.0]),
        _regressor(_rows(9), 3, _in_turns(3), aggregate_function="MAX"),
        _regressor(_rows(9), 1, _only(0), aggregate_function="MIN", base_values=[0.25]),
        _regressor(_rows(9), 3, _all_of(3), post_transform="SOFTMAX"),
        _regressor(_rows(9), 1, _only(0), post_transform="LOGISTIC"),
        _regressor(_rows(1), 1, _only(0), trees=130),
        _regressor(_rows(5), 1, _only(0), depth=0),
    ),
    "TreeEnsembleClassifier": (
        _classifier(_rows(9), [5, 2, 8], _all_of(3)),
        _classifier(_rows(9), [5, 2, 8], _in_turns(3), "SOFTMAX"),
        _classifier(Tensor((6, _FEATURES), "int64", -1, 1), [5, 2, 8], _all_of(3)),
        _classifier(Tensor((6, _FEATURES), "int32", -1, 1), [3, 7], _only(0)),
        _classifier(_rows(9), [5, 2, 8], _some_of(3), trees=2),
        _classifier(_rows(9), [5, 2, 8], _some_of(3), "LOGISTIC", base_values=[0.5, 1.0, -0.25]),
        _classifier(_rows(9), [5, 2, 8], lambda tree, generator: [(0, -1.0), (2, -2.0)]),
        _classifier(_rows(33), [3, 7], _only(0)),
        _classifier(_rows(9), [3, 7], _only(0), "LOGISTIC"),
        _classifier(_rows(9), [3, 7], _only(0), "LOGISTIC", base_values=[0.25]),
        _classifier(_rows(9), [3, 7], _only(0), "SOFTMAX", base_values=[0.25, 0.5]),
        _classifier(_rows(33), [3, 7], _only(0, positive=True)),
        _classifier(_rows(9), [3, 7], _only(0, positive=True), "LOGISTIC"),
        _classifier(_rows(9), [3, 7], _only(1), "LOGISTIC"),
        _classifier(_rows(9), [3, 7], _only(1, positive=True)),
        _classifier(_rows(9), [0, 1], _all_of(2, positive=True)),
        _classifier(_rows(9), [0, 1], _all_of(2), "SOFTMAX", base_values=[0.25]),
        _classifier(_rows(33), [0, 1], _some_of(2), trees=2),
        _classifier(_rows(33), [0, 1], _some_of(2), "LOGISTIC", trees=2),
    ),
    "TreeEnsemble": (
        Case((_rows(9),), _MEMBERS, version=5),
        Case((_rows(9, gaps=True),), {**_MEMBERS, "nodes_missing_value_tracks_true": [1, 0, 1, 1]}, version=5),
        Case((_rows(33),), {**_MEMBERS, "membership_values": _FRACTIONS}, version=5),
        Case((_rows(9),), {**_MEMBERS, "aggregate_function": 3}, version=5),
        Case((_rows(9),), {**_MEMBERS, "aggregate_function": 0, "post_transform": 3}, version=5),
    ),
}
