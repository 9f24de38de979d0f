"""No kernel uses an index out of range, so that shaders of this process may run without bounds checks.

Covers: compiler/kernels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from shaderloom.compiler.kernels import accesses
from shaderloom.compiler.symbolic import expr as ex
from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.runtime.plan.device_profile import DeviceProfile

from ...support.cases import OperatorCase, all_cases
from ...support.effort import SOAK
from ...support.kernels import make_model
from ...support.running import compile_for
from ...support.watching import count_outside

#: All cases on all kinds of devices in a soak: about ten minutes of a software driver
CASES = all_cases()[:: 1 if SOAK else 40]
KINDS = ("discrete", "cpu") if SOAK else ("discrete",)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def profile_of(device, kind: str) -> DeviceProfile:
    return replace(device.profile, kind=kind)


@pytest.mark.fuzz
@pytest.mark.parametrize("operator", CASES, ids=lambda operator: operator.name)
def test_operator(operator: OperatorCase, device):
    types = {array.dtype.name for array in operator.feeds.values()}
    if types & {"float64", "object"} or not operator.feeds:
        pytest.skip("not on a device")
    model = operator.model()
    for kind in KINDS:
        plan = compile_for(model, operator.feeds, profile_of(device, kind))
        assert count_outside(device, plan, model, operator.feeds) == 0, kind


def graphs():
    """Awkward sizes for every kind of kernel: name, nodes, feeds, constants."""
    node = helper.make_node
    for m, n, k in ((1, 1, 1), (1, 7, 3), (3, 5, 63), (17, 33, 65), (63, 130, 20), (65, 65, 129), (130, 3, 7)):
        feeds = {"x": random(m, k), "r": random(m, n)}
        nodes = [node("MatMul", ["x", "w"], ["t"]), node("Add", ["t", "r"], ["y"])]
        yield f"product {m}x{n}x{k}", nodes, feeds, {"w": random(k, n)}
        yield f"product of inputs {m}x{n}x{k}", nodes, {**feeds, "w": random(k, n)}, {}
    for channels, outputs, size, kernel, attributes in (
        (3, 5, 9, 3, {"pads": [1, 1, 1, 1]}),
        (3, 64, 13, 3, {"strides": [2, 2], "pads": [0, 0, 1, 1]}),
        (7, 7, 6, 5, {"pads": [2, 2, 2, 2], "group": 7}),
        (8, 8, 7, 3, {"pads": [1, 1, 1, 1], "dilations": [2, 2], "group": 4}),
        (256, 20, 5, 3, {"pads": [1, 1, 1, 1]}),
        (4, 4, 5, 1, {}),
    ):
        weight = random(outputs, channels // attributes.get("group", 1), kernel, kernel)
        feeds = {"x": random(1, channels, size, size + 1)}
        yield f"convolution {channels}-{outputs}", [node("Conv", ["x", "w"], ["y"], **attributes)], feeds, {"w": weight}
    for shape in ((1,), (7,), (3, 5), (5, 63), (2, 3, 65), (9, 33, 17)):
        feeds = {"x": random(*shape)}
        rank = len(shape)
        yield f"softmax {shape}", [node("Softmax", ["x"], ["y"], axis=-1)], feeds, {}
        yield f"softmax of the first axis {shape}", [node("Softmax", ["x"], ["y"], axis=0)], feeds, {}
        turned = tuple(reversed(range(rank)))
        nodes = [node("Transpose", ["x"], ["t"], perm=turned), node("Add", ["t", "b"], ["y"])]
        yield f"turned {shape}", nodes, {**feeds, "b": random(1)}, {}
        scale = random(shape[-1])
        yield f"norm {shape}", [node("LayerNormalization", ["x", "g", "b"], ["y"])], feeds, {"g": scale, "b": scale}
        ends = {"from": np.array([-1]), "to": np.array([-(1 << 31)]), "axis": np.array([0]), "step": np.array([-1])}
        yield f"reversed {shape}", [node("Slice", ["x", "from", "to", "axis", "step"], ["y"])], feeds, ends
        nodes = [node("Concat", ["x", "b"], ["t"], axis=0), node("Relu", ["t"], ["y"])]
        yield f"joined {shape}", nodes, {**feeds, "b": random(3, *shape[1:])}, {}


GRAPHS = {name: (nodes, feeds, constants) for name, nodes, feeds, constants in graphs()}


@pytest.mark.parametrize("name", GRAPHS)
def test_graph(name: str, device):
    nodes, feeds, constants = GRAPHS[name]
    model = make_model(nodes, feeds, ["y"], constants=constants)
    plan = compile_for(model, feeds, profile_of(device, "discrete"))
    assert count_outside(device, plan, model, feeds) == 0


def test_an_access_outside_is_noticed(device, monkeypatch):
    """Without the bounds that the compiler adds, the last thread of a map kernel reads before its operand."""
    monkeypatch.setattr(accesses.Accesses, "bounded", lambda self, hooks, values: list(hooks))
    nodes, feeds, constants = GRAPHS["reversed (7,)"]
    model = make_model(nodes, feeds, ["y"], constants=constants)
    plan = compile_for(model, feeds, profile_of(device, "cpu"))
    assert count_outside(device, plan, model, feeds) > 0


def test_inequalities_of_a_condition_bound_a_coordinate():
    row = ix.coordinate("row", 10)
    above = ix.add(row, -2)
    inequalities = accesses.inequalities_of(ex.in_range(above, 0, 5))
    assert accesses.is_inside(above, 5, inequalities)
    assert accesses.is_inside(ix.add(above, 1), 6, inequalities)
    assert not accesses.is_inside(above, 4, inequalities)
    assert not accesses.is_inside(ix.add(above, -1), 5, inequalities)
    assert not accesses.is_inside(above, 5, ())
    either = ex.binary("or", ex.in_range(above, 0, 5), ex.in_range(row, 0, 3))
    assert accesses.inequalities_of(either) == ()


def over_rows_of_n():
    """Kernels along a declared axis, which a run may leave without elements: name, nodes, and constants."""
    node = helper.make_node
    yield "ArgMax", [node("ArgMax", ["x"], ["y"], axis=1)], {}
    yield "ArgMin of the first axis", [node("Transpose", ["x"], ["t"]), node("ArgMin", ["t"], ["y"], axis=0)], {}
    for operator in ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceLogSumExp"):
        yield operator, [node(operator, ["x", "axis"], ["y"])], {"axis": np.array([1])}
    for operator in ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization"):
        yield operator, [node(operator, ["x"], ["y"], axis=1)], {}
    yield "CumSum", [node("CumSum", ["x", "axis"], ["y"])], {"axis": np.array(1)}
    yield "padded", [node("Pad", ["x", "pads"], ["y"])], {"pads": np.array([0, 1, 0, 2])}
    yield "joined", [node("Concat", ["x", "b"], ["y"], axis=1)], {"b": random(5, 3)}
    yield "product", [node("Transpose", ["x"], ["t"]), node("MatMul", ["x", "t"], ["y"])], {}
    yield "repeated", [node("Tile", ["x", "times"], ["y"])], {"times": np.array([2, 2])}
    yield "stepped", [node("Slice", ["x", "from", "end", "axis", "step"], ["y"])], {
        "from": np.array([0]), "end": np.array([1 << 30]), "axis": np.array([1]), "step": np.array([2]),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", over_rows_of_n(), ids=lambda case: case[0])
@pytest.mark.parametrize("size", [0, 1])
def test_a_declared_axis_without_elements(device, case, size):
    _, nodes, constants = case
    feeds = {"x": random(5, size)}
    model = make_model(nodes, feeds, ["y"], dims={"x": [5, "n"]}, constants=constants)
    plan = compile_for(model, feeds, profile_of(device, "discrete"), dynamic={"n": (0, 9)})
    assert plan.symbols
    assert count_outside(device, plan, model, feeds) == 0
