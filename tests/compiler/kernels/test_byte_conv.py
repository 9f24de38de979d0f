"""Convolutions of bytes: exact ones of quantised tensors.

Covers: compiler/kernels/products/byte_conv, compiler/passes/byte_convolutions, compiler/ops/internal/byte_convolution.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import helper

from shaderloom.compiler.target import target_of
from shaderloom.compiler.tuning import gemm_tiles
from shaderloom.compiler.tuning.gemm_tiles import Problem

from ...support.comparison import reference
from ...support.running import compile_for, run_plan
from .test_byte_gemm import RANGES, labels, without_instruction
from .test_packed_gemm import model_of

Window = dict[str, list[int]]


def slid(value: np.ndarray, weight: np.ndarray, window: Window) -> np.ndarray:
    """The convolution in int64, with a border of zeros."""
    spatial = value.ndim - 2
    strides, dilations = (window.get(name, [1] * spatial) for name in ("strides", "dilations"))
    pads = window.get("pads", [0] * 2 * spatial)
    value = np.pad(value.astype(np.int64), [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:])])
    sizes = [
        (size - dilation * (extent - 1) - 1) // stride + 1
        for size, extent, stride, dilation in zip(value.shape[2:], weight.shape[2:], strides, dilations)
    ]
    result = np.zeros((value.shape[0], weight.shape[0], *sizes), np.int64)
    for tap in itertools.product(*map(range, weight.shape[2:])):
        at = tuple(
            slice(number * dilation, number * dilation + (size - 1) * stride + 1, stride)
            for number, size, stride, dilation in zip(tap, sizes, strides, dilations)
        )
        result += np.einsum("nc...,oc->no...", value[(..., *at)], weight[(..., *tap)].astype(np.int64))
    return result


def integers(
    shape: tuple[int, ...],
    filters: tuple[int, ...],
    window: Window,
    types: tuple[str, str] = ("uint8", "uint8"),
    zeros: tuple[int | None, int | str | None] = (117, 128),
) -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    """ConvInteger: the model, its input and its result; zero points are None, a number, or "outputs"."""
    rng = np.random.default_rng((*shape, *filters))
    x, w = (rng.integers(*RANGES[kind], size).astype(kind) for kind, size in zip(types, (shape, filters)))
    constants, inputs, factors = {"w": w}, ["x", "w", "", ""], [x.astype(np.int64), w.astype(np.int64)]
    for number, (zero, kind) in enumerate(zip(zeros, types)):
        if zero is None:
            continue
        array = rng.integers(*RANGES[kind], filters[0]) if zero == "outputs" else np.array(zero)
        constants[f"z{number}"], inputs[2 + number] = array.astype(kind), f"z{number}"
        factors[number] = factors[number] - array.reshape(array.shape + (1,) * (len(filters) - 1 if array.ndim else 0))
    node = helper.make_node("ConvInteger", inputs, ["y"], **window)
    return model_of([node], x, constants), x, slid(*factors, window)


PADDED: Window = {"pads": [1, 1, 1, 1]}


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize(
    ("shape", "filters", "window", "types", "zeros"),
    [
        ((2, 3, 13, 11), (10, 3, 3, 3), PADDED, ("uint8", "int8"), (117, None)),
        ((1, 32, 9, 7), (12, 32, 3, 3), {"pads": [0, 1, 2, 1]}, ("uint8", "uint8"), (3, 120)),
        pytest.param((3, 20, 8, 9), (8, 20, 1, 1), {}, ("int8", "int8"), (None, None), marks=pytest.mark.slow),
        pytest.param((3, 20, 8, 9), (8, 20, 1, 1), {}, ("uint8", "uint8"), (200, 7), marks=pytest.mark.slow),
        pytest.param(
            (1, 6, 21, 17), (5, 6, 7, 5), {"strides": [2, 3], "pads": [3, 2, 3, 2]}, ("int8", "uint8"), (-5, "outputs"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            (1, 16, 15, 15), (4, 16, 3, 3), {"dilations": [2, 3], **PADDED}, ("uint8", "uint8"), (128, 128),
            marks=pytest.mark.slow,
        ),
        pytest.param((2, 8, 40), (12, 8, 5), {"pads": [2, 2]}, ("uint8", "int8"), (7, None), marks=pytest.mark.slow),
        pytest.param((2, 8, 40), (9, 8, 5), {"pads": [2, 1]}, ("int8", "int8"), (7, "outputs"), marks=pytest.mark.slow),
        pytest.param(
            (1, 5, 6, 7, 8), (6, 5, 3, 2, 3), {"pads": [1, 0, 1, 1, 1, 0]}, ("uint8", "uint8"), (9, 77),
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_integers(device, kind, shape, filters, window, types, zeros):
    """Channels that are no whole words, outputs that are no whole vectors; the border is what stands for zero."""
    model, x, expected = integers(shape, filters, window, types, zeros)
    plan = compile_for(model, {"x": x}, replace(device.profile, kind=kind))
    assert ("ByteConvolution" in labels(plan)) == (kind == "discrete")
    (actual,) = run_plan(device, plan, model, {"x": x})
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.slow
def test_tiles(device):
    model, x, expected = integers((2, 16, 9, 9), (68, 16, 3, 3), PADDED)
    profile = replace(device.profile, kind="discrete")
    for tile in gemm_tiles.ranked(Problem(64, 64, 64), target_of(profile))[::3]:
        with mock.patch.object(gemm_tiles, "ranked", return_value=[tile]):
            plan = compile_for(model, {"x": x}, profile)
        (actual,) = run_plan(device, plan, model, {"x": x})
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.slow
def test_the_instruction_is_a_feature(each_device):
    model, x, expected = integers((2, 16, 9, 9), (8, 16, 3, 3), PADDED, zeros=(3, 140))
    profile = replace(each_device.profile, kind="discrete")
    for each in (profile, without_instruction(profile)):
        (actual,) = run_plan(each_device, compile_for(model, {"x": x}, each), model, {"x": x})
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.slow
def test_declared_sizes(device):
    model, x, _ = integers((3, 8, 12, 10), (12, 8, 3, 3), PADDED, zeros=(130, 9))
    for axis, name in ((0, "batch"), (2, "height")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    sizes = {"batch": (1, 3), "height": (3, 12)}
    plan = compile_for(model, {"x": x}, replace(device.profile, kind="discrete"), dynamic=sizes)
    assert "ByteConvolution" in labels(plan)
    feeds = [{"x": x}, {"x": x[:1, :, :3]}, {"x": x[1:, :, :7]}]
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0]).astype(np.int64) - 9
    for (actual,), each in zip(run_plan(device, plan, model, feeds), feeds, strict=True):
        np.testing.assert_array_equal(actual, slid(each["x"].astype(np.int64) - 130, weight, PADDED))


# -- networks --------------------------------------------------------------------------------------------------------


class Net:
    """A network of quantised convolutions with weights of one scale for each output."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x
        self.rng = np.random.default_rng(8)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"v{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def parameters(self, scale: float, zero: int) -> tuple[str, str]:
        return self.constant(np.array(scale, np.float32)), self.constant(np.array(zero, np.uint8))

    def dequantised(self, value: str, scale: float, zero: int) -> str:
        return self.node("DequantizeLinear", value, *self.parameters(scale, zero))

    def quantised(self, value: str, scale: float, zero: int) -> str:
        return self.node("QuantizeLinear", value, *self.parameters(scale, zero))

    def convolution(self, value: str, channels: int, outputs: int, scale: float, extent: int = 3) -> str:
        """A convolution of a dequantised value of ``scale`` that keeps the size, with a bias of int32."""
        weight = self.rng.integers(-127, 128, (outputs, channels, extent, extent)).astype(np.int8)
        scales = (self.rng.uniform(0.5, 1.5, outputs) / 127 / (channels * extent * extent) ** 0.5).astype(np.float32)
        bias = self.rng.integers(-3000, 3000, outputs).astype(np.int32)
        filters = self.node("DequantizeLinear", self.constant(weight), self.constant(scales), axis=0)
        biases = self.node(
            "DequantizeLinear", self.constant(bias), self.constant((scales * scale).astype(np.float32)), axis=0
        )
        return self.node("Conv", value, filters, biases, pads=[extent // 2] * 4)

    def model(self, value: str) -> onnx.ModelProto:
        self.nodes[-1].output[0] = "y"
        assert value == f"v{len(self.nodes) - 1}"
        return model_of(self.nodes, self.x, self.constants)


def check(device, model: onnx.ModelProto, x: np.ndarray, kind: str = "discrete"):
    """The plan, whose results are onnxruntime's within a step of 8 bits, few of them another number."""
    plan = compile_for(model, {"x": x}, replace(device.profile, kind=kind))
    (actual,) = run_plan(device, plan, model, {"x": x})
    (expected,) = reference(model, {"x": x}, optimised=True)
    difference = np.abs(actual.astype(int) - expected.astype(int))
    assert difference.max() <= 1 and (difference > 0).mean() < 0.01
    return plan


def block(x: np.ndarray, channels: int) -> Net:
    """Two convolutions, the second of whose results meets the input of the first."""
    net = Net(x)
    start = net.quantised("x", 0.02, 100)
    value = net.node("Relu", net.convolution(net.dequantised(start, 0.02, 100), x.shape[1], channels, 0.02, 1))
    first = net.quantised(value, 0.015, 0)
    value = net.convolution(net.dequantised(first, 0.015, 0), channels, channels, 0.015)
    second = net.quantised(value, 0.025, 120)
    total = net.node("Add", net.dequantised(second, 0.025, 120), net.dequantised(first, 0.015, 0))
    third = net.quantised(net.node("Relu", total), 0.03, 3)
    value = net.convolution(net.dequantised(third, 0.03, 3), channels, 8, 0.03)
    net.quantised(value, 0.03, 131)
    return net


@pytest.mark.parametrize("channels", [16, pytest.param(20, marks=pytest.mark.slow)])
def test_networks_of_dequantised_tensors(device, channels):
    """One call a convolution, which takes words of channels from memory as they are, and stores bytes.

    The result of the model, whose order is another, has a call of its own.
    """
    x = np.random.default_rng(2).standard_normal((2, 12, 9, 10)).astype(np.float32)
    net = block(x, channels)
    plan = check(device, net.model(net.nodes[-1].output[0]), x)
    assert labels(plan).count("ByteConvolution") == 3 and len(plan.calls) == 5
    packed = [kernel for kernel in plan.kernels if "dot_bytes" in kernel.wgsl and kernel.bindings[0].access == "read"]
    assert {kernel.bindings[0].element for kernel in packed} >= ({"vec4<u32>"} if channels == 16 else {"u32"})
    bytes_of_weights = sum(array.nbytes for array in net.constants.values())
    assert sum(weight.bytes for weight in plan.weights) < 1.5 * bytes_of_weights


@pytest.mark.slow
def test_networks_on_processors(device):
    x = np.random.default_rng(2).standard_normal((2, 12, 9, 10)).astype(np.float32)
    net = block(x, 16)
    plan = check(device, net.model(net.nodes[-1].output[0]), x, "cpu")
    assert "ByteConvolution" not in labels(plan)


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "outputs"), [(3, 10), (16, 12)])
def test_quantised_convolutions_of_onnxruntime(device, channels, outputs):
    """QLinearConv, its input one of the model in ONNX's order."""
    rng = np.random.default_rng(4)
    x = rng.integers(0, 256, (2, channels, 12, 9)).astype(np.uint8)
    constants = {
        "w": rng.integers(-127, 128, (outputs, channels, 3, 3)).astype(np.int8),
        "sw": rng.uniform(0.002, 0.004, outputs).astype(np.float32),
        "zw": np.zeros(outputs, np.int8),
        "b": rng.integers(-2000, 2000, outputs).astype(np.int32),
        **{name: np.array(number, np.float32) for name, number in (("sx", 0.02), ("sy", 0.03))},
        **{name: np.array(number, np.uint8) for name, number in (("zx", 120), ("zy", 127))},
    }
    inputs = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"]
    node = helper.make_node("QLinearConv", inputs, ["y"], pads=[1, 0, 1, 2], strides=[2, 1])
    plan = check(device, model_of([node], x, constants), x)
    assert "ByteConvolution" in labels(plan)


