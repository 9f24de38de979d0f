"""Vector operands read as 64-bit words of two floats or integers: kernels for software drivers, where the device can.

Covers: compiler/kernels/products.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from shaderloom.runtime.plan.device_profile import WEB

from ...support.kernels import compile_kernels, make_model, run_kernels

PAIRED = replace(WEB, kind="cpu", features=frozenset({"shader-int64"}))


def model(x: np.ndarray):
    """x plus x with its columns in reverse order: whole vectors of x, and single elements of it."""
    starts, ends, axes, steps = (np.array([number], np.int64) for number in (-1, -1000, 1, -1))
    nodes = [
        helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    constants = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    return make_model(nodes, {"x": x}, ["y"], constants=constants)


def test_only_reads_of_vectors_are_paired():
    x = np.zeros((3, 8), np.float32)
    ((kernel, _),) = compile_kernels(model(x), {"x": x}, PAIRED)[1]
    assert [binding.element for binding in kernel.bindings] == ["vec2<u64>", "vec4<f32>"]
    assert kernel.features == ("shader-int64",)
    odd = np.zeros((3, 7), np.float32)
    ((kernel, _),) = compile_kernels(model(odd), {"x": odd}, replace(PAIRED, features=frozenset()))[1]
    assert "u64" not in kernel.wgsl and kernel.features == ()


@pytest.mark.parametrize("kind", ["unknown", "discrete", "integrated"])
def test_other_devices_read_plain_words(kind):
    x = np.zeros((3, 8), np.float32)
    ((kernel, _),) = compile_kernels(model(x), {"x": x}, replace(PAIRED, kind=kind))[1]
    assert "u64" not in kernel.wgsl and kernel.features == ()


def test_values(device):
    if "shader-int64" not in device.profile.features:
        pytest.skip("the device has no 64-bit integers")
    x = np.random.default_rng(1).standard_normal((5, 12)).astype(np.float32)
    x[0, :4] = [np.inf, -np.inf, -0.0, 1e-42]
    ran = run_kernels(device, model(x), {"x": x}, kind="cpu")
    assert "u64" in ran.kernels[0].wgsl
    np.testing.assert_array_equal(ran.outputs["y"][1:], (x + x[:, ::-1])[1:])
    np.testing.assert_allclose(ran.outputs["y"][0], (x + x[:, ::-1])[0], rtol=0, atol=1e-30)


def test_unsigned_integers(device):
    if "shader-int64" not in device.profile.features:
        pytest.skip("the device has no 64-bit integers")
    x = np.random.default_rng(2).integers(0, 1 << 32, (5, 12), np.uint32)
    ran = run_kernels(device, model(x), {"x": x}, kind="cpu")
    assert "u64" in ran.kernels[0].wgsl
    np.testing.assert_array_equal(ran.outputs["y"], x + x[:, ::-1])
