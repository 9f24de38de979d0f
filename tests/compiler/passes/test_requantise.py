"""Quantisation of what was just dequantised, with the same parameters and with others."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from ...support.comparison import reference
from ...support.kernels import make_model
from ...support.passes import lower_model
from ...support.running import compile_for, run_plan

node = helper.make_node

SCALE, ZERO = np.float32(0.0173), np.uint8(131)


def quantised_twice(scale: np.ndarray, zero: np.ndarray, first: np.ndarray | None = None):
    """Numbers that are quantised, with the scale ``first``, moved, and quantised again with ``scale`` and ``zero``."""
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["a"]),
        node("Reshape", ["a", "shape"], ["b"]),
        node("Transpose", ["b"], ["c"], perm=[1, 0, 2]),
        node("QuantizeLinear", ["c", "t", "w"], ["p"]),
        node("DequantizeLinear", ["p", "t", "w"], ["d"]),
        node("Exp", ["d"], ["y"]),
    ]
    constants = {
        "s": np.array(SCALE) if first is None else first,
        "z": np.array(ZERO),
        "t": scale,
        "w": zero,
        "shape": np.array([3, 4, 8]),
    }
    feeds = {"x": np.random.default_rng(0).uniform(-3, 3, (12, 8)).astype(np.float32)}
    return make_model(nodes, feeds, ["y"], constants=constants), feeds


@pytest.mark.parametrize(
    ("scale", "zero", "count"),
    [
        (np.array(SCALE), np.array(ZERO), 1),
        (np.array([SCALE]), np.array([ZERO]), 1),
        (np.array(SCALE), np.array(130, np.uint8), 2),
        (np.array(0.02, np.float32), np.array(ZERO), 2),
        (np.array(SCALE), np.array(3, np.int8), 2),
        (np.full(8, SCALE), np.full(8, ZERO), 2),
    ],
)
def test_moved_numbers_are_quantised_once(device, scale: np.ndarray, zero: np.ndarray, count: int) -> None:
    model, feeds = quantised_twice(scale, zero)
    if scale.size > 1:
        for each in model.graph.node[4:6]:
            each.attribute.add(name="axis", type=2, i=2)
    graph = lower_model(model, {name: array.shape for name, array in feeds.items()}).graph
    assert sum(each.op == "Quantize" for each in graph.nodes) == count
    (expected,) = reference(model, feeds, optimised=True)
    (found,) = run_plan(device, compile_for(model, feeds, device.profile), model, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-38, 3e36])
def test_scales_near_the_ends_of_the_range_are_left(scale: float) -> None:
    model, feeds = quantised_twice(np.array(scale, np.float32), np.array(ZERO), np.array(scale, np.float32))
    graph = lower_model(model, {name: array.shape for name, array in feeds.items()}).graph
    assert sum(each.op == "Quantize" for each in graph.nodes) == 2
