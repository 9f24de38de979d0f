"""Questions about a size that only a run knows: one element or several, none at all, as many as another axis.

Where the answer changes elements, the kernel asks again when it runs, or the compiler refuses.

Covers: compiler/ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from shaderloom import InferenceSession
from shaderloom.compiler.ir.graph import Graph
from shaderloom.compiler.reference.interpreter import run_graph
from shaderloom.runtime.plan.errors import ShapeError, UnsupportedError

from ...support.cases import OperatorCase, all_cases, difference
from ...support.passes import lower_model

#: (input, axis) -> name of a dimension; the name ends with the size
Names = Mapping[tuple[str, int], str]


def interpret(operator: OperatorCase, names: Names, low: int) -> list[np.ndarray]:
    """The results of the rewritten graph with the axes of ``names`` declared, from ``low`` on."""
    feeds = operator.feeds
    dims = {
        name: [names.get((name, axis), size) for axis, size in enumerate(array.shape)] for name, array in feeds.items()
    }
    sizes = {name: int(name.split("_")[1]) for name in names.values()}
    dynamic = {name: (min(low, size), max(1, size) + 9) for name, size in sizes.items()}
    results: list[np.ndarray] = []

    def run(report: Any, graph: Graph) -> None:
        if report.name == "operand-limit":  # later passes give values the types that they have in memory
            results.extend(run_graph(graph, feeds))

    shapes = {name: array.shape for name, array in feeds.items()}
    lower_model(operator.model(dims), shapes, dynamic=dynamic, observer=run)
    return results


def declarations(operator: OperatorCase) -> Iterator[Names]:
    """The axes of each size as one dimension, and every axis as one of its own."""
    axes = [(name, axis, size) for name, array in operator.feeds.items() for axis, size in enumerate(array.shape)]
    for wanted in sorted({size for *_, size in axes}):
        yield {(name, axis): f"d_{size}" for name, axis, size in axes if size == wanted}
    yield {(name, axis): f"d{number}_{size}" for number, (name, axis, size) in enumerate(axes)}


@pytest.mark.slow
@pytest.mark.parametrize("operator", all_cases(), ids=lambda operator: operator.name)
def test_a_declared_size_changes_no_element(operator: OperatorCase) -> None:
    """Also where it is 0 or 1, which may be broadcast, or equal to another one by chance."""
    expected = interpret(operator, {}, 0)
    for names in declarations(operator):
        for low in (0, 1):
            try:
                results = interpret(operator, names, low)
            except (ShapeError, UnsupportedError):
                continue
            for found, wanted in zip(results, expected, strict=True):
                assert difference(found, wanted) <= max(operator.case.tolerance, 1e-5), (names, low)


@pytest.mark.parametrize("dims", [["n", 4], [3, "n"], [2, "n", 4]])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("opset", [11, 13])
def test_hardmax_of_no_elements(dims: list[Any], axis: int, opset: int) -> None:
    """Before opset 13 the axes from ``axis`` on are one, so that the rows may be without elements."""
    graph = helper.make_graph(
        [helper.make_node("Hardmax", ["x"], ["y"], axis=axis)],
        "hardmax",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    shape = tuple(0 if dim == "n" else dim for dim in dims)
    results: list[np.ndarray] = []

    def run(report: Any, graph: Graph) -> None:
        if report.name == "operand-limit":
            results.extend(run_graph(graph, {"x": np.zeros(shape, np.float32)}))

    lower_model(model, {"x": shape}, dynamic={"n": (0, 9)}, observer=run)
    assert [result.shape for result in results] == [shape]


def run(device: Any, operator: str, feeds: dict[str, np.ndarray], dims: dict[str, list[Any]], **options: Any) -> Any:
    """Run one node on ``feeds``, inputs of the declared shapes ``dims`` where they have any."""
    constants = options.pop("constants", {})
    names = options.pop("names", [*feeds, *constants])
    dynamic = {
        dim: (0 if 0 in array.shape else 1, 16)
        for name, array in feeds.items()
        for dim in dims.get(name, ())
        if isinstance(dim, str)
    }
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], **options)],
        "one",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, dims.get(name, array.shape))
            for name, array in feeds.items()
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    with InferenceSession(model, device=device, cache=False, dynamic=dynamic) as session:
        return session.run(None, feeds)[0]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_reflection_at_the_corners_of_an_axis(device, size: int, mode: str) -> None:
    """Of one element alone every position is that element; the period of the reflection is 0."""
    feeds = {"x": normal(1, 2, size, 3), "grid": normal(1, 4, 4, 2) * 2}
    options = {"align_corners": 1, "padding_mode": "reflection", "mode": mode}
    expected = run(device, "GridSample", feeds, {}, **options)
    found = run(device, "GridSample", feeds, {"x": [1, 2, "h", 3]}, **options)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_half_pixels_of_a_single_one(device, size: int, mode: str) -> None:
    """pytorch_half_pixel takes the first element where the result has one, and not the one in the middle."""
    x = normal(1, 1, 3 * size, 2)
    options = {"mode": mode, "coordinate_transformation_mode": "pytorch_half_pixel"}
    scales = {"scales": np.array([1, 1, 1 / 3, 1], np.float32)}
    names = ["x", "", "scales"]
    expected = run(device, "Resize", {"x": x}, {}, constants=scales, names=names, **options)
    found = run(device, "Resize", {"x": x}, {"x": [1, 1, "h", 2]}, constants=scales, names=names, **options)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert size != 1 or (found == x[:, :, :1]).all()


@pytest.mark.parametrize("batch", [0, "n"])
def test_a_batch_without_images_is_resized(device, batch: int | str) -> None:
    scales = {"scales": np.array([1, 1, 2, 2], np.float32)}
    dims = {"x": [batch, 2, "h", 5]}
    found = run(device, "Resize", {"x": normal(0, 2, 3, 5)}, dims, constants=scales, names=["x", "", "scales"])
    assert found.shape == (0, 2, 6, 10)


@pytest.mark.parametrize("rows", [1, 2])
def test_angles_for_all_sequences_or_for_each(device, rows: int) -> None:
    angles = normal(rows, 3, 4)
    feeds = {"x": normal(2, 5, 3, 8), "cosines": np.cos(angles), "sines": np.sin(angles)}
    expected = run(device, "RotaryEmbedding", feeds, {})
    found = run(device, "RotaryEmbedding", feeds, {name: ["r", 3, 4] for name in ("cosines", "sines")})
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_diagonal_of_unequal_axes_is_refused(device) -> None:
    for dims in ([3, 1], ["n", 1], ["n", 3]):
        with pytest.raises(ShapeError, match="'i' is twice"):
            run(device, "Einsum", {"x": normal(3, 1 if dims[1] == 1 else 3)}, {"x": dims}, equation="ii->i")


CACHES = {
    "a batch of one": ("GroupQueryAttention-1", 3, 0, 1),
    "no heads": ("GroupQueryAttention-1", 3, 1, 0),
    "keys alone": ("Attention-8", 4, 0, 1),
}


@pytest.mark.parametrize("cache", CACHES)
def test_a_cache_that_does_not_fit_is_refused(cache: str) -> None:
    """It was read out of range, or an internal error."""
    name, position, axis, size = CACHES[cache]
    operator = next(each for each in all_cases() if each.name == f"com.microsoft.{name}")
    tensors = list(operator.case.inputs)
    shape = list(tensors[position].shape)
    shape[axis] = size
    tensors[position] = replace(tensors[position], shape=tuple(shape))
    changed = replace(operator, case=replace(operator.case, inputs=tuple(tensors)))
    for names in ({}, {("x0", 1): f"d_{tensors[0].shape[1]}"}):
        with pytest.raises(ShapeError, match="a past of shape"):
            interpret(changed, names, 1)
