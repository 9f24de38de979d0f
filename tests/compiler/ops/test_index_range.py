"""Indices out of range: known ones are refused with their node, those of run time are clamped.

Covers: compiler/ops/math/index_rule, compiler/ops/onnx/indexing.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from shaderloom.runtime.plan.errors import ShapeError

from ...support.kernels import make_model
from ...support.running import compile_for, run_model

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def clamped(index: np.ndarray, size: int) -> np.ndarray:
    return np.clip(np.where(index < 0, index + size, index), 0, size - 1)


def gather(index: np.ndarray) -> np.ndarray:
    return X[clamped(index, 4)]


def gather_elements(index: np.ndarray) -> np.ndarray:
    return np.take_along_axis(X, clamped(index, 4), 0)


def gather_nd(index: np.ndarray) -> np.ndarray:
    return X[clamped(index[:, 0], 4), clamped(index[:, 1], 3)]


def scatter_elements(index: np.ndarray) -> np.ndarray:
    result = X.copy()
    for at, row in np.ndenumerate(clamped(index, 4)):
        result[row, at[1]] += 1
    return result


def scatter_nd(index: np.ndarray) -> np.ndarray:
    result = X.copy()
    np.add.at(result, (clamped(index[:, 0], 4), clamped(index[:, 1], 3)), 1)
    return result


PAIRS = np.array([[0, 0], [4, 1], [-5, 2], [1, 3], [2, -4]])
COLUMNS = np.array([[0, 4, -5], [100, -100, 3]])
FAMILY = {
    "Gather": (gather, np.array([0, 4, -5, 99, -1])),
    "GatherElements": (gather_elements, COLUMNS),
    "GatherND": (gather_nd, PAIRS),
    "ScatterElements": (scatter_elements, COLUMNS),
    "ScatterND": (scatter_nd, PAIRS),
}


def model_of(operator: str, index: np.ndarray, constant: bool):
    inputs, feeds, attributes = ["x", "i"], {"x": X}, {}
    if operator.startswith("Scatter"):
        inputs, attributes = [*inputs, "u"], {"reduction": "add"}
        feeds["u"] = np.ones(index.shape if operator == "ScatterElements" else index.shape[:-1], np.float32)
    node = helper.make_node(operator, inputs, ["y"], name="reader", **attributes)
    if constant:
        return make_model([node], feeds, ["y"], constants={"i": index}), feeds
    feeds["i"] = index
    return make_model([node], feeds, ["y"]), feeds


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@pytest.mark.parametrize("operator", FAMILY)
def test_indices_of_run_time_are_clamped(operator: str, dtype: type, each_device) -> None:
    expected, index = FAMILY[operator]
    model, feeds = model_of(operator, index.astype(dtype), constant=False)
    np.testing.assert_array_equal(run_model(each_device, model, feeds)[0], expected(index))


@pytest.mark.parametrize("operator", FAMILY)
def test_known_indices_are_refused(operator: str) -> None:
    model, feeds = model_of(operator, FAMILY[operator][1], constant=True)
    with pytest.raises(ShapeError, match=r"index 4 is out of range for an axis of 4 elements") as caught:
        compile_for(model, feeds)
    assert "reader" in str(caught.value)


@pytest.mark.parametrize("operator", FAMILY)
def test_the_ends_of_the_range_are_in_it(operator: str) -> None:
    index = np.array([[3, 2], [-4, -3]]) if operator.endswith("ND") else np.array([[3, -4, 0]])
    model, feeds = model_of(operator, index, constant=True)
    compile_for(model, feeds)


def test_a_declared_size_refuses_what_no_size_allows() -> None:
    for index, right in ((7, True), (8, False)):
        node = helper.make_node("Gather", ["x", "i"], ["y"])
        feeds = {"x": np.zeros(5, np.float32)}
        model = make_model([node], feeds, ["y"], dims={"x": ("n",)}, constants={"i": np.array(index)})
        if right:
            compile_for(model, feeds, dynamic={"n": (2, 8)})
        else:
            with pytest.raises(ShapeError, match="index 8"):
                compile_for(model, feeds, dynamic={"n": (2, 8)})
