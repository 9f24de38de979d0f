"""Winograd's filtering: the matrices exactly, the pass, and its kernels on the device against onnxruntime.

Covers: compiler/kernels/products, compiler/passes/winograd, compiler/ops/math/winograd.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import onnx
import pytest
from onnx import helper

from shaderloom.compiler.ops.math.winograd import TAPS, TILE_OUTPUTS, transform
from shaderloom.compiler.passes import winograd as winograd_pass
from shaderloom.compiler.reference.interpreter import run_graph
from shaderloom.compiler.remarks import Remark
from shaderloom.compiler.target import WEB_TARGET, target_of
from shaderloom.compiler.tuning.winograd_tiles import WinogradProblem, tile_outputs
from shaderloom.runtime.plan.device_profile import DeviceProfile

from ...support.comparison import reference
from ...support.kernels import make_model
from ...support.passes import lower_model
from ...support.running import compile_for, run_plan

pytest.importorskip("onnxruntime")

LAVAPIPE = DeviceProfile(kind="cpu", driver="lavapipe", features=frozenset({"subgroup"}), subgroup_size=8)
SWIFTSHADER = replace(LAVAPIPE, driver="SwiftShader driver", adapter="SwiftShader", subgroup_size=4)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def convolution(shape: tuple[int, ...], features: int, **attributes: object) -> onnx.ModelProto:
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    return make_model([node], {"x": random(*shape)}, ["y"], constants={"w": random(features, shape[1], 3, 3, seed=1)})


def lowered(model: onnx.ModelProto, shape: tuple[int, ...], remarks: list[Remark] | None = None, profile=LAVAPIPE):
    return lower_model(model, {"x": shape}, profile, remarks=remarks)


@pytest.mark.parametrize("outputs", TILE_OUTPUTS)
def test_matrices_compute_the_filter_exactly(outputs):
    """sum over points of result * weight * data is 1 where a tap meets its element, else 0, in exact arithmetic."""
    matrices = transform(outputs)
    data, result = ([[Fraction(entry) for entry in row] for row in rows] for rows in (matrices.data, matrices.result))
    for entry in (entry for row in (*data, *result) for entry in row):
        assert Fraction(float(np.float32(float(entry)))) == entry
    # the matrix of weights is not exact in binary: its entries are quotients
    weight = [[Fraction(entry).limit_denominator(10**6) for entry in row] for row in matrices.weight]
    points = range(matrices.size)
    for output in range(outputs):
        for tap in range(TAPS):
            for element in points:
                total = sum(result[output][p] * weight[p][tap] * data[p][element] for p in points)
                assert total == (element == output + tap)


def test_rounding_stays_near_that_of_a_direct_sum():
    """Largest error of f32 arithmetic with 256 channels, over the largest result: within 4 times the direct one's."""
    channels, matrices = 256, transform(4)
    generator = np.random.default_rng(0)
    tiles = np.maximum(generator.standard_normal((100, channels, 6, 6)), 0).astype(np.float32)
    weight = (generator.standard_normal((8, channels, 3, 3)) / 48).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(tiles, (3, 3), (2, 3))
    exact = np.einsum("tcyxab,ocab->toyx", windows.astype(np.float64), weight.astype(np.float64))
    direct = np.zeros(exact.shape, np.float32)
    products = np.zeros((100, 8, 6, 6), np.float32)
    data, transformed, result = (np.asarray(m, np.float32) for m in (matrices.data, matrices.weight, matrices.result))
    points = np.einsum("ia,tcab,jb->tcij", data, tiles, data)
    filters = np.einsum("ia,ocab,jb->ocij", transformed, weight, transformed)
    for channel in range(channels):
        products += points[:, None, channel] * filters[None, :, channel]
        for tap in np.ndindex(3, 3):
            direct += (
                windows[:, None, channel, :, :, tap[0], tap[1]] * weight[None, :, channel, tap[0], tap[1], None, None]
            )
    filtered = np.einsum("ia,toab,jb->toij", result, products, result)
    error, least = (np.abs(found - exact).max() / np.abs(exact).max() for found in (filtered, direct))
    assert error < 4 * least and error < 1e-5


