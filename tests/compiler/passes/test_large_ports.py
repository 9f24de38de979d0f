"""Inputs and outputs beyond a binding: windows of them, and the numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

from shaderloom.runtime.execution.requirements import requirements
from shaderloom.runtime.plan.errors import DeviceLimitError

from ...support.comparison import reference, relative_error
from ...support.large_weights import floats, limited, made
from ...support.running import compile_for, run_plan

node = helper.make_node
LIMIT = 1 << 14
AXIS = np.array([1])

CASES = {
    "arithmetic": lambda: made([node("Mul", ["x", "x"], ["p"]), node("Sin", ["p"], ["y"])], {"x": floats(301, 64)}),
    "odd rows": lambda: made([node("Exp", ["x"], ["y"])], {"x": floats(1001, 17)}),
    "one axis": lambda: made([node("Exp", ["x"], ["y"])], {"x": floats(9001)}),
    "batch of one": lambda: made([node("Neg", ["x"], ["y"])], {"x": floats(1, 1, 300, 33)}),
    "sum of rows": lambda: made([node("ReduceSum", ["x", "a"], ["y"])], {"x": floats(301, 64)}, a=AXIS),
    "sum of columns": lambda: made([node("ReduceSum", ["x", "a"], ["y"])], {"x": floats(301, 64)}, a=AXIS - 1),
    "softmax": lambda: made([node("Softmax", ["x"], ["y"], axis=1)], {"x": floats(301, 64)}),
    "outer sum": lambda: made([node("Add", ["x", "z"], ["y"])], {"x": floats(300, 1), "z": floats(64)}),
    "product": lambda: made([node("MatMul", ["x", "z"], ["y"])], {"x": floats(120, 24), "z": floats(24, 64)}),
    "logits": lambda: made(
        [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["q"]), node("Reshape", ["q", "s"], ["y"])],
        {"x": floats(40, 32)}, w=floats(32, 448), b=floats(448), s=np.array([1, 40, 448])),
    "maximum of a product": lambda: made(
        [node("MatMul", ["x", "z"], ["p"]), node("ReduceMax", ["p", "a"], ["y"])],
        {"x": floats(120, 24), "z": floats(24, 64)}, a=AXIS),
    "selection": lambda: made([node("Gather", ["x", "i"], ["y"])], {"x": floats(301, 64), "i": np.array([0, 300, -9])}),
    "halves": lambda: made([node("Exp", ["x"], ["y"])], {"x": floats(701, 33, dtype="float16")}),
    "halves to floats": lambda: made(
        [node("Cast", ["x"], ["h"], to=onnx.TensorProto.FLOAT16), node("MatMul", ["h", "w"], ["p"]),
         node("Cast", ["p"], ["y"], to=onnx.TensorProto.FLOAT)],
        {"x": floats(200, 64)}, w=floats(64, 96, dtype="float16")),
    "bytes": lambda: made([node("Cast", ["x"], ["y"], to=onnx.TensorProto.INT8)], {"x": floats(701, 33) * 9}),
    "read elsewhere too": lambda: made(
        [node("Exp", ["x"], ["y"]), node("ReduceSum", ["y", "a"], ["z"])], {"x": floats(301, 64)}, ("y", "z"), a=AXIS),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_large_inputs_and_outputs_are_bound_in_windows(each_device, name: str):
    model, feeds = CASES[name]()
    plan = compile_for(model, feeds, limited(each_device.profile, LIMIT, 1 << 20))
    spans = [span for call in plan.calls for span in call.ranges]
    assert max(span.size for span in spans) <= LIMIT
    assert all(span.offset % 256 == 0 for span in spans)
    assert any(span.size > LIMIT for call in compile_for(model, feeds).calls for span in call.ranges)
    found = run_plan(each_device, plan, model, feeds)
    for mine, expected in zip(found, reference(model, feeds), strict=True):
        assert relative_error(mine, expected) <= (2e-3 if "halves" in name else 2e-5)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: made([node("CumSum", ["x", "a"], ["y"])], {"x": floats(301, 64)}, a=np.array(0)), "binding-size"),
        (lambda: made([node("Exp", ["x"], ["y"])], {"x": floats(5000, 64)}), "binding-size"),
    ],
    ids=["no rule", "beyond a buffer"],
)
def test_the_others_are_refused_by_name(device, build, told):
    model, feeds = build()
    with pytest.raises(DeviceLimitError, match=rf"takes [\d,]+ bytes.*{told} is [\d,]+") as caught:
        compile_for(model, feeds, limited(device.profile, LIMIT, 1 << 20))
    assert caught.value.tensor in ("x", "y")
    assert caught.value.hint is None and "smaller inputs" in str(caught.value)


def test_activations_are_in_buffers_that_a_device_has(each_device):
    """All of them together are larger than a buffer."""
    nodes = [node("MatMul", ["x", f"w{number}"], [f"p{number}"]) for number in range(5)]
    nodes += [node("Softmax", [f"p{number}"], [f"s{number}"], axis=1) for number in range(5)]
    nodes.append(node("Sum", [f"s{number}" for number in range(5)], ["y"]))
    weights = {f"w{number}": floats(48, 60) for number in range(5)}
    model, feeds = made(nodes, {"x": floats(61, 48)}, **weights)
    whole = compile_for(model, feeds, each_device.profile)
    assert requirements(whole)["max-buffer-size"] > LIMIT
    plan = compile_for(model, feeds, limited(each_device.profile, LIMIT))
    assert requirements(plan)["max-buffer-size"] <= LIMIT
    (found,) = run_plan(each_device, plan, model, feeds)
    assert relative_error(found, reference(model, feeds)[0]) <= 2e-5


def test_windows_begin_where_a_binding_may(device):
    profile = limited(device.profile, LIMIT, 1 << 20)
    coarse = replace(profile, limits={**profile.limits, "min-storage-buffer-offset-alignment": 1024})
    model, feeds = CASES["arithmetic"]()
    plan = compile_for(model, feeds, coarse)
    assert all(span.offset % 1024 == 0 for call in plan.calls for span in call.ranges)
