"""Convolutions on the device against onnxruntime: every template, odd sizes, groups, borders, epilogues."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from onnx import helper

from shaderloom.compiler.kernels.products import depthwise
from shaderloom.compiler.target import WEB_TARGET, target_of
from shaderloom.compiler.target.families import lavapipe
from shaderloom.compiler.tuning.depthwise_tiles import (
    DepthwiseProblem,
    DepthwiseTile,
    Extent,
    depthwise_tiles,
)
from shaderloom.runtime.plan.device_profile import DeviceProfile

from ...support.comparison import reference
from ...support.effort import quick_first
from ...support.kernels import make_model, run_kernels
from ...support.running import compile_for, run_model, run_plan

pytest.importorskip("onnxruntime")

KINDS = ("cpu", "discrete")


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def check(found: np.ndarray, expected: np.ndarray, tolerance: float = 2e-5) -> None:
    assert found.shape == expected.shape and np.isfinite(found).all()
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def compare(device, nodes, feeds, constants, kind: str) -> list[str]:
    """Run, compare the result ``y``, and give the templates of the kernels that ran."""
    model = make_model(nodes, feeds, ["y"], constants=constants)
    ran = run_kernels(device, model, feeds, kind=kind)
    check(ran.outputs["y"], reference(model, feeds)[0])
    return ran.templates


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "outputs", "kernel", "attributes"),
    [
        ((1, 3, 17, 15), 8, (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((2, 8, 7, 9), 12, (3, 3), {"pads": [0, 1, 2, 0]}),
        ((1, 16, 13, 13), 7, (1, 1), {}),
        ((2, 4, 6, 5), 65, (1, 1), {"strides": [2, 2]}),
        ((1, 12, 11, 10), 6, (5, 2), {"dilations": [2, 3], "pads": [3, 0, 1, 2]}),
        ((1, 130, 3, 3), 17, (3, 3), {}),
        ((1, 8, 6, 6), 8, (3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
        ((1, 6, 6, 7), 9, (3, 3), {"group": 3}),
        ((1, 4, 5, 6, 7), 8, (2, 3, 2), {"strides": [1, 2, 1], "pads": [1, 0, 1, 0, 1, 1]}),
        ((1, 8, 21), 4, (5,), {"pads": [2, 2]}),
    ],
)
def test_convolutions(device, kind, shape, outputs, kernel, attributes):
    weight = random(outputs, shape[1] // attributes.get("group", 1), *kernel, seed=1)
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)
    templates = compare(device, [node], {"x": random(*shape)}, {"w": weight, "b": random(outputs)}, kind)
    assert any(template.startswith("gemm") for template in templates)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "multiplier", "kernel", "attributes"),
    [
        ((1, 8, 14, 14), 1, (3, 3), {"pads": [1, 1, 1, 1]}),
        ((2, 7, 9, 11), 1, (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((1, 17, 8, 30), 1, (5, 5), {"pads": [2, 2, 2, 2]}),
        ((1, 4, 9, 7), 3, (3, 2), {"pads": [0, 1, 1, 0]}),
        ((1, 12, 9, 9), 1, (3, 3), {"dilations": [2, 2], "strides": [1, 3]}),
        ((1, 12, 5, 1), 1, (3, 1), {"pads": [1, 0, 1, 0]}),
        ((1, 4, 4, 5, 6), 1, (2, 2, 3), {"pads": [1, 0, 1, 0, 1, 1]}),
    ],
)
def test_depthwise(device, kind, shape, multiplier, kernel, attributes):
    outputs = shape[1] * multiplier
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], group=shape[1], **attributes)
    constants = {"w": random(outputs, 1, *kernel, seed=1), "b": random(outputs)}
    assert "depthwise" in compare(device, [node], {"x": random(*shape)}, constants, kind)


@pytest.mark.parametrize(("rows", "columns"), quick_first([(2, 4), (2, 1), (4, 4), (7, 2)]))
@pytest.mark.parametrize(
    ("shape", "kernel", "attributes"),
    [
        ((2, 8, 14, 14), (3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 7, 9, 11), (3, 3), {"strides": [2, 2], "pads": [1, 0, 0, 1]}),
        ((3, 5, 3, 5), (5, 5), {"pads": [2, 2, 2, 2]}),
        ((1, 12, 9, 9), (3, 2), {"dilations": [2, 3], "strides": [1, 2]}),
        ((1, 4, 1, 3), (1, 3), {"pads": [0, 1, 0, 1], "strides": [2, 1]}),
    ],
)
def test_depthwise_tiles_of_several_rows(device, monkeypatch, rows, columns, shape, kernel, attributes):
    tile = DepthwiseTile(columns, 2, 4, rows)
    monkeypatch.setattr(depthwise, "depthwise_tiles", lambda problem, profile: [tile])
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], group=shape[1], **attributes)
    constants = {"w": random(shape[1], 1, *kernel, seed=1), "b": random(shape[1])}
    assert compare(device, [node], {"x": random(*shape)}, constants, "cpu") == ["depthwise_rows"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "group", "attributes"), [((1, 1, 700), 1, {"strides": [64]}), ((1, 8, 150), 8, {"pads": [0, 9]})]
)
def test_long_windows_are_not_written_out(device, kind, shape, group, attributes):
    """Fourier transforms and filter banks exported as convolutions: their shaders stay short."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=group, **attributes)
    model = make_model([node], {"x": random(*shape)}, ["y"], constants={"w": random(24, 1, 128, seed=1)})
    ran = run_kernels(device, model, {"x": random(*shape)}, kind=kind)
    check(ran.outputs["y"], reference(model, {"x": random(*shape)})[0])
    assert max(len(kernel.wgsl) for kernel in ran.kernels) < 20_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "outputs", "kernel", "attributes"),
    [
        ((1, 8, 5, 7), 12, (2, 2), {"strides": [2, 2]}),
        ((2, 3, 5, 4), 7, (3, 3), {"strides": [2, 3], "pads": [1, 0, 0, 2], "output_padding": [1, 0]}),
        ((1, 6, 4, 5), 4, (3, 3), {"group": 2, "dilations": [2, 1]}),
        ((1, 4, 9), 8, (4,), {"strides": [2], "pads": [1, 1]}),
        ((2, 3, 5), 6, (6,), {"strides": [4], "dilations": [6], "pads": [3, 7]}),
        ((1, 4, 3, 5), 2, (16, 16), {"strides": [16, 16], "pads": [1, 2, 0, 3]}),
        ((1, 5, 4, 3), 3, (3, 4), {"strides": [3, 4], "dilations": [2, 3], "pads": [2, 1, 0, 4]}),
        ((1, 6, 3, 4), 6, (2, 2), {"strides": [3, 3], "group": 3, "output_padding": [1, 2]}),
        ((1, 4, 2, 3, 4), 8, (2, 4, 3), {"strides": [2, 2, 2], "pads": [0, 1, 1, 0, 1, 1]}),
    ],
)
def test_transposed(device, kind, shape, outputs, kernel, attributes):
    weight = random(shape[1], outputs // attributes.get("group", 1), *kernel, seed=1)
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes)
    compare(device, [node], {"x": random(*shape)}, {"w": weight}, kind)


