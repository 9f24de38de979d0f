"""Convolutions over what came before: calls, and what is refused.  Covers: compiler/ops/microsoft."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.runtime.plan.errors import ShaderloomError, ShapeError, UnsupportedError

from ...support.running import compile_for, run_plan

SHAPES: dict[str, tuple[Any, ...]] = {"x": (2, 6, "length"), "w": (6, 1, 4), "b": (6,), "past": (2, 6, 3)}


def model_of(shapes: dict[str, tuple[Any, ...]], **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node("CausalConvWithState", list(shapes), ["y", "state"], domain="com.microsoft", **attributes)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], "convolution", inputs, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_a_sequence_in_parts_is_the_sequence_at_once(device) -> None:
    """The state of one part goes into the next; one plan serves every length, with a call for each output."""
    rng = np.random.default_rng(7)
    sizes = {name: [11 if axis == "length" else axis for axis in shape] for name, shape in SHAPES.items()}
    arrays = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in sizes.items()}
    model = model_of(SHAPES, activation="silu")
    plan = compile_for(model, arrays, device.profile, dynamic={"length": (1, 16)})
    assert sum(len(command.calls) for command in plan.commands) == 2
    whole, final = run_plan(device, plan, model, arrays)
    state, parts = arrays["past"], []
    for start, stop in ((0, 1), (1, 3), (3, 4), (4, 11)):
        part, state = run_plan(device, plan, model, arrays | {"x": arrays["x"][..., start:stop], "past": state})
        parts.append(part)
    np.testing.assert_allclose(np.concatenate(parts, -1), whole, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(state, final)
    seen = np.concatenate([arrays["past"], arrays["x"]], -1).astype(np.float64)
    sums = sum(seen[..., tap : tap + 11] * arrays["w"][:, :, tap] for tap in range(4)) + arrays["b"][:, None]
    np.testing.assert_allclose(whole, sums / (1 + np.exp(-sums)), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(final, arrays["x"][..., -3:])


REFUSED: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, Any], type[ShaderloomError], str]] = {
    "two axes": ({}, {"ndim": 2}, UnsupportedError, "'ndim' = 2"),
    "a window of states": ({}, {"state_window": 4}, UnsupportedError, "'state_window' = 4"),
    "captured updates": ({}, {"state_update_capacity": 2}, UnsupportedError, "'state_update_capacity' = 2"),
    "another activation": ({}, {"activation": "relu"}, UnsupportedError, "none, silu, swish"),
    "no dilation": ({}, {"dilation": 0}, ShapeError, "dilation is 0"),
    "a longer state": ({"past": (2, 6, 4)}, {}, ShapeError, "past_state of shape (2, 6, 4), not (2, 6, 3)"),
    "fewer channels": ({"w": (5, 1, 4)}, {}, ShapeError, "a weight of shape (5, 1, 4) for 6 channels"),
    "another bias": ({"b": (1,)}, {}, ShapeError, "bias of shape (1), not (6)"),
    "two spatial axes": ({"x": (2, 6, 4, 4)}, {}, ShapeError, "an input of shape (2, 6, 4, 4) for one spatial axis"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    changes, attributes, kind, reason = REFUSED[name]
    shapes = {**SHAPES, "x": (2, 6, 5), **changes}
    imported = load_model(model_of(shapes, **attributes))
    with pytest.raises(kind) as caught:
        specialise(imported, bind_shapes(imported, shapes).shapes)
    assert reason in str(caught.value) and caught.value.origin is not None
