"""Caches of a window of keys: what they hold step by step, and what is refused.

Covers: compiler/ops/microsoft.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.passes.expand import expand
from shaderloom.compiler.reference.interpreter import run_graph
from shaderloom.runtime.plan.errors import ShaderloomError, ShapeError, UnsupportedError

HEADS, SIZE, WINDOW = 2, 8, 4


def model_of(
    steps: int, total: int, capacity: int, extra: dict[str, tuple[int, ...]] | None = None, **attributes: Any
) -> onnx.ModelProto:
    hidden, cache = (1, steps, HEADS * SIZE), (1, HEADS, capacity, SIZE)
    shapes = {"q": hidden, "k": hidden, "v": hidden, "pk": cache, "pv": cache, **(extra or {})}
    named = {"num_heads": HEADS, "kv_num_heads": HEADS, "local_window_size": WINDOW, "sliding_window_cache": 1}
    names = ["q", "k", "v", "pk", "pv", "lengths", "total"] + (["", "", "", "bias"] if extra else [])
    node = helper.make_node(
        "GroupQueryAttention", names, ["y", "key", "value"], domain="com.microsoft", **{**named, **attributes}
    )
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    known = {"lengths": np.array([total - 1], np.int32), "total": np.array([total], np.int32)}
    constants = [numpy_helper.from_array(array, name) for name, array in known.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], "window", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def attended(q: np.ndarray, keys: np.ndarray, values: np.ndarray, first: int) -> np.ndarray:
    """Attention over the last WINDOW positions of whole sequences [heads, positions, size], in double precision."""
    result = np.zeros((len(q), HEADS, SIZE))
    for row, query in enumerate(q.astype(np.float64).reshape(-1, HEADS, SIZE)):
        end = first + row + 1
        for head in range(HEADS):
            seen = slice(max(end - WINDOW, 0), end)
            powers = np.exp(keys[head, seen].astype(np.float64) @ query[head] / np.sqrt(SIZE))
            result[row, head] = powers / powers.sum() @ values[head, seen]
    return result.reshape(1, len(q), -1)


@pytest.mark.parametrize("capacity", [4, 5, 7])
def test_a_cache_holds_the_last_positions(capacity: int) -> None:
    """A prompt longer than the cache, single tokens and chunks: the rows are those that the description gives."""
    rng = np.random.default_rng(capacity)
    keys, values = rng.standard_normal((2, HEADS, 32, SIZE)).astype(np.float32)
    cache, done, group = [np.zeros((1, HEADS, capacity, SIZE), np.float32)] * 2, 0, capacity - WINDOW + 1
    for steps in (2, 1, 9, 1, 1, 1, 3, 1):
        total = done + steps
        q = rng.standard_normal((steps, HEADS * SIZE)).astype(np.float32)
        new = [each[:, done:total].transpose(1, 0, 2).reshape(1, steps, -1) for each in (keys, values)]
        feeds = dict(zip(("q", "k", "v", "pk", "pv"), (q[None], *new, *cache)))
        imported = load_model(model_of(steps, total, capacity))
        graph = specialise(imported, bind_shapes(imported, {name: each.shape for name, each in feeds.items()}).shapes)
        expand(graph)
        found, *cache = run_graph(graph, feeds)
        np.testing.assert_allclose(found, attended(q, keys, values, done), rtol=1e-5, atol=1e-6)
        held = total if total <= capacity else total - group * -(-(total - capacity) // group)
        for rows, whole in zip(cache, (keys, values), strict=True):
            assert rows.shape[2] == capacity
            np.testing.assert_array_equal(rows[0, :, :held], whole[:, total - held : total])
        done = total


REFUSED: dict[str, tuple[int, dict[str, Any], type[ShaderloomError], str]] = {
    "no window": (4, {"local_window_size": -1}, ShapeError, "sliding_window_cache needs a local_window_size"),
    "a cache below the window": (3, {}, ShapeError, "a cache of 3 rows for windows of 4"),
    "keys on both sides": (4, {"causal": 0}, ShapeError, "sliding_window_cache needs causal = 1"),
    "a bias": (4, {"extra": {"bias": (1, 1, 1, 9)}}, UnsupportedError, "use a cache of the whole sequence"),
    "scores": (4, {"qk_output": 1}, UnsupportedError, "use a cache of the whole sequence"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    capacity, attributes, kind, reason = REFUSED[name]
    model = model_of(1, 9, capacity, **attributes)
    imported = load_model(model)
    shapes = {
        port.name: tuple(size.dim_value for size in port.type.tensor_type.shape.dim) for port in model.graph.input
    }
    with pytest.raises(kind) as caught:
        specialise(imported, bind_shapes(imported, shapes).shapes)
    assert reason in str(caught.value) and caught.value.origin is not None
