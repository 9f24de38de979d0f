"""Trees in forms that the cases of the operators do not have: damaged, deep, wide, and of many targets.

Covers: compiler/ops/ml, compiler/kernels/ml.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from shaderloom.compiler.frontend import load_model
from shaderloom.runtime.plan.errors import LimitError, ModelError, ShaderloomError, UnsupportedError

from ...support.cases import run_onnxruntime
from ...support.decision_trees import quarters, random_trees
from ...support.kernels import run_kernels
from ...support.running import run_model

FEATURES = 3


def _model(
    op: str, attributes: dict[str, Any], *, version: int = 3, outputs: tuple[str, ...] = ("y",)
) -> onnx.ModelProto:
    node = helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **attributes)
    ports = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, FEATURES])]
    graph = helper.make_graph([node], "g", ports, [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _trees(trees: int = 2, depth: int = 2, targets: int = 1, **more: Any) -> dict[str, Any]:
    def weights(tree: int, generator: np.random.Generator) -> list[tuple[int, float]]:
        return [(tree % targets, float(np.float32(generator.normal())))]

    return {**random_trees(trees, depth, FEATURES, weights, prefix="target"), "n_targets": targets, **more}


def _with(name: str, change: Callable[[list[Any]], None]) -> dict[str, Any]:
    attributes = _trees()
    change(attributes[name])
    return attributes


def _circle() -> dict[str, Any]:
    attributes = _trees(1, 3)
    inner = [place for place, mode in enumerate(attributes["nodes_modes"]) if mode != "LEAF"]
    attributes["nodes_truenodeids"][inner[-1]] = attributes["nodes_nodeids"][inner[0]]
    return attributes


DAMAGED: dict[str, tuple[dict[str, Any], type[ShaderloomError], str]] = {
    "a circle": (_circle(), LimitError, "circle"),
    "a child that is not there": (
        _with("nodes_truenodeids", lambda ids: ids.__setitem__(0, 1 << 40)),
        ModelError,
        "has no node",
    ),
    "a node twice": (_with("nodes_nodeids", lambda ids: ids.__setitem__(1, ids[0])), ModelError, "is there twice"),
    "too few thresholds": (_with("nodes_values", lambda values: values.pop()), ModelError, "nodes_values"),
    "a feature below zero": (_with("nodes_featureids", lambda ids: ids.__setitem__(0, -1)), ModelError, "feature -1"),
    "an unknown comparison": (
        _with("nodes_modes", lambda modes: modes.__setitem__(0, "BRANCH")),
        UnsupportedError,
        "nodes_modes",
    ),
    "a leaf without a weight": (
        _with("target_nodeids", lambda ids: ids.__setitem__(0, ids[1])),
        ModelError,
        "has no weight",
    ),
    "no trees": ({"n_targets": 1}, ModelError, "no trees"),
    "no targets": ({**_trees(), "n_targets": 0}, ModelError, "no targets"),
    "a target beyond": (
        {**_trees(targets=3), "target_ids": [9] * len(_trees(targets=3)["target_ids"])},
        ModelError,
        "target 9",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_trees_are_refused(name):
    attributes, error, text = DAMAGED[name]
    with pytest.raises(error, match=text) as caught:
        load_model(_model("TreeEnsembleRegressor", attributes))
    assert "TreeEnsembleRegressor" in str(caught.value)


@pytest.mark.parametrize("attribute", ["nodes_truenodeids", "tree_roots", "nodes_modes"])
def test_numbers_of_a_tree_ensemble_are_checked(attribute):
    attributes: dict[str, Any] = {
        "nodes_featureids": [0],
        "nodes_modes": np.zeros(1, np.uint8),
        "nodes_splits": np.zeros(1, np.float32),
        "nodes_truenodeids": [0],
        "nodes_falsenodeids": [1],
        "nodes_trueleafs": [1],
        "nodes_falseleafs": [1],
        "leaf_targetids": [0, 0],
        "leaf_weights": np.ones(2, np.float32),
        "tree_roots": [0],
    }
    attributes[attribute] = np.full(1, 77, np.uint8) if attribute == "nodes_modes" else [2]
    tensors = {
        name: onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in attributes.items()
    }
    with pytest.raises(ModelError, match="outside of 0 to"):
        load_model(_model("TreeEnsemble", tensors, version=5))


def _chain(levels: int) -> dict[str, Any]:
    """One tree that asks whether feature 0 is at most 0, 1, 2, ... and ends at the first yes."""
    inner, nodes = range(levels), 2 * levels + 1
    return {
        "nodes_treeids": [0] * nodes,
        "nodes_nodeids": list(range(nodes)),
        "nodes_featureids": [0] * nodes,
        "nodes_modes": ["BRANCH_LEQ"] * levels + ["LEAF"] * (levels + 1),
        "nodes_values": [float(each) for each in inner] + [0.0] * (levels + 1),
        "nodes_truenodeids": [levels + each for each in inner] + [0] * (levels + 1),
        "nodes_falsenodeids": [each + 1 for each in inner[:-1]] + [nodes - 1] + [0] * (levels + 1),
        "target_treeids": [0] * (levels + 1),
        "target_nodeids": list(range(levels, nodes)),
        "target_ids": [0] * (levels + 1),
        "target_weights": [float(each) for each in range(levels + 1)],
        "n_targets": 1,
    }


def test_a_tree_of_a_thousand_levels(each_device):
    x = np.zeros((70, FEATURES), np.float32)
    x[:, 0] = np.random.default_rng(0).integers(-5, 1100, 70)
    (y,) = run_model(each_device, _model("TreeEnsembleRegressor", _chain(1000)), {"x": x})
    np.testing.assert_array_equal(y[:, 0], np.clip(x[:, 0], 0, 1000))


def test_a_tree_that_is_too_deep_is_refused():
    with pytest.raises(LimitError, match="levels"):
        load_model(_model("TreeEnsembleRegressor", _chain(33_000)))


@pytest.mark.parametrize(("trees", "targets"), [(130, 1), (120, 40), (121, 40), (41, 40)])
def test_many_trees(each_device, trees, targets):
    """As many trees for each target, some more of one, and two of one and one of the others."""
    x = quarters(33, FEATURES, gaps=True)
    model = _model("TreeEnsembleRegressor", _trees(trees, 4, targets))
    ran = run_kernels(each_device, model, {"x": x})
    (expected,) = run_onnxruntime(model, {"x": x})
    np.testing.assert_allclose(ran.outputs["y"], expected, rtol=1e-5, atol=1e-5)
    assert ran.templates[0] == "tree_leaves" and len(ran.templates) == 2  # weights are gathered in the reduction