# -- the pass --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "features", "attributes", "reason"),
    [
        ((1, 64, 28, 28), 64, {"pads": [1, 1, 1, 1]}, None),
        ((1, 64, 28, 28), 66, {}, "the channels are no whole vectors"),
        ((1, 3, 28, 28), 64, {}, "the channels are no whole vectors"),
        ((1, 4, 5, 5), 4, {}, "a direct sum is faster"),
    ],
)
def test_which_convolutions_are_rewritten(shape, features, attributes, reason):
    remarks: list[Remark] = []
    graph = lowered(convolution(shape, features, **attributes), shape, remarks).graph
    (entry,) = [entry for entry in remarks if entry.rule == "winograd"]
    assert entry.refused == reason
    assert any(node.op == "WinogradInput" for node in graph.nodes) == (reason is None)


@pytest.mark.parametrize("driver", [LAVAPIPE, SWIFTSHADER], ids=["lavapipe", "SwiftShader"])
def test_weights_of_bytes_stay_as_small_as_they_are(driver):
    """Except where the direct sum was measured as slower."""
    scale, codes = np.array(0.01, np.float32), np.full((64, 64, 3, 3), 7, np.int8)
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "scale"], ["w"]),
        helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]),
    ]
    model = make_model(nodes, {"x": random(1, 64, 28, 28)}, ["y"], constants={"codes": codes, "scale": scale})
    operators = {node.op for node in lower_model(model, {"x": (1, 64, 28, 28)}, driver).graph.nodes}
    assert ("WinogradInput" in operators) == (driver is SWIFTSHADER)


