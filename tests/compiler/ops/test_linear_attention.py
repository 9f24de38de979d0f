"""Linear attention: sequences of several dispatches, states that go on, and what is refused.

Covers: compiler/ops/microsoft, compiler/kernels/linear_attention.
"""

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

HEADS, KEYS, VALUES = 2, 16, 6
SHAPES: dict[str, tuple[Any, ...]] = {
    "q": (1, "steps", HEADS * KEYS),
    "k": (1, "steps", HEADS * KEYS),
    "v": (1, "steps", HEADS * VALUES),
    "past": (1, HEADS, KEYS, VALUES),
    "decay": (1, "steps", HEADS),
    "beta": (1, "steps", HEADS),
}


def model_of(shapes: dict[str, tuple[Any, ...]], **attributes: Any) -> onnx.ModelProto:
    names = [name if name in shapes else "" for name in SHAPES]
    named = {"q_num_heads": HEADS, "kv_num_heads": HEADS, **attributes}
    node = helper.make_node("LinearAttention", names, ["y", "state"], domain="com.microsoft", **named)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], "attention", inputs, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def expected(feeds: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The gated delta rule step by step, in double precision."""
    steps = feeds["q"].shape[1]
    q, k, v = (feeds[name].astype(np.float64).reshape(steps, HEADS, -1) for name in "qkv")
    state, outputs = feeds["past"][0].astype(np.float64), np.zeros((steps, HEADS, VALUES))
    for step in range(steps):
        for head in range(HEADS):
            kept = np.exp(feeds["decay"][0, step, head].astype(np.float64)) * state[head]
            change = feeds["beta"][0, step, head] * (v[step, head] - kept.T @ k[step, head])
            state[head] = kept + np.outer(k[step, head], change)
            outputs[step, head] = state[head].T @ q[step, head] / np.sqrt(KEYS)
    return outputs.reshape(1, steps, -1), state[None]


def feeds_of(steps: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(steps)
    feeds = {}
    for name, shape in SHAPES.items():
        low, high = {"decay": (-0.1, 0.0), "beta": (0.0, 1.0)}.get(name, (-1.0, 1.0))
        sizes = [steps if size == "steps" else size for size in shape]
        feeds[name] = rng.uniform(low, high, sizes).astype(np.float32)
    feeds["k"] /= np.linalg.norm(feeds["k"].reshape(1, steps, HEADS, KEYS), axis=-1).repeat(KEYS, -1)
    return feeds


def test_a_long_sequence_takes_several_dispatches(each_device) -> None:
    """One plan for a token and for sequences longer than one dispatch; the state goes from one to the next."""
    model, several = model_of(SHAPES), [feeds_of(steps) for steps in (1, 1500, 3)]
    plan = compile_for(model, several[0], each_device.profile, dynamic={"steps": (1, 2000)})
    for feeds, found in zip(several, run_plan(each_device, plan, model, several), strict=True):
        for left, right in zip(found, expected(feeds), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], type[ShaderloomError], str]] = {
    "another rule": ({}, {"update_rule": "softmax"}, UnsupportedError, "delta, gated, gated_delta, linear"),
    "a window of states": ({}, {"state_window": 4}, UnsupportedError, "'state_window' = 4"),
    "no decay": ({"decay": None}, {}, ShapeError, "update_rule 'gated_delta' needs decay of shape (1, 5, 2)"),
    "no rate": ({"beta": None}, {"update_rule": "delta"}, ShapeError, "update_rule 'delta' needs beta"),
    "heads that do not share": ({}, {"q_num_heads": 3}, ShapeError, "3 heads of queries for 2 of the state"),
    "another past": ({"past": (1, 2, 6, 16)}, {}, ShapeError, "past_state of shape (1, 2, 6, 16)"),
    "another length": ({"v": (1, 4, 12)}, {}, ShapeError, "value of shape (1, 4, 12)"),
    "uneven heads": ({"v": (1, 5, 13)}, {}, ShapeError, "value of 13 numbers for 2 heads"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    changes, attributes, kind, reason = REFUSED[name]
    sizes = {each: tuple(5 if size == "steps" else size for size in shape) for each, shape in SHAPES.items()}
    shapes = {each: shape for each, shape in {**sizes, **changes}.items() if shape is not None}
    imported = load_model(model_of(shapes, **attributes))
    with pytest.raises(kind) as caught:
        specialise(imported, bind_shapes(imported, shapes).shapes)
    assert reason in str(caught.value) and caught.value.origin is not None
