"""GatedDeltaNet: declared lengths in both spellings, and what is refused.  Covers: compiler/ops/microsoft."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.runtime.plan.errors import ShaderloomError, ShapeError, UnsupportedError

from ...support.cases import run_onnxruntime
from ...support.running import compile_for, run_plan

INPUTS = (
    *("query", "key", "value", "cu_seqlens", "decay", "beta", "initial_state", "a_log", "dt_bias", "capture_count"),
    "state_update_active",
)
KEYS, VALUES, HEADS = 8, 6, 4
Shapes = dict[str, tuple[Any, ...]]


def shapes_of(*tokens: Any) -> Shapes:
    return {
        "query": (*tokens, 2, KEYS),
        "key": (*tokens, 2, KEYS),
        "value": (*tokens, HEADS, VALUES),
        "decay": (*tokens, HEADS),
        "beta": (*tokens, HEADS),
        "initial_state": (1, HEADS, VALUES, KEYS),
        "a_log": (HEADS,),
        "dt_bias": (HEADS,),
    }


def model_of(shapes: Shapes, **attributes: Any) -> onnx.ModelProto:
    names = [name if name in shapes else "" for name in INPUTS]
    integers = {"cu_seqlens", "capture_count", "state_update_active"}
    node = helper.make_node("GatedDeltaNet", names, ["y", "state"], domain="com.microsoft", **attributes)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT32 if name in integers else TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], "attention", inputs, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("leading", [(), (1,)], ids=["tokens", "batch and steps"])
def test_one_plan_serves_every_length(leading: tuple[int, ...], device) -> None:
    model = model_of(shapes_of(*leading, "steps"), gate_activation="softplus", beta_activation="sigmoid", qk_l2_norm=1)
    rng, several = np.random.default_rng(11), []
    for steps in (1, 9, 4):
        shapes = shapes_of(*leading, steps)
        several.append({name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()})
    plan = compile_for(model, several[0], device.profile, dynamic={"steps": (1, 12)})
    for feeds, found in zip(several, run_plan(device, plan, model, several), strict=True):
        for left, right in zip(found, run_onnxruntime(model, feeds), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], type[ShaderloomError], str]] = {
    "sequences of several lengths": ({"cu_seqlens": (2,)}, {}, UnsupportedError, "cu_seqlens (input 3)"),
    "captured updates": ({"capture_count": (1,)}, {}, UnsupportedError, "capture_count (input 9)"),
    "a capacity": ({}, {"state_update_capacity": 2}, UnsupportedError, "'state_update_capacity' = 2"),
    "another rule": ({}, {"update_rule": "softmax"}, UnsupportedError, "'update_rule' = 'softmax'"),
    "another gate": ({}, {"gate_activation": "relu"}, UnsupportedError, "'gate_activation' = 'relu'"),
    "no state": ({"initial_state": None}, {}, ShapeError, "initial_state (input 6) must tell"),
    "uneven sequences": ({"initial_state": (2, 4, 6, 8)}, {}, ShapeError, "5 tokens are not 2 sequences"),
    "a transposed state": ({"initial_state": (1, 4, 8, 6)}, {}, ShapeError, "initial_state of shape (1, 4, 8, 6)"),
    "no rate of the gate": ({"a_log": None}, {"gate_activation": "kda"}, ShapeError, "a_log (input 7) is missing"),
    "no bias of the gate": ({"dt_bias": None}, {"gate_activation": "kda"}, ShapeError, "dt_bias (input 8) is missing"),
    "no decay": ({"decay": None}, {}, ShapeError, "decay (input 4) is missing"),
    "a key alone": ({"value": None}, {}, ShapeError, "key and value come together"),
    "other keys": ({"key": (5, 4, 8)}, {}, ShapeError, "query, key and value of shapes (5, 2, 8), (5, 4, 8)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    changes, attributes, kind, reason = REFUSED[name]
    shapes = {each: shape for each, shape in {**shapes_of(5), **changes}.items() if shape is not None}
    imported = load_model(model_of(shapes, **attributes))
    with pytest.raises(kind) as caught:
        specialise(imported, bind_shapes(imported, shapes).shapes)
    assert reason in str(caught.value) and caught.value.origin is not None