@pytest.mark.parametrize(("kernel", "strides", "work"), [((16, 16), (16, 16), 1), ((5, 3), (4, 2), 4)])
def test_transposed_convolutions_visit_the_taps_that_reach_a_result(kernel, strides, work):
    """A result of kernel 5x3 and strides 4x2 has at most 2 times 2 taps, not 15."""
    feeds = {"x": random(1, 8, 4, 6)}
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=strides)
    model = make_model([node], feeds, ["y"], constants={"w": random(8, 12, *kernel)})
    (call,) = compile_for(model, feeds).calls
    blocks = (3 * strides[0] + kernel[0]) / strides[0], (5 * strides[1] + kernel[1]) / strides[1]
    columns = 12 * strides[0] * strides[1]
    assert call.flops == 2 * work * 8 * columns * math.ceil(blocks[0]) * math.ceil(blocks[1])


@pytest.mark.parametrize("kind", KINDS)
def test_transposed_convolution_of_declared_sizes(device, kind):
    """The number of blocks and the clipping of the first and the last follow the sizes of a run."""
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], strides=[2, 3], pads=[1, 2, 0, 1])
    constants = {"w": random(4, 4, 3, 5, seed=1), "b": random(4)}
    several = [{"x": random(1, 4, *sizes)} for sizes in ((3, 5), (8, 2), (1, 1))]
    model = make_model([node], several[0], ["y"], constants=constants, dims={"x": (1, 4, "H", "W")})
    profile = dataclasses.replace(device.profile, kind=kind)
    plan = compile_for(model, several[0], profile, dynamic={"H": (1, 8), "W": (1, 9)})
    for feeds, (found,) in zip(several, run_plan(device, plan, model, several), strict=True):
        check(found, reference(model, feeds)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_epilogue_is_part_of_the_kernel(device, kind):
    """Bias, residual and activation, and channels last between two convolutions."""
    feeds = {"x": random(1, 8, 9, 9)}
    constants = {"w": random(8, 8, 3, 3, seed=1), "b": random(8), "v": random(8, 8, 1, 1, seed=2)}
    constants["g"] = random(8, 1, 3, 3)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["d"]),
        helper.make_node("Add", ["d", "r"], ["s"]),
        helper.make_node("Clip", ["s", "low", "high"], ["t"]),
        helper.make_node("Conv", ["t", "g"], ["y"], group=8, pads=[1, 1, 1, 1]),
    ]
    constants |= {"low": np.float32(0), "high": np.float32(6)}
    model = make_model(nodes, feeds, ["y"], constants=constants)
    ran = run_kernels(device, model, feeds, kind=kind)
    check(ran.outputs["y"], reference(model, feeds)[0])
    assert len(ran.kernels) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_prologue_is_part_of_the_kernel(device, kind):
    """The input passes an addition, a concatenation of two and an upsampling on its way into the kernel."""
    feeds = {"x": random(1, 4, 5, 5), "z": random(1, 4, 5, 5, seed=3)}
    nodes = [
        helper.make_node("Concat", ["x", "z"], ["c"], axis=1),
        helper.make_node("Resize", ["c", "", "scales"], ["u"], mode="nearest"),
        helper.make_node("Conv", ["u", "w"], ["y"], pads=[1, 1, 1, 1]),
    ]
    constants = {"w": random(12, 8, 3, 3, seed=1), "scales": np.array([1, 1, 2, 2], np.float32)}
    compare(device, nodes, feeds, constants, kind)


