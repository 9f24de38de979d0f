"""The selection of a row moves before products: what moves, what does not, and the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from ...support.comparison import reference, relative_error
from ...support.kernels import make_model
from ...support.passes import lower_model
from ...support.running import run_model

node = helper.make_node
ROWS = 6


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


#: nodes that select a row of "z" [batch, rows, columns] as "y"
SELECTIONS = {
    "slice": [node("Slice", ["z", "minus_one", "end", "one"], ["y"])],
    "gather": [node("Gather", ["z", "three"], ["y"], axis=1)],
    "index of each": [node("GatherND", ["z", "positions"], ["y"], batch_dims=1)],
}
CONSTANTS = {
    "minus_one": np.array([-1]),
    "end": np.array([2**40]),
    "one": np.array([1]),
    "three": np.array(3),
    "gain": weights(8),
    "w": weights(8, 12),
    "b": weights(12),
    "head": weights(12, 16),
    "cap": np.float32(3.0),
    "flat": np.array([-1, 8]),
    "deep": np.array([-1, ROWS, 12]),
}
#: a norm, a product with a bias, a residual gate and a capped product
TAIL = [
    node("RMSNormalization", ["x", "gain"], ["n"], axis=-1),
    node("MatMul", ["n", "w"], ["p"]),
    node("Add", ["b", "p"], ["a"]),
    node("Sigmoid", ["a"], ["s"]),
    node("Mul", ["a", "s"], ["g"]),
    node("MatMul", ["g", "head"], ["h"]),
    node("Div", ["h", "cap"], ["d"]),
    node("Tanh", ["d"], ["t"]),
    node("Mul", ["t", "cap"], ["z"]),
]


def build(nodes, *, batch: int = 2, outputs: tuple[str, ...] = ("y",), **feeds: np.ndarray):
    used = {name for each in nodes for name in each.input}
    values = {"x": weights(batch, ROWS, 8), "positions": np.array([[[4]], [[1]]], np.int64)[:batch], **feeds}
    feeds = {name: array for name, array in values.items() if name in used}
    constants = {name: array for name, array in CONSTANTS.items() if name in used}
    return make_model(nodes, feeds, list(outputs), constants=constants, opset=23), feeds


def product_rows(model, feeds, **options) -> list[int]:
    """The rows of each product in the canonical graph, batches included."""
    graph = lower_model(model, {name: array.shape for name, array in feeds.items()}, **options).graph
    return [int(np.prod(each.output.shape[:-1])) for each in graph.nodes if each.op == "MatMul"]


def check(device, model, feeds) -> None:
    for wanted, found in zip(reference(model, feeds), run_model(device, model, feeds), strict=True):
        assert found.shape == wanted.shape
        assert relative_error(found, wanted) < 1e-5


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("selection", SELECTIONS)
def test_products_compute_the_row_alone(device, selection: str, batch: int):
    model, feeds = build([*TAIL, *SELECTIONS[selection]], batch=batch)
    assert product_rows(model, feeds) == [batch, batch]
    assert product_rows(model, feeds, disabled_passes=("rows",)) == [batch * ROWS, batch * ROWS]
    check(device, model, feeds)


def test_rows_are_followed_through_views(device):
    nodes = [
        node("Transpose", ["x"], ["across"], perm=[1, 0, 2]),
        node("Reshape", ["across", "flat"], ["rows"]),
        node("MatMul", ["rows", "w"], ["p"]),
        node("Add", ["p", "b"], ["q"]),
        node("Reshape", ["q", "deep"], ["z"]),
        *SELECTIONS["index of each"],
    ]
    model, feeds = build(nodes, batch=1)
    assert product_rows(model, feeds) == [1]
    check(device, model, feeds)


def test_other_readers_keep_all_rows(device):
    """The first product is an output, too."""
    model, feeds = build([*TAIL, *SELECTIONS["gather"]], outputs=("y", "a"))
    assert product_rows(model, feeds) == [2 * ROWS, 2]
    check(device, model, feeds)


def test_what_needs_all_rows_is_computed_for_all(device):
    """The mean over rows in the middle reads every row of the first product."""
    nodes = [
        node("MatMul", ["x", "w"], ["p"]),
        node("ReduceMean", ["p", "one"], ["m"]),
        node("Sub", ["p", "m"], ["q"]),
        node("MatMul", ["q", "head"], ["z"]),
        *SELECTIONS["slice"],
    ]
    model, feeds = build(nodes)
    assert product_rows(model, feeds) == [2 * ROWS, 2]
    check(device, model, feeds)


def test_products_of_two_activations_stay(device):
    """Every row of the left operand meets the rows of its own batch."""
    nodes = [
        node("Transpose", ["x"], ["columns"], perm=[0, 2, 1]),
        node("MatMul", ["x", "columns"], ["z"]),
        *SELECTIONS["slice"],
    ]
    model, feeds = build(nodes)
    assert product_rows(model, feeds) == [2 * ROWS]
    check(device, model, feeds)


def test_selection_of_the_only_row_is_none(device):
    """A token's plan reads no index: it is the plan without the selection."""
    model, feeds = build([*TAIL, *SELECTIONS["index of each"]], x=weights(2, 1, 8), positions=np.zeros((2, 1, 1), int))
    graph = lower_model(model, {name: array.shape for name, array in feeds.items()}).graph
    assert all(each.op != "GatherND" for each in graph.nodes)
    check(device, model, feeds)
