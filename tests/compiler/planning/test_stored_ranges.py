"""Kernels that find the range of what they store, in place of kernels that read it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from ...support.kernels import make_model
from ...support.running import compile_for, run_plan

NODE = helper.make_node
GENERATOR = np.random.default_rng(7)
QUANTISE = NODE("DynamicQuantizeLinear", ["t"], ["q", "scale", "zero"])
NAMES = ["q", "scale", "zero"]


def floats(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


#: name -> nodes that compute t from x, the shape of x, constants, the template that stores t on a GPU
PRODUCERS: dict[str, tuple[Sequence[onnx.NodeProto], tuple[int, ...], dict[str, np.ndarray], str]] = {
    "product": (
        [NODE("MatMul", ["x", "w"], ["p"]), NODE("Add", ["p", "b"], ["s"]), NODE("Relu", ["s"], ["t"])],
        (67, 33),
        {"w": floats(33, 132), "b": floats(132)},
        "gemm_shared",
    ),
    "product with columns that fill no vector": (
        [NODE("MatMul", ["x", "w"], ["t"])],
        (91, 16),
        {"w": floats(16, 131)},
        "gemm_shared",
    ),
    "convolution": (
        [NODE("Conv", ["x", "w"], ["p"], pads=[1, 1, 1, 1]), NODE("Clip", ["p", "", "six"], ["t"])],
        (1, 8, 23, 29),
        {"w": floats(20, 8, 3, 3), "six": np.array(0.75, np.float32)},
        "gemm_shared",
    ),
    "normalisation": (
        [NODE("LayerNormalization", ["x", "g", "b"], ["t"])],
        (70, 130),
        {"g": floats(130), "b": floats(130)},
        "reduce_workgroup",
    ),
    "pool": ([NODE("MaxPool", ["x"], ["t"], kernel_shape=[3, 3], strides=[2, 2])], (1, 12, 60, 61), {}, "window"),
    # numbers behind the last would be cosines of 0, the largest
    "elements": ([NODE("Sin", ["x"], ["s"]), NODE("Cos", ["s"], ["t"])], (5, 1693), {}, "map"),
    "views": (
        [
            NODE("MatMul", ["x", "w"], ["p"]),
            NODE("Transpose", ["p"], ["r"], perm=[1, 0, 2]),
            NODE("Reshape", ["r", "s"], ["t"]),
        ],
        (6, 50, 40),
        {"w": floats(40, 44), "s": np.array([50, 264], np.int64)},
        "gemm_shared",
    ),
}


def make(case: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    nodes, shape, constants, _ = PRODUCERS[case]
    feeds = {"x": floats(*shape) if case != "elements" else GENERATOR.uniform(0.8, 1.5, shape).astype(np.float32)}
    return make_model([*nodes, QUANTISE], feeds, NAMES, constants=constants, opset=17), feeds


def templates(plan: Any) -> list[str]:
    names = {kernel.key: kernel.template for kernel in plan.kernels}
    return [names[call.kernel] for call in plan.calls]


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("case", PRODUCERS)
def test_kernels_find_ranges(each_device, case, kind):
    """The numbers are exactly those of a kernel of its own, and onnxruntime's within a step.

    Where threads share nothing, those with few elements store no ranges: of these, threads of normalisations have many.
    """
    model, feeds = make(case)
    profile = replace(each_device.profile, kind=kind)
    plan = compile_for(model, feeds, profile)
    apart = compile_for(model, feeds, profile, disabled_passes=("ranges",))
    assert templates(apart).count("partial_range") == 1
    if kind == "discrete" or case == "normalisation":
        assert "partial_range" not in templates(plan) and len(apart.calls) == len(plan.calls) + 1
    if kind == "discrete":
        assert PRODUCERS[case][-1] in templates(plan)
    found = run_plan(each_device, plan, model, feeds)
    for array, other in zip(found, run_plan(each_device, apart, model, feeds), strict=True):
        np.testing.assert_array_equal(array, other)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(found[0].astype(int), expected[0], atol=1)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_nan_is_kept(device, kind, sign):
    model, feeds = make("product with columns that fill no vector")
    feeds["x"][17, 3] = np.copysign(np.float32(np.nan), sign)
    plan = compile_for(model, feeds, replace(device.profile, kind=kind))
    assert np.isnan(run_plan(device, plan, model, feeds)[1])


def test_halves_have_the_range_that_is_stored(device):
    """The largest number is halfway between two halves, and rounded before it counts."""
    feeds = {"x": np.full((101, 100), 0.5, np.float32)}
    feeds["x"][50, 50] = 1.0 + 2.0**-11
    nodes = [NODE("MatMul", ["x", "w"], ["t"]), QUANTISE]
    model = make_model(nodes, feeds, NAMES, constants={"w": np.eye(100, dtype=np.float32)})
    profile = replace(device.profile, kind="discrete")
    plans = [
        compile_for(model, feeds, profile, precision="float16", disabled_passes=passes) for passes in ((), ("ranges",))
    ]
    assert "partial_range" not in templates(plans[0])
    scales = [run_plan(device, plan, model, feeds)[1] for plan in plans]
    assert scales[0] == scales[1] == np.float32(1 / 255)


@pytest.mark.parametrize(("kind", "columns"), [("cpu", 384), ("discrete", 36)])
def test_sizes_of_the_run(device, kind, columns):
    """The number of parts is one of each run; a run without rows has range 0."""
    several = [{"x": floats(rows, 40)} for rows in (300, 3, 129)] + [{"x": np.zeros((0, 40), np.float32)}]
    nodes = [NODE("MatMul", ["x", "w"], ["t"]), QUANTISE]
    model = make_model(nodes, several[0], NAMES, dims={"x": ["n", 40]}, constants={"w": floats(40, columns)})
    plan = compile_for(model, several[0], replace(device.profile, kind=kind), dynamic={"n": (0, 400)})
    assert "partial_range" not in templates(plan)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for feeds, found in zip(several, run_plan(device, plan, model, several), strict=True):
        if not len(feeds["x"]):
            assert found[1] == 1 and found[2] == 0
            continue
        expected = session.run(None, feeds)
        np.testing.assert_allclose(found[0].astype(int), expected[0], atol=1)
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)


def test_inputs_are_read_for_their_range(device):
    """No kernel stores an input, nor what a run does not compute."""
    feeds = {"t": floats(100, 100)}
    model = make_model([QUANTISE], feeds, NAMES)
    assert "partial_range" in templates(compile_for(model, feeds, device.profile))


def test_a_kernel_without_room_stores_no_range(device):
    """Where all buffers of a kernel are taken, the range has a kernel of its own."""
    model, feeds = make("product")
    limits = {**device.profile.limits, "max-storage-buffers-per-shader-stage": 4}
    plan = compile_for(model, feeds, replace(device.profile, limits=limits))
    assert "partial_range" in templates(plan)
    reasons = [refusal.why for refusal in plan.notes.not_fused if "DynamicQuantize" in refusal.consumer]
    assert "the kernel would bind too many buffers" in reasons