def test_weights_in_the_layout_of_the_kernel(device):
    """Relaid and padded weights, through the whole compiler."""
    for outputs in (3, 8, 10):
        feeds = {"x": random(1, 8, 12, 12)}
        node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1])
        constants = {"w": random(outputs, 8, 3, 3, seed=1), "b": random(outputs)}
        model = make_model([node], feeds, ["y"], constants=constants)
        check(run_model(device, model, feeds)[0], reference(model, feeds)[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 5, 16])
def test_dynamic_sizes(device, kind, size):
    feeds = {"x": random(size, 8, 4 + size, 9)}
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    constants = {"w": random(12, 8, 3, 3, seed=1)}
    dims = {"x": ["images", 8, "height", 9]}
    model = make_model([node], feeds, ["y"], dims=dims, constants=constants)
    ran = run_kernels(device, model, feeds, kind=kind, dynamic={"images": (1, 16), "height": (4, 64)})
    check(ran.outputs["y"], reference(model, feeds)[0])


def test_depthwise_convolutions_of_any_workgroup_share_a_kernel(device):
    """8, 32 and 64 vectors of channels have workgroups of three shapes, and 13 columns do not fill tiles."""
    images = {f"x{number}": random(1, channels, 9, 13) for number, channels in enumerate((32, 128, 256))}
    weights = {name.replace("x", "w"): random(image.shape[1], 1, 3, 3) for name, image in images.items()}
    nodes = [
        helper.make_node("Conv", [f"x{number}", f"w{number}"], [f"y{number}"], group=len(weight), pads=[1] * 4)
        for number, weight in enumerate(weights.values())
    ]
    outputs = [node.output[0] for node in nodes]
    model = make_model(nodes, images, outputs, constants=weights)
    plan = compile_for(model, images, dataclasses.replace(device.profile, kind="discrete"))
    results = run_plan(device, plan, model, images)
    for result, expected in zip(results, reference(model, images), strict=True):
        check(result, expected)
    (kernel,) = (each for each in plan.kernels if each.template == "depthwise")
    assert [call.kernel for call in plan.calls].count(kernel.key) == len(nodes)


def test_depthwise_tiles_by_device():
    """lavapipe shares loads among rows too; a thread keeps one row where fewer runs repay compiling, and on GPUs."""
    problem = DepthwiseProblem(24, 112, Extent(112, 3, 1, 1), Extent(112, 3, 1, 1))
    assert depthwise_tiles(problem, lavapipe.TARGET)[0].rows > 1
    assert depthwise_tiles(problem, target_of(DeviceProfile(kind="cpu")))[0].rows == 1
    assert depthwise_tiles(problem, WEB_TARGET)[0].rows == 1
    assert depthwise_tiles(DepthwiseProblem(24, 56, Extent(56, 3, 1, 1), None), lavapipe.TARGET)[0].rows == 1
