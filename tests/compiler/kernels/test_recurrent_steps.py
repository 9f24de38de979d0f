"""Recurrent layers whose steps are dispatches of their own: against onnxruntime, and every operator case in that form.

Covers: compiler/kernels/recurrent_steps, templates/recurrent.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import shaderloom
from shaderloom.compiler.kernels import recurrent_steps
from shaderloom.plans.describe import describe_plan
from shaderloom.runtime.plan.plan import ComputePass, RepeatedPass

from ...support.bundles import recurrent_bundle, recurrent_model
from ...support.cases import OperatorCase, all_cases, run_onnxruntime
from ...support.comparison import relative_error
from ...support.kernels import make_model
from ...support.running import compile_for, run_plan

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def random(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(shape).standard_normal(shape) * scale).astype(np.float32)


def layer(
    kind: str, units: int, steps: int, lengths: tuple[int, ...] = (), state: bool = True, **attributes: Any
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A layer with three inputs; a batch of sequences of these ``lengths``, or one sequence."""
    directions, batch = 2 if attributes.get("direction") == "bidirectional" else 1, max(len(lengths), 1)
    rows = GATES[kind] * units
    feeds = {"x": random(steps, batch, 3)}
    constants = {"w": random(directions, rows, 3), "r": random(directions, rows, units, scale=units**-0.5)}
    constants["b"] = random(directions, 2 * rows)
    if lengths:
        feeds["l"] = np.array(lengths, np.int32)
    operands = ["x", "w", "r", "b", "l" if lengths else "", "h" if state else ""]
    constants |= {"h": random(directions, batch, units)} if state else {}
    if kind == "LSTM" and state:
        operands += ["c", "p"]
        constants |= {"c": random(directions, batch, units, scale=2.0), "p": random(directions, 3 * units)}
    outputs = ["y", "yh", "yc"][: 3 if kind == "LSTM" else 2]
    node = helper.make_node(kind, operands, outputs, hidden_size=units, **attributes)
    dims = {"x": ("steps", batch, 3), "l": (batch,)}
    return make_model([node], feeds, outputs, constants=constants, dims=dims), feeds


def check(device, model: onnx.ModelProto, feeds: dict[str, np.ndarray], kind: str = "", **options: Any) -> None:
    profile = dataclasses.replace(device.profile, kind=kind or device.profile.kind)
    plan = compile_for(model, feeds, profile, **options)
    assert "recurrent_step" in {kernel.template for kernel in plan.kernels}
    for found, expected in zip(run_plan(device, plan, model, feeds), run_onnxruntime(model, feeds), strict=True):
        assert found.shape == expected.shape
        assert relative_error(found, expected) <= 2e-5


LAYERS = {
    "lstm": ("LSTM", 128, 3, (), {}),
    "lstm of odd units": ("LSTM", 131, 4, (4, 1, 3), {"direction": "bidirectional"}),
    "lstm without a state": ("LSTM", 129, 3, (0, 3, 2, 0, 1), {"state": False, "direction": "reverse"}),
    "coupled gates": ("LSTM", 130, 3, (), {"input_forget": 1, "clip": 0.5, "state": False}),
    "gru": ("GRU", 133, 4, (2, 4), {"direction": "bidirectional"}),
    "gru reset after the product": ("GRU", 128, 3, (3, 1), {"linear_before_reset": 1, "direction": "reverse"}),
    "rnn": ("RNN", 134, 3, (3, 2), {"direction": "bidirectional"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(device, name, kind):
    layer_kind, units, steps, lengths, attributes = LAYERS[name]
    check(device, *layer(layer_kind, units, steps, lengths, **attributes), kind)


def test_declared_lengths_share_a_plan(device):
    """More and fewer steps than before, one, and none: then the final state is the first."""
    model, feeds = layer("LSTM", 64, 7, state=False)
    several = [{"x": random(steps, 1, 3)} for steps in (7, 2, 9, 1, 0)]
    plan = compile_for(model, feeds, device.profile, dynamic={"steps": (0, 9)})
    passes = [command for command in plan.commands if isinstance(command, RepeatedPass)]
    assert [command.count for command in passes] == [["+", 1, "steps"]]
    assert "(+ 1 steps) times" in str(plan)
    assert [call["iterations"] for call in describe_plan(plan)["call_list"]] == plan.iterations
    for each, results in zip(several, run_plan(device, plan, model, several), strict=True):
        if not len(each["x"]):
            assert not any(result.any() for result in results)
            continue
        for found, expected in zip(results, run_onnxruntime(model, each), strict=True):
            assert relative_error(found, expected) <= 2e-5


def test_an_empty_sequence_keeps_its_state(device):
    """onnxruntime gives zeros where the standard has the initial state."""
    model, feeds = layer("LSTM", 64, 2, (0, 2))
    _, hidden, cell = run_plan(device, compile_for(model, feeds, device.profile), model, feeds)
    np.testing.assert_array_equal(hidden[0, 0], random(1, 2, 64)[0, 0])
    np.testing.assert_array_equal(cell[0, 0], random(1, 2, 64, scale=2.0)[0, 0])


def test_few_units_stay_in_one_kernel(device):
    model, feeds = layer("GRU", 63, 3)
    plan = compile_for(model, feeds, device.profile)
    assert all(isinstance(command, ComputePass) for command in plan.commands)


def test_steps_beyond_those_of_a_plan_stay_in_one_kernel(device):
    model, feeds = layer("RNN", 64, 66_000)
    plan = compile_for(model, feeds, dataclasses.replace(device.profile, kind="discrete"))
    assert all(isinstance(command, ComputePass) for command in plan.commands)


RECURRENT = [each for each in all_cases() if each.definition.name in (*GATES, "DynamicQuantizeLSTM")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("operator", RECURRENT, ids=lambda operator: operator.name)
def test_operator_cases(each_device, monkeypatch, operator: OperatorCase, kind):
    """Five units, so vectors are not whole; what no other test has: types, activations, layouts, 8-bit weights."""
    monkeypatch.setattr(recurrent_steps, "FEWEST_UNITS", 1)
    monkeypatch.setattr(recurrent_steps, "applies", lambda context: recurrent_steps.suits(context.anchor))
    model, feeds = operator.model(), operator.feeds
    plan = compile_for(model, feeds, dataclasses.replace(each_device.profile, kind=kind))
    _, expected = operator.reference
    for found, wanted in zip(run_plan(each_device, plan, model, feeds), expected, strict=True):
        error = np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max(initial=0)
        assert error <= max(operator.case.tolerance, 2e-3 if found.dtype.itemsize == 2 else 1e-5)


def test_a_bundle(device, tmp_path):
    """Compiled ahead of time, for any number of steps, and run without the compiler."""
    model, _ = recurrent_model()
    with shaderloom.load_bundle(recurrent_bundle(tmp_path / "b"), device=device) as session:
        for steps in (4, 9, 1):
            feeds = {"x": random(steps, 2, 8)}
            for found, expected in zip(session.run(None, feeds), run_onnxruntime(model, feeds), strict=True):
                assert relative_error(found, expected) <= 2e-5
