"""NonMaxSuppression and Unique on the device, in stages: random operands, ties, odd sizes.

Covers: compiler/ops/onnx/suppression, compiler/ops/onnx/unique.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, helper
from onnx.reference import ReferenceEvaluator

import shaderloom
from shaderloom.compiler.ops.checks import ANY
from shaderloom.compiler.ops.onnx.suppression import ROUNDS, selection_calls
from shaderloom.compiler.ops.onnx.unique import unique_arrays
from shaderloom.runtime.plan.dtypes import BY_NAME

from ...support.cases import run_onnxruntime
from ...support.effort import quick_first

INT64 = BY_NAME["int64"].onnx


def model(
    op: str, inputs: dict[str, np.ndarray], names: list[str], outputs: list[str], **attributes: Any
) -> ModelProto:
    ports = [
        helper.make_tensor_value_info(
            name, BY_NAME[array.dtype.name].onnx, [f"{name}{axis}" for axis in range(array.ndim)]
        )
        for name, array in inputs.items()
    ]
    types = dict.fromkeys(outputs, INT64)
    if op == "Unique":
        types[outputs[0]] = BY_NAME[inputs["x"].dtype.name].onnx
    results = [helper.make_tensor_value_info(name, types[name], None) for name in outputs]
    node = helper.make_node(op, names, outputs, **attributes)
    return helper.make_model(
        helper.make_graph([node], "g", ports, results), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )


def run(proto: ModelProto, feeds: dict[str, np.ndarray], device) -> list[np.ndarray]:
    """Results on the device, twice, and that nothing else computed them."""
    with shaderloom.InferenceSession(proto, providers=["wgpu"], device=device, cache=False) as session:
        first = session.run(None, feeds)
        for one, other in zip(first, session.run(None, feeds), strict=True):
            assert one.tobytes() == other.tobytes()
    return first


# -- NonMaxSuppression -------------------------------------------------------------------------------------------------


def boxes_and_scores(batches: int, classes: int, size: int, *, coarse: bool = True, seed: int = 0):
    """Boxes in any order of their corners; coarse ones coincide and have equal scores."""
    generator = np.random.default_rng([seed, size])
    boxes = generator.random((batches, size, 4)) * 10
    scores = generator.random((batches, classes, size))
    if coarse:
        boxes, scores = np.round(boxes), np.round(scores, 1)
    return boxes.astype(np.float32), scores.astype(np.float32)


def suppress(device, boxes, scores, most=None, overlap=None, least=None, *, center: int = 0) -> np.ndarray:
    feeds = {"boxes": boxes, "scores": scores}
    names = ["boxes", "scores"]
    for name, value, dtype in (
        ("most", most, np.int64),
        ("overlap", overlap, np.float32),
        ("least", least, np.float32),
    ):
        if value is not None:
            feeds[name] = np.array([value], dtype)
        names.append(name if value is not None else "")
    proto = model("NonMaxSuppression", feeds, names, ["y"], center_point_box=center)
    (expected,) = run_onnxruntime(proto, feeds)
    (actual,) = run(proto, feeds, device)
    np.testing.assert_array_equal(actual, expected)
    return actual


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3, 63, 65, 257, 1000])
@pytest.mark.parametrize(
    ("most", "overlap", "least", "center"),
    [(3, 0.5, 0.3, 0), (2000, 0.3, None, 1), (2**40, 0.9, None, 0), (10, None, 0.2, 1)],
)
def test_boxes(size, most, overlap, least, center, each_device):
    suppress(each_device, *boxes_and_scores(2, 3, size), most, overlap, least, center=center)


@pytest.mark.parametrize("most", [None, 0, -1])
def test_nothing_is_chosen(most, device):
    assert suppress(device, *boxes_and_scores(1, 2, 7), most, 0.5).shape == (0, 3)


@pytest.mark.parametrize("sizes", [(0, 2, 3), (1, 1, 0), (1, 0, 5)])
def test_no_boxes(sizes, device):
    assert suppress(device, *boxes_and_scores(*sizes), 4, 0.5).shape == (0, 3)


def test_scores_below_the_threshold(device):
    assert suppress(device, *boxes_and_scores(1, 2, 65), 4, 0.5, 2.0).shape == (0, 3)


@pytest.mark.slow
def test_many_boxes_take_several_calls(device):
    """All 8,400 are chosen: more rounds of loops than a software driver runs in one call."""
    assert len(selection_calls(8400, 256, 8400)) > 1
    assert len(selection_calls(8400, 256, 100)) == 1
    boxes, scores = boxes_and_scores(1, 1, 8400, coarse=False)
    assert len(suppress(device, boxes, scores, 2**31, 0.99)) > 8000


def test_no_call_runs_too_many_rounds():
    for size in (1, 64, 65, 8400, 60_000):
        block = 64 if size <= 64 else 256
        calls = selection_calls(size, block, size)
        assert calls[0][0] == 0 and calls[-1][1] == -(-size // block)
        assert all(stop == first for (_, stop, _), (first, _, _) in pairwise(calls))
        for first, stop, rounds in calls:
            own = sum(number * block // 32 + number * block + 3 * block for number in range(first, stop))
            assert own + size // 8 <= rounds
            assert rounds <= ROUNDS or stop == first + 1
    assert ROUNDS < 65_535


def test_thresholds_may_change_without_a_compile(device):
    boxes, scores = boxes_and_scores(1, 2, 65)
    feeds = {"boxes": boxes, "scores": scores, "most": np.array([4]), "overlap": np.array([0.5], np.float32)}
    proto = model("NonMaxSuppression", feeds, list(feeds), ["y"])
    with shaderloom.InferenceSession(proto, providers=["wgpu"], device=device, cache=False) as session:
        for most, overlap in ((4, 0.5), (4, 0.1), (2, 0.5)):
            feeds |= {"most": np.array([most]), "overlap": np.array([overlap], np.float32)}
            np.testing.assert_array_equal(session.run(None, feeds)[0], run_onnxruntime(proto, feeds)[0])
        assert session.stats.misses <= 4  # one for the choice, one for each count of boxes


# -- Unique ------------------------------------------------------------------------------------------------------------

TYPES = sorted(ANY)


def elements(name: str, shape: tuple[int, ...], *, special: bool = True) -> np.ndarray:
    """Few distinct elements: NaN, both zeros and infinity among floats, both words of long integers."""
    generator = np.random.default_rng(len(name) + sum(shape))
    if name == "bool":
        return generator.random(shape) < 0.5
    dtype = np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)
    low = 0 if name.startswith("u") else -5
    array = generator.integers(low, 6, shape)
    if name in ("int64", "uint64"):
        return array.astype(dtype) * dtype.type(2**33) + generator.integers(0, 2, shape).astype(dtype)
    if "float" not in name:
        return array.astype(dtype)
    floats = (array / 2).astype(np.float32)
    if special:
        flat = floats.reshape(-1)
        flat[::4], flat[1::5], flat[2::7] = np.nan, -0.0, np.inf
    return floats.astype(dtype)


def distinct(device, x: np.ndarray, **attributes: int) -> list[np.ndarray]:
    proto = model("Unique", {"x": x}, ["x"], ["y", "first", "inverse", "counts"], **attributes)
    actual = run(proto, {"x": x}, device)
    expected = unique_arrays(x, attributes.get("axis"), attributes.get("sorted", 1) != 0)
    for left, right in zip(actual, expected, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(
            *(each.astype(np.float32) if x.dtype.itemsize == 2 else each for each in (left, right))
        )
    return actual


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(("shape", "axis"), quick_first([((17, 2), 0), ((3, 5), None), ((4, 9, 2), -2)]))
def test_types(name, shape, axis, device):
    x = elements(name, shape)
    axes = {} if axis is None else {"axis": axis}
    distinct(device, x, **axes)
    distinct(device, x, sorted=0, **axes)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, 3, 63, 65, 1000, 1537])
def test_sizes(size, each_device):
    generator = np.random.default_rng(size)
    distinct(each_device, elements("float32", (size,)))
    distinct(each_device, generator.permutation(np.arange(size)).astype(np.int32), sorted=0)
    distinct(each_device, generator.integers(0, 3, (size, 4)).astype(np.float32), axis=0, sorted=0)


@pytest.mark.slow
def test_many_elements(device):
    """More than the scan and the ranks take in one piece."""
    distinct(device, np.random.default_rng(0).integers(0, 5000, (70_000,)), sorted=0)


@pytest.mark.parametrize(("shape", "axis"), [((0, 3), 0), ((3, 0), 1), ((), None)])
def test_few_elements(shape, axis, device):
    distinct(device, np.zeros(shape, np.float32), **({} if axis is None else {"axis": axis}))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_the_host_agrees_with_the_reference_evaluator(axis):
    x = elements("float32", (17, 3))
    axes = {} if axis is None else {"axis": axis}
    proto = model("Unique", {"x": x}, ["x"], ["y", "first", "inverse", "counts"], **axes)
    for left, right in zip(unique_arrays(x, axis, True), ReferenceEvaluator(proto).run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(left, np.asarray(right))


@pytest.mark.parametrize("attributes", [{}, {"sorted": 0}, {"axis": 1}, {"axis": 0, "sorted": 0}])
def test_the_host_agrees_with_onnxruntime(attributes):
    x = elements("float32", (17, 3), special=False)
    proto = model("Unique", {"x": x}, ["x"], ["y", "first", "inverse", "counts"], **attributes)
    expected = run_onnxruntime(proto, {"x": x})
    actual = unique_arrays(x, attributes.get("axis"), attributes.get("sorted", 1) != 0)
    for left, right in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(left, right)
