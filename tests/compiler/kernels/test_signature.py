"""Kernels that are built once for equal groups: what looks alike and is not must get kernels of its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import shaderloom
from shaderloom.compiler.binding.shape_binding import bind_shapes
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.driver import compile_model
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.planning import kernel_table

from ...support.models import filled_model

#: two nodes of the same operator over the same shapes, and the constants in which they differ
PAIRS = {
    "indices of Gather": ("Gather", [np.array([0, 2]), np.array([1, 1])], {"axis": 1}, [{}, {}]),
    "bounds of Slice": ("Slice", [np.array([0]), np.array([2])], {}, [{}, {}]),
    "numbers of Pad": ("Pad", [np.array([0, 1, 0, 2]), np.array([0, 2, 0, 1])], {}, [{}, {}]),
    "scales of Resize": (
        "Resize",
        [np.array([1, 1.5], np.float32), np.array([1, 1.6], np.float32)],
        {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
        [{}, {}],
    ),
    "an attribute": ("LeakyRelu", [None, None], {}, [{"alpha": 0.1}, {"alpha": 0.3}]),
    "the sign of a zero": ("Max", [np.array(-0.0, np.float32), np.array(0.0, np.float32)], {}, [{}, {}]),
    "weights": ("MatMul", [np.ones((4, 3), np.float32), np.full((4, 3), 2, np.float32)], {}, [{}, {}]),
}


def pair_model(name: str) -> onnx.ModelProto:
    op, constants, common, attributes = PAIRS[name]
    nodes, initializers = [], []
    for number, (constant, own) in enumerate(zip(constants, attributes)):
        inputs = [f"x{number}"]
        if op == "Resize":
            inputs.append("")
        if constant is not None:
            initializers.append(numpy_helper.from_array(constant, f"c{number}"))
            inputs.append(f"c{number}")
        if op == "Slice":
            initializers.append(numpy_helper.from_array(constant + 2, f"e{number}"))
            initializers.append(numpy_helper.from_array(np.array([1]), f"a{number}"))
            inputs += [f"e{number}", f"a{number}"]
        nodes.append(helper.make_node(op, inputs, [f"y{number}"], **common, **own))
    port = helper.make_tensor_value_info
    float32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "pair",
        [port(f"x{number}", float32, [3, 4]) for number in range(2)],
        [port(f"y{number}", float32, None) for number in range(2)],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("name", PAIRS)
def test_groups_that_differ_in_one_thing(device, name):
    model = pair_model(name)
    feeds = {f"x{number}": np.random.default_rng(number).normal(size=(3, 4)).astype(np.float32) for number in range(2)}
    if name == "the sign of a zero":
        feeds = dict.fromkeys(feeds, np.full((3, 4), -0.0, np.float32))
    expected = ReferenceEvaluator(model).run(None, feeds)
    with shaderloom.InferenceSession(model, device=device, cache=False) as session:
        results = session.run(None, feeds)
    for result, wanted in zip(results, expected):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["resnet18", "bert_small", "gpt2_small"])
def test_plans_do_not_depend_on_it(name, monkeypatch):
    built = 0

    def counted(build: Callable) -> Callable:
        def run(context: object) -> object:
            nonlocal built
            built += 1
            return build(context)

        return run

    monkeypatch.setattr(kernel_table, "build", counted(kernel_table.build))
    model = load_model(filled_model(name))
    shapes = {port.name: tuple(dim if isinstance(dim, int) else 8 for dim in port.dims or ()) for port in model.inputs}
    bound = bind_shapes(model, shapes, {})
    plan = compile_model(model, bound, Compilation())
    built_once, built = built, 0
    monkeypatch.setattr(kernel_table, "signature", lambda *_: None)
    assert compile_model(model, bound, Compilation()).to_json() == plan.to_json()
    assert built_once < built
