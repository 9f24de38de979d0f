"""Declared ranges from 1 on: one token, or one row, has a plan of its own beside that of the range.

Covers: shaderloom/model/served_sizes, shaderloom/model/feeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import shaderloom
from shaderloom.bundles.compile import compile_bundle
from shaderloom.inspect.inspected_plan import inspect_model
from shaderloom.inspect.report.page import render_report
from shaderloom.model.model import Model
from shaderloom.runtime.plan.device_profile import WEB

from ...support.sessions import engine_of

WIDTH = 32
DECLARED = {"s": (1, 64), "p": (1, 128), "t": (2, 192)}


def decoder(dtype: Any) -> bytes:
    """Attention of s tokens over p that are past and themselves, between projections, with the mean of t numbers."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    draw = np.random.default_rng(3)
    weights = [
        numpy_helper.from_array((draw.standard_normal(shape) / WIDTH**0.5).astype(dtype), name)
        for name, shape in (("w_in", (WIDTH, WIDTH)), ("w_up", (WIDTH, 4 * WIDTH)), ("w_down", (4 * WIDTH, WIDTH)))
    ] + [numpy_helper.from_array(np.array([-1]), "last")]
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w_in"], ["h"]),
        node("Concat", ["past", "h"], ["present"], axis=1),
        node("Transpose", ["present"], ["keys"], perm=[0, 2, 1]),
        node("MatMul", ["h", "keys"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "present"], ["mixed"]),
        node("MatMul", ["mixed", "w_up"], ["up"]),
        node("Tanh", ["up"], ["active"]),
        node("MatMul", ["active", "w_down"], ["down"]),
        node("ReduceMean", ["mask", "last"], ["bias"]),
        node("Add", ["down", "bias"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    inputs = [info("x", kind, [1, "s", WIDTH]), info("past", kind, [1, "p", WIDTH]), info("mask", kind, [1, 1, "t"])]
    outputs = [info("y", kind, [1, "s", WIDTH]), info("present", kind, [1, "all", WIDTH])]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, weights)
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    onnx.checker.check_model(model)
    return model.SerializeToString()


def feeds_of(sequence: int, past: int, dtype: Any) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(sequence + 100 * past)
    sizes = {"x": (1, sequence, WIDTH), "past": (1, past, WIDTH), "mask": (1, 1, past + sequence)}
    return {name: draw.standard_normal(shape).astype(dtype) for name, shape in sizes.items()}


@pytest.mark.parametrize(
    ("dtype", "precision", "tolerance"),
    [
        pytest.param(np.float32, "float32", 2e-5, id="float32"),
        pytest.param(np.float16, "float32", 4e-3, id="declared float16", marks=pytest.mark.slow),
        pytest.param(np.float32, "float16", 4e-3, id="half precision", marks=pytest.mark.slow),
    ],
)
def test_one_token_has_a_plan_that_shares_the_weights(device, dtype: Any, precision: str, tolerance: float) -> None:
    model = decoder(dtype)
    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    keys, weights = [], []
    options = {} if precision == "float32" else {"precision": precision}
    with shaderloom.InferenceSession(model, device=device, cache=False, dynamic=DECLARED, options=options) as session:
        for sequence, past in ((7, 3), (1, 10), (1, 11), (1, 60), (5, 1), (1, 12), (33, 2)):
            feeds = feeds_of(sequence, past, dtype)
            for found, expected in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
                np.testing.assert_allclose(found.astype(float), expected.astype(float), atol=tolerance)
            keys.append(session.stats.last_key)
            weights.append(engine_of(session).resources.pool.bytes)
        stats = session.stats
        whole, token, first = (
            f"x=1x{s}x{WIDTH}, past=1x{p}x{WIDTH}, mask=1x1xt" for s, p in (("s", "p"), (1, "p"), ("s", 1))
        )
        assert keys == [whole, token, token, token, first, token, whole]
        assert (stats.ranges, stats.points, stats.misses) == ([whole, token, first], [], 3)
        assert len(set(weights)) == 1, "all plans read the same copies"
        assert set(session.report({"x": (1, 1, WIDTH), "past": (1, 9, WIDTH), "mask": (1, 1, 10)})["symbols"]) == {
            "p",
            "t",
        }


def test_points_of_declared_ranges_are_listed(device) -> None:
    model = Model(decoder(np.float32), dynamic=DECLARED, cache=False)
    shapes = {name: feed.shape for name, feed in feeds_of(1, 10, np.float32).items()}
    inspected = inspect_model(model, shapes, WEB)
    assert [symbol.name for symbol in inspected.plan.symbols] == ["p", "t"]
    assert inspected.facts["dynamic"] == {
        "mode": "declared",
        "ranges": ["s 1 to 64", "p 1 to 128", "t 2 to 192"],
        "points": ["x=1x1x32, past=1xpx32, mask=1x1xt"],
        "refused": {},
    }
    page = render_report(inspected)
    assert (
        "<dt>ranges with plans of their own (dynamic declared)</dt><dd>s 1 to 64; p 1 to 128; t 2 to 192</dd>" in page
    )
    assert (
        "<dt>points with plans of their own (dynamic declared)</dt><dd>x=1x1x32, past=1xpx32, mask=1x1xt</dd>" in page
    )


def test_bundles_have_the_plan_of_the_range(device, tmp_path) -> None:
    model, feeds = decoder(np.float32), feeds_of(1, 10, np.float32)
    path = tmp_path / "decoder.shaderbundle"
    shapes = [{name: feed.shape for name, feed in feeds.items()}]
    compile_bundle(model, path, shapes=shapes, dynamic=DECLARED, target="web-software")
    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    with shaderloom.load_bundle(path, device=device) as session:
        for sequence, past in ((1, 10), (7, 3)):
            feeds = feeds_of(sequence, past, np.float32)
            for found, expected in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
                np.testing.assert_allclose(found, expected, atol=2e-5)
        assert session.stats.misses == 1
        assert session.report()["dynamic"]["ranges"] == ["p 1 to 128", "s 1 to 64", "t 2 to 192"]
