"""Resize against onnxruntime at random sizes, scales and modes.

Two things are left out, because onnxruntime departs from the specification there: it copies an axis whose scale is one
even if ``tf_crop_and_resize`` crops it, and it copies the whole tensor when no size changes, whatever the scales are.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.interpret import run_graph
from shaderloom.compiler.ops.registry import Case, Tensor, registry
from shaderloom.compiler.passes.expand import expand
from shaderloom.compiler.specialise import bind_shapes, specialise

from .support.cases import OperatorCase, difference, run_onnxruntime

MODES = [
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
]
#: Positions come from a ratio of integers of limited size; a scale beside a simple one is off by its distance from it.
RATIOS = st.floats(0.3125, 3.0, width=32).filter(
    lambda scale: abs(Fraction(scale).limit_denominator(512) - scale) < 2e-6
)
SCALES = st.sampled_from([0.25, 0.5, 0.6, 0.7, 1.0, 1.3, 1.5, 2.0, 3.0]) | RATIOS


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
        start = [draw(st.integers(-20, 40)) / 100 for _ in range(2)]
        end = [draw(st.integers(50, 120)) / 100 for _ in range(2)]
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


@settings(max_examples=120, deadline=None)
@given(cases())
def test_resize_gives_what_onnxruntime_gives(case: Case) -> None:
    operator = OperatorCase(registry.get("Resize"), case, 0)
    model = operator.model()
    imported = load_model(model)
    shapes = {name: array.shape for name, array in operator.feeds.items()}
    graph = specialise(imported, bind_shapes(imported, shapes).shapes)
    expand(graph)
    (actual,) = run_graph(graph, operator.feeds)
    (expected,) = run_onnxruntime(model, operator.feeds)
    assert difference(actual, expected) <= case.tolerance
