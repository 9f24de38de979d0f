"""Waiting for a device: what wgpu-native's answer means, and that a thread that asks at first still gets results.

Covers: runtime/device.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import helper

import shaderloom
from shaderloom.runtime.device import native

from ...support.kernels import make_model

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="wgpu-native has other functions")


@pytest.mark.parametrize(("answer", "idle"), [(0, False), (1, True), (0x5A5A5A00, False), (0x5A5A5A01, True)])
def test_only_the_lowest_byte_of_the_answer_counts(monkeypatch, answer, idle):
    monkeypatch.setattr(native, "lib", SimpleNamespace(wgpuDevicePoll=lambda *_: answer))
    assert native.is_idle(SimpleNamespace(_internal=None)) is idle


def test_asking_ends_and_then_the_thread_sleeps(monkeypatch):
    asked = []

    def poll(handle, wait, index):
        asked.append(wait)
        return wait

    monkeypatch.setattr(native, "lib", SimpleNamespace(wgpuDevicePoll=poll))
    monkeypatch.setattr(native, "SPIN_SECONDS", 0.001)
    native.wait(SimpleNamespace(_internal=None), spin=True)
    assert len(asked) > 1
    assert asked[-1] is True
    assert not any(asked[:-1])
    asked.clear()
    native.wait(SimpleNamespace(_internal=None))
    assert asked == [True]


def test_a_run_is_waited_for_when_the_thread_asks_at_first(device, monkeypatch):
    """A software driver takes its time: results would be those of the poison if the wait ended early."""
    monkeypatch.setattr(device, "profile", replace(device.profile, kind="discrete"))
    assert device.spins
    x = np.random.default_rng(0).standard_normal((512, 300)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Tanh", ["t"], ["y"])]
    weight = np.random.default_rng(1).standard_normal((300, 512)).astype(np.float32) * 0.05
    model = make_model(nodes, {"x": x}, ["y"], constants={"w": weight})
    with shaderloom.InferenceSession(model, device=device, cache=False) as session:
        for number in range(4):
            (y,) = session.run(None, {"x": x * number})
            np.testing.assert_allclose(y, np.tanh(x * number @ weight), atol=1e-5)
        held = shaderloom.Tensor.from_numpy(np.full((512, 512), np.nan, np.float32), device)
        session.run(["y"], {"x": shaderloom.Tensor.from_numpy(x, device)}, outputs={"y": held})
        device.wait()
        assert native.is_idle(device.gpu)
        np.testing.assert_allclose(held.numpy(), np.tanh(x @ weight), atol=1e-5)
