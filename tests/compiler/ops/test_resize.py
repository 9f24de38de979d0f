"""Resize against onnxruntime at random sizes, scales and modes.

Two things are left out, because onnxruntime departs from the specification there: it copies an axis whose scale is one
even if ``tf_crop_and_resize`` crops it, and it copies the whole tensor when no size changes, whatever the scales are.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper

from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.ops.registry import registry
from shaderloom.compiler.passes.expand import expand
from shaderloom.compiler.reference.interpreter import run_graph
from shaderloom.runtime.plan.errors import ShapeError

from ...op_cases.case import Case, Tensor
from ...support.cases import OperatorCase, difference, run_onnxruntime
from ...support.kernels import make_model
from ...support.running import compile_for, run_model, run_plan

MODES = [
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
]
SIMPLE = st.sampled_from([0.25, 0.5, 0.6, 0.7, 1.0, 1.3, 1.5, 2.0, 3.0])
#: Simple ones, any float32, and those beside simple ones
SCALES = SIMPLE | st.floats(0.3125, 3.0, width=32) | st.builds(lambda x, d: x + d, SIMPLE, st.floats(-2e-3, 2e-3))


@st.composite
def cases(draw: Any) -> Case:
    height, width = draw(st.integers(1, 13)), draw(st.integers(1, 13))
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    coordinates = draw(st.sampled_from(MODES))
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        roundings = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        attributes["nearest_mode"] = draw(st.sampled_from(roundings))
    if mode == "cubic":
        attributes["exclude_outside"] = draw(st.integers(0, 1))
        attributes["cubic_coeff_a"] = draw(st.sampled_from([-0.5, -0.75]))
    roi = None
    if coordinates == "tf_crop_and_resize":
        attributes["extrapolation_value"] = 7.0
        start = [draw(st.floats(-0.25, 0.4375, width=16)) for _ in range(2)]
        end = [draw(st.floats(0.5, 1.25, width=16)) for _ in range(2)]
        roi = Tensor((8,), "float32", data=[0, 0, *start, 1, 1, *end], constant=True)
    if draw(st.booleans()):
        scales = [1.0, 1.0, draw(SCALES), draw(SCALES)]
        sizes = [int(np.float32(scale) * np.float32(size)) for scale, size in zip(scales[2:], (height, width))]
        resizing: tuple[Tensor | None, ...] = (Tensor((4,), "float32", data=scales, constant=True),)
    else:
        sizes = [draw(st.integers(1, 30)), draw(st.integers(1, 30))]
        resizing = (None, Tensor((4,), "int64", data=[1, 2, *sizes], constant=True))
    assume(min(sizes) > 0)
    assume(sizes != [height, width])
    if roi is not None:
        assume(sizes[0] != height and sizes[1] != width)
    return Case((Tensor((1, 2, height, width)), roi, *resizing), attributes, opset=19, tolerance=1e-4)


def computed(operator: OperatorCase, dims: dict[str, list[str | int]] | None = None) -> np.ndarray:
    """The result by numpy, with axes of ``dims`` declared."""
    imported = load_model(operator.model(dims))
    shapes = {name: array.shape for name, array in operator.feeds.items()}
    dynamic = None if dims is None else {"h": (1, 20), "w": (1, 20)}
    graph = specialise(imported, bind_shapes(imported, shapes, dynamic).shapes)
    expand(graph)
    return run_graph(graph, operator.feeds)[0]


@settings(max_examples=120, deadline=None)
@given(cases())
def test_resize_gives_what_onnxruntime_gives(case: Case) -> None:
    operator = OperatorCase(registry.get("Resize"), case, 0)
    (expected,) = run_onnxruntime(operator.model(), operator.feeds)
    assert difference(computed(operator), expected) <= case.tolerance


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(0, 1))
def test_declared_sizes_give_the_same(case: Case, antialias: int) -> None:
    """But for nearest elements, where rounding decides, and scales whose sizes no integer expression gives."""
    assume(case.attributes["mode"] != "nearest")
    if case.attributes["coordinate_transformation_mode"] != "tf_crop_and_resize":
        case = replace(case, attributes={**case.attributes, "antialias": antialias})
    operator = OperatorCase(registry.get("Resize"), case, 0)
    with suppress(ShapeError):
        found = computed(operator, {"x0": [1, 2, "h", "w"]})
        assert difference(found, computed(operator)) <= case.tolerance


@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scale", [0.99999, 1.00001, 0.7071068, 2.7182817])
def test_scales_that_are_no_simple_fractions(scale: float, mode: str, coordinates: str, device) -> None:
    """Long axes: a position is right to a few parts in a million, by float64 as by the formulas."""
    length = 1000
    x = np.random.default_rng(0).uniform(-1, 1, (1, 1, 1, length)).astype(np.float32)
    after = int(np.floor(np.float32(length) * np.float32(scale)))
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = "floor"
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], **attributes)
    constants = {"s": np.array([1, 1, 1, scale], np.float32)}
    model = make_model([node], {"x": x}, ["y"], opset=19, constants=constants)
    (found,) = run_model(device, model, {"x": x})
    factor, at = 1 / float(np.float32(scale)), np.arange(after)
    position = at * factor if coordinates == "asymmetric" else (at + 0.5) * factor - 0.5
    floor = np.floor(position).astype(int)
    t = position - floor

    def element(place: int) -> np.ndarray:
        return x[0, 0, 0].astype(np.float64)[np.clip(floor + place, 0, length - 1)]

    if mode == "nearest":
        clear = (t > 1e-3) & (t < 1 - 1e-3)  # elsewhere float32, in which onnxruntime computes, decides
        assert np.array_equal(found[0, 0, 0][clear], element(0)[clear])
        return
    if mode == "linear":
        expected = (1 - t) * element(0) + t * element(1)
    else:
        expected = sum(weight * element(place) for place, weight in zip(range(-1, 3), cubic_weights(t)))
    assert np.abs(found[0, 0, 0] - expected).max() <= 4e-6


def cubic_weights(t: np.ndarray, a: float = -0.75) -> list[np.ndarray]:
    def near(d: np.ndarray) -> np.ndarray:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: np.ndarray) -> np.ndarray:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(1 + t), near(t), near(1 - t), far(2 - t)]


def test_such_a_scale_with_a_declared_size(device) -> None:
    """The size is known at run time only."""
    for mode, scale in (("linear", 0.3333), ("cubic", 0.99999), ("cubic", 0.3333), ("nearest", 0.3333)):
        node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode)
        x = np.random.default_rng(1).uniform(-1, 1, (1, 1, 1, 90)).astype(np.float32)
        constants = {"s": np.array([1, 1, 1, scale], np.float32)}
        model = make_model([node], {"x": x}, ["y"], opset=19, constants=constants, dims={"x": (1, 1, 1, "w")})
        fixed = make_model([node], {"x": x}, ["y"], opset=19, constants=constants)
        plan = compile_for(model, {"x": x}, device.profile, dynamic={"w": (30, 99)})
        assert difference(run_plan(device, plan, model, {"x": x})[0], run_onnxruntime(fixed, {"x": x})[0]) <= 2e-5