def quantised_in_the_run(x: np.ndarray, weight: np.ndarray, zero: int, **attributes: object) -> onnx.ModelProto:
    """DynamicQuantizeLinear before ConvInteger, as onnxruntime quantises."""
    constants = {"w": weight, "zw": np.array(zero, np.uint8), "sw": np.array(0.01, np.float32)}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "sx", "zx"]),
        helper.make_node("ConvInteger", ["q", "w", "zx", "zw"], ["i"], pads=[1, 1, 1, 1], **attributes),
        helper.make_node("Cast", ["i"], ["f"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["sx", "sw"], ["s"]),
        helper.make_node("Mul", ["f", "s"], ["y"]),
    ]
    return model_of(nodes, x, constants)


@pytest.mark.parametrize("zero", [128, pytest.param(119, marks=pytest.mark.slow)])
def test_zero_points_of_a_run(device, zero):
    """Weights less their zero point may not fit into bytes."""
    rng = np.random.default_rng(zero)
    x = (rng.standard_normal((2, 12, 9, 10)) + 0.3).astype(np.float32)
    model = quantised_in_the_run(x, rng.integers(0, 256, (20, 12, 3, 3)).astype(np.uint8), zero)
    plan = compile_for(model, {"x": x}, replace(device.profile, kind="discrete"))
    assert "ByteConvolution" in labels(plan)
    check_run(device, plan, model, x)


def check_run(device, plan, model: onnx.ModelProto, x: np.ndarray) -> None:
    (actual,) = run_plan(device, plan, model, {"x": x})
    (expected,) = reference(model, {"x": x}, optimised=True)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("group", [12, pytest.param(3, marks=pytest.mark.slow)])
def test_groups_of_channels(device, kind, group):
    """Integers are convolved as floats, where each channel is by itself with the kernel for that."""
    rng = np.random.default_rng(group)
    x = (rng.standard_normal((2, 12, 9, 10)) + 0.3).astype(np.float32)
    model = quantised_in_the_run(x, rng.integers(0, 256, (12, 12 // group, 3, 3)).astype(np.uint8), 119, group=group)
    plan = compile_for(model, {"x": x}, replace(device.profile, kind=kind))
    assert "ByteConvolution" not in labels(plan)
    (key,) = (call.kernel for call in plan.calls if "Convolution" in call.label)
    (kernel,) = (kernel for kernel in plan.kernels if kernel.key == key)
    assert ("depthwise" in kernel.template) == (group == 12)
    check_run(device, plan, model, x)
