"""Long loops: a software driver ends those of a thread after 65,535 rounds in total and says nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from shaderloom.compiler.target import target_of
from shaderloom.runtime.plan.errors import LimitError

from ...support.cases import difference, run_onnxruntime
from ...support.kernels import make_model
from ...support.running import compile_for, run_model, run_plan

node = helper.make_node
#: Just above the limit, and three times it
LENGTHS = (70_000, 200_000)


def values(*shape: int) -> np.ndarray:
    """Whole numbers: their sums are exact in any order."""
    return np.random.default_rng(shape).integers(-4, 5, shape).astype(np.float32)


def check(device, nodes, feeds, outputs=("y",), *, constants=None, tolerance=1e-5):
    model = make_model(nodes, feeds, outputs, opset=20, constants=constants)
    for found, expected in zip(run_model(device, model, feeds), run_onnxruntime(model, feeds), strict=True):
        assert difference(found, expected) <= tolerance


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("rows", [1, 20])
def test_running_sums(rows: int, length: int, each_device) -> None:
    feeds = {"x": values(rows, length)}
    check(each_device, [node("CumSum", ["x", "axis"], ["y"])], feeds, constants={"axis": np.array(1)})
    check(each_device, [node("CumSum", ["x", "axis"], ["y"], reverse=1)], feeds, constants={"axis": np.array(1)})


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("shape", ["row", "rows", "columns", "wide"])
@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceMax", "ArgMax", "Softmax"])
def test_one_axis(operator: str, shape: str, length: int, each_device) -> None:
    sizes, axis = {
        "row": ((length,), 0),
        "rows": ((3, length + 1), 1),
        "columns": ((length, 4), 0),
        "wide": ((20, length), 1),
    }[shape]
    feeds = {"x": values(*sizes)}
    if operator.startswith("Reduce"):
        check(each_device, [node(operator, ["x", "axes"], ["y"])], feeds, constants={"axes": np.array([axis])})
    elif operator == "Softmax":  # onnxruntime adds up a row in float32, one element after the other
        model = make_model([node(operator, ["x"], ["y"], axis=axis)], feeds, ["y"])
        powers = np.exp(feeds["x"].astype(np.float64))
        expected = (powers / powers.sum(axis, keepdims=True)).astype(np.float32)
        assert difference(run_model(each_device, model, feeds)[0], expected) <= 2e-6
    else:
        check(each_device, [node(operator, ["x"], ["y"], axis=axis)], feeds)


@pytest.mark.parametrize("length", LENGTHS)
def test_packed_results(length: int, each_device) -> None:
    feeds = {"x": values(3, length).astype(np.float16)}
    check(each_device, [node("ReduceMax", ["x", "axes"], ["y"])], feeds, constants={"axes": np.array([1])})


@pytest.mark.parametrize("length", LENGTHS)
def test_the_largest(length: int, each_device) -> None:
    feeds = {"x": np.random.default_rng(0).permutation(length).astype(np.float32)}
    check(each_device, [node("TopK", ["x", "k"], ["y", "i"])], feeds, ("y", "i"), constants={"k": np.array([9])})


@pytest.mark.parametrize("length", [70_000, 70_001])
@pytest.mark.parametrize("rows", [1, 5])
def test_products_with_many_terms(rows: int, length: int, each_device) -> None:
    feeds = {"a": values(rows, length), "b": values(length, 4)}
    check(each_device, [node("MatMul", ["a", "b"], ["y"])], feeds)


@pytest.mark.parametrize("length", LENGTHS)
def test_pooling_whole_images(length: int, each_device) -> None:
    feeds = {"x": values(1, 2, length // 100, 100)}
    check(each_device, [node("GlobalAveragePool", ["x"], ["y"])], feeds)
    check(each_device, [node("GlobalMaxPool", ["x"], ["y"])], feeds)


def test_many_updates(each_device) -> None:
    generator = np.random.default_rng(3)
    feeds = {
        "x": values(8),
        "i": generator.integers(0, 8, (70_001,)),
        "u": values(70_001),
    }
    check(each_device, [node("ScatterElements", ["x", "i", "u"], ["y"], reduction="add")], feeds)


def test_what_cannot_be_shortened_is_refused(device) -> None:
    feeds = {"x": np.ones((1, 1, 300, 300), np.float32)}
    model = make_model([node("MaxPool", ["x"], ["y"], kernel_shape=[299, 299])], feeds, ["y"])
    software = replace(device.profile, kind="cpu")
    with pytest.raises(LimitError, match=rf"{target_of(software).max_loop_trips:,} rounds"):
        compile_for(model, feeds, software)
    compile_for(model, feeds, replace(device.profile, kind="discrete"))


def test_loops_inside_the_elements_count(device) -> None:
    """A division of 64-bit integers is a loop of 64 rounds for each element."""
    feeds = {"x": np.arange(1, 2 * 3000 + 1).reshape(2, 3000), "y": np.full((2, 3000), 7)}
    nodes = [
        node("Div", ["x", "y"], ["q"]),
        node("ReduceSum", ["q", "axes"], ["z"], keepdims=0),
    ]
    model = make_model(nodes, feeds, ["z"], constants={"axes": np.array([1])})
    (found,) = run_plan(device, compile_for(model, feeds, device.profile), model, feeds)
    assert found.tolist() == (feeds["x"] // 7).sum(1).tolist()