@pytest.mark.parametrize("attributes", [{"strides": [2, 2]}, {"dilations": [2, 2]}, {"group": 2, "pads": [1, 1, 1, 1]}])
def test_other_convolutions_are_left_alone(attributes):
    weight = random(64, 64 // attributes.get("group", 1), 3, 3)
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    model = make_model([node], {"x": random(1, 64, 28, 28)}, ["y"], constants={"w": weight})
    assert not [node for node in lowered(model, (1, 64, 28, 28)).graph.nodes if node.op.startswith("Winograd")]


def test_tile_sizes():
    """Large tiles on large images; small ones where large ones would be empty; none on a device without a model."""
    assert tile_outputs(WinogradProblem(1, 56, 56, 64, 64), target_of(LAVAPIPE)) == 4
    assert tile_outputs(WinogradProblem(1, 7, 7, 512, 512), target_of(LAVAPIPE)) == 2
    assert tile_outputs(WinogradProblem(1, 56, 56, 64, 64), WEB_TARGET) is None


def test_no_tensor_is_larger_than_a_binding():
    """dnsmos: a sound of nine seconds is a picture of 900 by 161 with 128 channels."""
    for height in (56, 100, 300, 450, 900, 2000, 4000):
        outputs = tile_outputs(WinogradProblem(1, height, 161, 128, 128), target_of(LAVAPIPE))
        if outputs is not None:
            tiles = -(-height // outputs) * -(-161 // outputs)
            assert 4 * (outputs + 2) ** 2 * tiles * 128 <= LAVAPIPE.limit("max-storage-buffer-binding-size")
    assert tile_outputs(WinogradProblem(1, 4000, 161, 128, 128), target_of(LAVAPIPE)) is None


def test_the_interpreter_agrees(monkeypatch):
    """Values and shapes of the rewritten graph, without a device."""
    for outputs in TILE_OUTPUTS:
        monkeypatch.setattr(winograd_pass, "tile_outputs", lambda problem, profile, chosen=outputs: chosen)
        for shape, pads in (((2, 8, 9, 6), [1, 0, 2, 1]), ((1, 4, 3, 5), [0, 0, 0, 0])):
            model, feeds = convolution(shape, 12, pads=pads), {"x": random(*shape)}
            graph = lowered(model, shape).graph
            assert any(node.op == "WinogradOutput" for node in graph.nodes)
            (found,), (expected,) = run_graph(graph, feeds), reference(model, feeds)
            assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


# -- on the device ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", TILE_OUTPUTS)
@pytest.mark.parametrize(
    ("shape", "features", "pads"),
    [
        ((1, 8, 8, 8), 8, [1, 1, 1, 1]),
        ((1, 4, 3, 3), 4, [0, 0, 0, 0]),
        ((2, 12, 7, 9), 20, [1, 1, 1, 1]),
        ((1, 64, 17, 5), 68, [0, 2, 1, 0]),
        ((3, 16, 1, 1), 8, [1, 1, 1, 1]),
    ],
)
def test_convolutions(device, monkeypatch, outputs, shape, features, pads):
    """Bias, a residual and an activation are part of the last kernel; the producer is part of the first."""
    monkeypatch.setattr(winograd_pass, "tile_outputs", lambda problem, profile: outputs)
    height, width = (size + pads[axis] + pads[axis + 2] - 2 for axis, size in enumerate(shape[2:]))
    feeds = {"x": random(*shape), "r": random(shape[0], features, height, width, seed=2)}
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Conv", ["n", "w", "b"], ["c"], pads=pads),
        helper.make_node("Add", ["c", "r"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    constants = {"w": random(features, shape[1], 3, 3, seed=1), "b": random(features)}
    model = make_model(nodes, feeds, ["y"], constants=constants)
    plan = compile_for(model, feeds, device.profile)
    kernels = {kernel.key: kernel.template for kernel in plan.kernels}
    templates = [kernels[call.kernel] for call in plan.calls]
    assert [templates[0], templates[-1], len(templates)] == ["winograd_input", "winograd_output", 3]
    (found,) = run_plan(device, plan, model, feeds)
    (expected,) = reference(model, feeds)
    assert found.shape == expected.shape and np.isfinite(found).all()
    assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


def test_weights_of_all_sizes_are_made_by_one_product():
    """A software driver compiles a large tile for longer than the small one takes to make the weights."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["t"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["t", "w1"], ["y"], pads=[1, 1, 1, 1]),
    ]
    constants = {"w0": random(128, 64, 3, 3), "w1": random(96, 128, 3, 3)}
    feeds = {"x": random(1, 64, 28, 28)}
    plan = compile_for(make_model(nodes, feeds, ["y"], constants=constants), feeds, LAVAPIPE)
    products = [kernel for kernel in plan.kernels if kernel.template == "gemm_subgroup"]
    makers = {call.kernel for weight in plan.weights for call in weight.calls}
    (maker,) = [kernel for kernel in products if kernel.key in makers]
    assert dict(maker.config) == {"rows": 2, "columns": 4, "subgroup": 8}


@pytest.mark.parametrize("outputs", TILE_OUTPUTS)
def test_halves(device, monkeypatch, outputs):
    """With half storage the transformed weight is stored so; tiles and their products are not."""
    monkeypatch.setattr(winograd_pass, "tile_outputs", lambda problem, profile: outputs)
    model, feeds = convolution((1, 64, 17, 15), 64, pads=[1, 1, 1, 1]), {"x": random(1, 64, 17, 15)}
    plan, whole = (compile_for(model, feeds, device.profile, precision=each) for each in ("float16", "float32"))
    assert len(plan.calls) == len(whole.calls) == 3
    assert 2 * plan.notes.memory.weight_bytes == whole.notes.memory.weight_bytes
    (found,), (expected,) = run_plan(device, plan, model, feeds), reference(model, feeds)
    assert np.abs(found - expected).max() <= 2e-3 * np.abs(expected).max()
