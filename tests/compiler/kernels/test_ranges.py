"""Tensors that are quantised by their own range: extremes of parts, scale and zero point, words for products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from shaderloom.compiler.ops.internal.ranges import partial_range, quantized_words, range_parameters

from ...support.comparison import reference
from ...support.kernels import make_model
from ...support.running import compile_for, run_plan

QUANTISE = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"])


def numbers(*shape: int) -> np.ndarray:
    """Numbers from -1.28 to 1.27, far from the middle of two steps of 0.01."""
    rng = np.random.default_rng(shape)
    x = rng.integers(-127, 127, shape) + rng.uniform(-0.3, 0.3, shape)
    x.flat[rng.permutation(x.size)[:2]] = -128, 127
    return (0.01 * x).astype(np.float32)


@pytest.mark.parametrize("shape", [(7, 13), (3, 67, 129), pytest.param((2, 5, 90, 91), marks=pytest.mark.slow)])
def test_parameters_and_numbers(each_device, shape):
    """One kernel finds the range of a small tensor, two that of a large one."""
    feeds = {"x": numbers(*shape)}
    model = make_model([QUANTISE], feeds, ["q", "scale", "zero"])
    plan = compile_for(model, feeds, each_device.profile)
    assert ("partial_range" in {kernel.template for kernel in plan.kernels}) == (feeds["x"].size > 8192)
    expected = reference(model, feeds, optimised=True)
    for found, wanted in zip(run_plan(each_device, plan, model, feeds), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 0.0), (0.5, 2.0), (-3.0, -0.25), (np.nan, np.nan)], ids=["zeros", "above", "below", "nan"]
)
@pytest.mark.parametrize("size", [12, 9000])
def test_ranges_include_zero(device, low, high, size):
    feeds = {"x": np.linspace(low, high, size, dtype=np.float32)}
    model = make_model([QUANTISE], feeds, ["q", "scale", "zero"])
    _, scale, zero = run_plan(device, compile_for(model, feeds, device.profile), model, feeds)
    if np.isnan(low):
        assert np.isnan(scale)
        return
    _, wanted, wanted_zero = reference(model, feeds, optimised=True)
    np.testing.assert_allclose(scale, wanted, rtol=1e-6)
    assert zero == wanted_zero


@pytest.mark.parametrize("columns", [260, pytest.param(259, marks=pytest.mark.slow)])
def test_words_of_matrices(device, columns):
    """Two products of one tensor: one kernel for the range, one for words and parameters, and two products.

    onnxruntime's sums of two products saturate at 16 bits on processors without an instruction for four: weights are
    so small that none does.
    """
    rng = np.random.default_rng(1)
    x = numbers(40, columns)
    weights = {f"w{n}": rng.integers(-64, 65, (columns, 32)).astype(np.int8) for n in range(2)}
    nodes = [
        QUANTISE,
        *(helper.make_node("MatMulInteger", ["q", f"w{n}", "zero"], [f"p{n}"]) for n in range(2)),
        *(helper.make_node("Cast", [f"p{n}"], [f"f{n}"], to=1) for n in range(2)),
        *(helper.make_node("Mul", [f"f{n}", "scale"], [f"y{n}"]) for n in range(2)),
    ]
    check(device, nodes, x, weights, ["y0", "y1"], ["partial_range", "quantize_words", "gemm_shared", "gemm_shared"])


@pytest.mark.parametrize("channels", [12, pytest.param(6, marks=pytest.mark.slow)])
def test_words_of_images(device, channels):
    """Channels are not innermost in memory; those that fill no word."""
    rng = np.random.default_rng(2)
    weights = {"w": rng.integers(0, 256, (20, channels, 3, 3)).astype(np.uint8), "wz": np.array(131, np.uint8)}
    nodes = [
        QUANTISE,
        helper.make_node("ConvInteger", ["q", "w", "zero", "wz"], ["p"], pads=[1, 1, 1, 1]),
        helper.make_node("Cast", ["p"], ["f"], to=1),
        helper.make_node("Mul", ["f", "scale"], ["y"]),
    ]
    check(
        device,
        nodes,
        numbers(2, channels, 29, 30),
        weights,
        ["y"],
        ["partial_range", "quantize_words", "gemm_shared"],
    )


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
def test_ranges_of_dynamic_shapes(device, kind):
    """One plan for few rows and for many, none among them."""
    rng = np.random.default_rng(4)
    weights = {"w": rng.integers(-64, 65, (52, 16)).astype(np.int8)}
    nodes = [
        QUANTISE,
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["p"]),
        helper.make_node("Cast", ["p"], ["f"], to=1),
        helper.make_node("Mul", ["f", "scale"], ["y"]),
    ]
    several = [{"x": numbers(rows, 52)} for rows in (3, 400)] + [{"x": np.zeros((0, 52), np.float32)}]
    model = make_model(nodes, several[0], ["y"], dims={"x": ["n", 52]}, constants=weights)
    plan = compile_for(model, several[0], replace(device.profile, kind=kind), dynamic={"n": (0, 500)})
    for feeds, (found,) in zip(several, run_plan(device, plan, model, several), strict=True):
        assert found.shape == (len(feeds["x"]), 16)
        if len(found):
            (wanted,) = reference(model, feeds, optimised=True)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def check(device, nodes, x, weights, outputs, templates):
    model = make_model(nodes, {"x": x}, outputs, constants=weights)
    expected = reference(model, {"x": x}, optimised=True)
    for kind in ("cpu", "discrete"):
        plan = compile_for(model, {"x": x}, replace(device.profile, kind=kind))
        if kind == "discrete":
            names = {kernel.key: kernel.template for kernel in plan.kernels}
            assert [names[call.kernel] for call in plan.calls] == templates
        for found, wanted in zip(run_plan(device, plan, model, {"x": x}), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def test_references():
    """Parts cover a tensor, whatever its size, and words end with the parameters."""
    x = numbers(3, 11)
    for parts in (4, 8, 64):
        ends = partial_range(x, parts)
        assert ends.shape == (2 * parts,) and (ends.max(), ends.min()) == (x.max(), x.min())
    scale, zero = range_parameters(partial_range(x, 4))
    words = quantized_words([x, partial_range(x, 4)])
    assert words.shape == (3 * 3 + 2,)
    assert words[-2:].view(np.float32)[0] == scale and words[-1] == zero == 128
    found = words[:-2].view(np.int8).reshape(3, 12)
    np.testing.assert_array_equal(found[:, :11], np.rint(x / scale))
    assert not found[:, 11:].any()
