"""What sessions leave behind on the device and on the host: nothing.  Covers: runtime/device, runtime/memory."""

from __future__ import annotations

import gc

import numpy as np
import onnx
import onnx.parser
import pytest

import shaderloom

from ...support.plans import replace_compiler, two_call_plan
from ...support.sessions import engine_of

SOFTMAX = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 8] x) => (float[n, 8] y) <float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}> { s = Softmax<axis = -1>(x) y = Mul(s, b) }
"""


def device_objects() -> dict[str, int]:
    """Objects that wgpu-native keeps alive, by kind."""
    from wgpu.backends.wgpu_native._helpers import generate_report

    gc.collect()
    return {kind: counts["kept"] for kind, counts in generate_report()["hub"].items()}


@pytest.fixture(scope="module")
def model() -> bytes:
    return onnx.parser.parse_model(SOFTMAX).SerializeToString()


def run_once(model: bytes, device, n: int = 4) -> None:
    with shaderloom.InferenceSession(model, device=device, cache=False) as session:
        session.run(None, {"x": np.zeros((n, 8), np.float32)})


def test_closed_sessions_leave_nothing(device, model):
    run_once(model, device)
    before, objects = device_objects(), len(gc.get_objects())
    for _ in range(10):
        run_once(model, device)
    assert device_objects() == before
    assert len(gc.get_objects()) - objects < 100


def test_forgotten_sessions_leave_nothing(device, model):
    run_once(model, device)
    before = device_objects()
    for _ in range(3):
        session = shaderloom.InferenceSession(model, device=device, cache=False)
        session.run(None, {"x": np.zeros((4, 8), np.float32)})
        del session
    assert device_objects() == before


def test_runs_accumulate_nothing(device, model):
    with shaderloom.InferenceSession(model, device=device, cache=False) as session:
        feeds = {"x": np.zeros((4, 8), np.float32)}
        for _ in range(20):
            session.run(None, feeds)
        before, objects = device_objects(), len(gc.get_objects())
        for _ in range(200):
            session.run(None, feeds)
        assert device_objects() == before
        assert len(gc.get_objects()) - objects < 100


def test_evicted_plans_leave_nothing(device, model):
    with shaderloom.InferenceSession(model, device=device, cache=False, plans=1, dynamic="off") as session:
        counts = []
        for n in (1, 2, 3, 1, 2):
            session.run(None, {"x": np.zeros((n, 8), np.float32)})
            counts.append(device_objects())
        assert counts[1:] == counts[:-1]


@pytest.mark.parametrize("fault", ["compile", "shader", "memory"])
def test_failures_leave_nothing(device, model, monkeypatch, fault):
    run_once(model, device)
    before = device_objects()
    caps = shaderloom.Caps()
    if fault == "memory":
        caps = shaderloom.Caps(device_memory=100)
    elif fault == "compile":

        def fail(*arguments):
            raise shaderloom.LimitError("not today")

        replace_compiler(monkeypatch, fail)
    else:
        import dataclasses

        plan = two_call_plan()
        kernels = (*plan.kernels[:-1], dataclasses.replace(plan.kernels[-1], wgsl="fn ("))
        replace_compiler(monkeypatch, lambda *arguments: dataclasses.replace(plan, kernels=kernels))
    session = shaderloom.InferenceSession(model, device=device, cache=False, caps=caps)
    for _ in range(3):
        with pytest.raises(shaderloom.ShaderloomError):
            session.run(None, {"x": np.zeros((4, 8), np.float32)})
    assert (
        session.device_bytes == engine_of(session).resources.pool.bytes
    )  # weights that were complete stay for the next attempt
    session.close()
    assert engine_of(session).resources.account.used == 0
    after = device_objects()
    if fault == "shader":
        after["shaderModules"] = before["shaderModules"]  # wgpu-py drops the handle of an invalid module
    assert after == before
