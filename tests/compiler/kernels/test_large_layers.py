"""Recurrent layers whose states do not fit a workgroup's memory: each thread keeps those of its own units.

Covers: compiler/kernels/recurrent.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from shaderloom.compiler.kernels import recurrent_steps
from shaderloom.runtime.plan.errors import LimitError

from ...support.comparison import reference, relative_error
from ...support.kernels import make_model
from ...support.running import compile_for, run_plan

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def random(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(shape).standard_normal(shape) * scale).astype(np.float32)


def layer(kind: str, units: int, steps: int = 3, **attributes: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Some steps of one sequence with five inputs; the state starts away from zero."""
    rows = GATES[kind] * units
    feeds = {"x": random(steps, 1, 5), "h": random(1, 1, units, scale=0.5)}
    operands = ["x", "w", "r", "b", "", "h"]
    if kind == "LSTM":
        feeds["c"] = random(1, 1, units, scale=0.6)
        operands.append("c")
    constants = {"w": random(1, rows, 5), "r": random(1, rows, units, scale=units**-0.5), "b": random(1, 2 * rows)}
    outputs = ["y", "yh", "yc"][: 3 if kind == "LSTM" else 2]
    node = helper.make_node(kind, operands, outputs, hidden_size=units, **attributes)
    return make_model([node], feeds, outputs, constants=constants), feeds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "units", "attributes"),
    [
        ("LSTM", 1366, {}),
        ("LSTM", 1025, {"input_forget": 1}),  # the workgroup's memory still holds it
        ("GRU", 1401, {}),
    ],
)
def test_more_units_than_fit(kind: str, units: int, attributes: dict[str, int], web_device, monkeypatch) -> None:
    monkeypatch.setattr(recurrent_steps, "applies", lambda context: False)
    model, feeds = layer(kind, units, **attributes)
    plan = compile_for(model, feeds)
    (kernel,) = [kernel for kernel in plan.kernels if kernel.template == "recurrent"]
    assert ("var<private>" in kernel.wgsl) == (units > 1365)
    assert kernel.workgroup_bytes <= 16384
    for result, expected in zip(run_plan(web_device, plan, model, feeds), reference(model.SerializeToString(), feeds)):
        assert relative_error(result, expected) <= 1e-5


def test_steps_that_a_software_driver_would_leave_out_are_refused(device) -> None:
    """llvmpipe ends the loops of a thread after 65,535 rounds in total and says nothing."""
    if device.profile.kind != "cpu":
        pytest.skip("hardware runs loops to their end")
    model, feeds = layer("LSTM", 60, steps=900)
    results = run_plan(device, compile_for(model, feeds, device.profile), model, feeds)
    for result, expected in zip(results, reference(model.SerializeToString(), feeds)):
        assert relative_error(result, expected) <= 1e-4
    model, feeds = layer("LSTM", 60, steps=9000)
    with pytest.raises(LimitError, match="65,535 rounds"):
        compile_for(model, feeds, device.profile)
