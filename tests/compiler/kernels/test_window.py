"""Pools against onnxruntime, and the tiled transpose, into poisoned memory."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from shaderloom.compiler.kernels import transpose
from shaderloom.compiler.kernels.context import GroupContext
from shaderloom.compiler.kernels.family import build
from shaderloom.compiler.kernels.transpose import TransposeConfig
from shaderloom.compiler.kernels.window import WindowConfig
from shaderloom.runtime.plan.device_profile import WEB

from ...support import kernels as support
from ...support.cases import run_onnxruntime
from ...support.golden import check_golden
from ...support.kernels import compile_kernels, make_model, run_kernels

POOLS = [
    ("MaxPool", (2, 8, 13, 17), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("MaxPool", (2, 8, 13, 17), {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1], "ceil_mode": 1}),
    ("MaxPool", (2, 3, 13, 17), {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [2, 0, 1, 1]}),
    ("MaxPool", (2, 5, 33), {"kernel_shape": [4], "strides": [3], "ceil_mode": 1}),
    ("MaxPool", (1, 4, 7, 6, 5), {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2], "pads": [1, 1, 0, 0, 1, 1]}),
    ("MaxPool", (1, 1, 1, 1), {"kernel_shape": [1, 1]}),
    ("AveragePool", (2, 8, 13, 17), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (
        "AveragePool",
        (2, 8, 13, 17),
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    (
        "AveragePool",
        (2, 7, 13, 17),
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 1, 1, 1], "count_include_pad": 1, "ceil_mode": 1},
    ),
    ("AveragePool", (2, 7, 14, 16), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 1, 1, 1], "ceil_mode": 1}),
    ("AveragePool", (2, 7, 14, 16), {"kernel_shape": [3, 3], "dilations": [2, 2]}),
    ("AveragePool", (2, 4, 14), {"kernel_shape": [3], "auto_pad": "SAME_UPPER"}),
    ("LpPool", (2, 8, 13, 17), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "p": 2}),
    ("LpPool", (2, 3, 13, 17), {"kernel_shape": [3, 3], "strides": [2, 2], "p": 3}),
    ("LpPool", (2, 3, 13, 17), {"kernel_shape": [3, 3], "strides": [2, 2], "p": 1}),
]
IDS = [f"{op}-{number}" for number, (op, _, _) in enumerate(POOLS)]


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize(("op", "shape", "attributes"), POOLS, ids=IDS)
def test_pools_between_kernels(op, shape, attributes, channels_last, each_device):
    """The pool reads and writes the layout of its neighbours, and takes the activation behind it."""
    rank = len(shape) - 2
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[1] * rank),
        helper.make_node(op, ["p"], ["q"], **attributes),
        helper.make_node("Sigmoid", ["q"], ["y"]),
    ]
    feeds = {"x": numbers(*shape)}
    model = make_model(nodes, feeds, ["y"])
    (expected,) = run_onnxruntime(model, feeds)
    ran = run_kernels(each_device, model, feeds, channels_last=channels_last)
    assert ran.templates == ["window", "window"]
    if channels_last and shape[1] % 4 == 0:
        assert dict(ran.kernels[1].config)["lanes"] == 4
    np.testing.assert_allclose(ran.outputs["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("op", "shape", "attributes"), POOLS, ids=IDS)
def test_half_precision_pools(op, shape, attributes, each_device):
    x = numbers(*shape).astype(np.float16)
    nodes = [helper.make_node(op, ["x"], ["y"], **attributes)]
    wide = {"x": x.astype(np.float32)}
    (expected,) = run_onnxruntime(make_model(nodes, wide, ["y"]), wide)
    ran = run_kernels(each_device, make_model(nodes, {"x": x}, ["y"]), {"x": x})
    np.testing.assert_allclose(ran.outputs["y"].astype(np.float64), expected, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(("op", "shape", "attributes"), [pool for pool in POOLS if pool[0] == "MaxPool"])
def test_bytes_are_stored_in_whole_words(op, shape, attributes, dtype, each_device):
    x = np.random.default_rng(3).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    model = make_model([helper.make_node(op, ["x"], ["y"], **attributes)], {"x": x}, ["y"])
    (expected,) = run_onnxruntime(model, {"x": x})
    np.testing.assert_array_equal(run_kernels(each_device, model, {"x": x}).outputs["y"], expected)


def test_bytes_of_four_channels_share_a_word(each_device):
    x = np.random.default_rng(3).integers(-128, 127, (2, 8, 9, 9), np.int8, endpoint=True)
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2]),
        helper.make_node("MaxPool", ["p"], ["q"], kernel_shape=[2, 2]),
        helper.make_node("Cast", ["q"], ["y"], to=1),
    ]
    model = make_model(nodes, {"x": x}, ["y"])
    ran = run_kernels(each_device, model, {"x": x})
    expected = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3)).max((-2, -1))
    np.testing.assert_array_equal(ran.outputs["y"], expected.astype(np.float32))


def test_nan_passes_a_maximum_and_padding_never_wins(each_device):
    x = np.full((1, 4, 6, 6), -1e30, np.float32)
    x[0, 1, 3, 3] = np.nan
    x[0, 2, 0, 0] = -np.inf
    model = make_model(
        [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])], {"x": x}, ["y"]
    )
    found = run_kernels(each_device, model, {"x": x}).outputs["y"]
    assert np.isnan(found[0, 1, 2:5, 2:5]).all() and np.isnan(found).sum() == 9
    assert (found[0, (0, 2, 3)] == np.float32(-1e30)).all()


def test_declared_dynamic_batch_and_height(each_device):
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    nodes = [helper.make_node("AveragePool", ["x"], ["y"], **attributes)]
    model = make_model(nodes, {"x": numbers(1, 4, 8, 9)}, ["y"], dims={"x": ["n", 4, "h", 9]})
    for batch, height in ((1, 8), (3, 13)):
        feeds = {"x": numbers(batch, 4, height, 9)}
        (expected,) = run_onnxruntime(model, feeds)
        found = run_kernels(each_device, model, feeds, dynamic={"n": (1, 8), "h": (4, 64)}).outputs["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_illegal_configurations_are_refused():
    for arguments in ((2, False), (4, True), (1, False, 512)):
        with pytest.raises(ValueError):
            WindowConfig(*arguments)
    for tile in ((32, 5), (64, 8)):
        with pytest.raises(ValueError):
            TransposeConfig(*tile)


@pytest.mark.parametrize("name", ["max_pool", "average_pool_padded"])
def test_golden(name):
    nodes = {
        "max_pool": [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2])],
        "average_pool_padded": [
            helper.make_node(
                "AveragePool", ["x"], ["p"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], dilations=[2, 1], ceil_mode=1
            ),
            helper.make_node("Relu", ["p"], ["y"]),
        ],
    }[name]
    feeds = {"x": np.zeros((1, 4, 9, 8), np.float32)}
    _, made, _ = compile_kernels(make_model(nodes, feeds, ["y"], opset=19), feeds, WEB)
    check_golden(f"wgsl/{name}.wgsl", made[0][0].wgsl)


# -- transposes --------------------------------------------------------------------------------------------------------


@pytest.fixture
def tiled(monkeypatch):
    """Kernels of map groups go through the tile where it applies, whatever the device."""

    def build_tiled(context: GroupContext):
        crossing = transpose.find_transposed_load(context)
        return build(context) if crossing is None else transpose.build(context, crossing)

    monkeypatch.setattr(support, "build", build_tiled)


TRANSPOSES = [
    ((33, 65), (1, 0), True),
    ((3, 40, 31), (0, 2, 1), True),
    ((2, 24, 9, 70), (0, 2, 3, 1), True),
    ((2, 9, 70, 24), (0, 3, 1, 2), True),
    ((70, 5, 80), (2, 1, 0), True),
    ((1000, 64), (1, 0), True),
    ((2, 3, 9, 70), (0, 2, 3, 1), False),  # three channels are not worth a tile
    ((4, 9, 16), (1, 0, 2), False),  # rows stay rows
]


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32])
@pytest.mark.parametrize(("shape", "permutation", "expect_tile"), TRANSPOSES)
def test_tiled_transpose(shape, permutation, expect_tile, dtype, tiled, each_device):
    x = (numbers(*shape) * 40).astype(dtype)
    expected = x.transpose(permutation)
    addend = (numbers(expected.shape[-1]) * 9).astype(dtype)
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=permutation),
        helper.make_node("Add", ["t", "b"], ["y"]),
    ]
    feeds = {"x": x, "b": addend}
    ran = run_kernels(each_device, make_model(nodes, feeds, ["y"]), feeds, kind="discrete")
    assert ran.templates == ["transpose" if expect_tile else "map"]
    np.testing.assert_array_equal(ran.outputs["y"], expected + addend)


def test_no_tile_on_software_drivers_or_for_packed_results(tiled, device):
    x = numbers(64, 64)
    for kind, nodes in (
        ("cpu", [helper.make_node("Transpose", ["x"], ["y"])]),
        ("discrete", [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("Cast", ["t"], ["y"], to=10)]),
    ):
        ran = run_kernels(device, make_model(nodes, {"x": x}, ["y"]), {"x": x}, kind=kind)
        assert ran.templates == ["map"]
        np.testing.assert_array_equal(ran.outputs["y"], x.T.astype(ran.outputs["y"].dtype))
