"""``check`` tells which indices of a run are out of range: the node, the operand, the value and what is allowed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from typer.testing import CliRunner

from shaderloom.check.check import Checker
from shaderloom.check.graph_instance import GraphInstance
from shaderloom.check.onnx_model import OnnxModel
from shaderloom.check.references import open_reference
from shaderloom.check.run_check import CheckResult
from shaderloom.cli import app
from shaderloom.compiler.ops.registry import registry
from shaderloom.model.model import Model
from shaderloom.runtime.plan.errors import ShaderloomError

from ...compiler.ops.test_index_range import FAMILY, X, model_of
from ...support.kernels import make_model
from .test_check import build

pytest.importorskip("onnxruntime")


@pytest.fixture
def check(device, tmp_path):
    def run(model: onnx.ModelProto, feeds: dict[str, Any], against: str = "onnxruntime") -> CheckResult:
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        source = OnnxModel(path)
        opened = Model(path, cache=False, keep_refused=True)
        with Checker(opened, source, open_reference(against, source), device, feeds) as checker:
            return checker.run(per_node=True)

    return run


@pytest.mark.parametrize("against", ["onnxruntime", "reference"])
@pytest.mark.parametrize("operator", FAMILY)
def test_every_operator_with_indices(check, operator, against) -> None:
    model, feeds = model_of(operator, FAMILY[operator][1], constant=False)
    result = check(model, feeds, against)
    (fault,) = result.indices
    assert not result.is_close and result.differing == []
    assert result.skipped == ["y"], "the reference has no value there"
    assert fault.node == f"{operator} 'reader' (main node 0)"
    assert (fault.position, fault.tensor, fault.wrong.value) == (1, "i", 4)
    assert (fault.wrong.low, fault.wrong.high) == (-4, 3)
    array = feeds["i"]
    sizes = np.array([4, 3]) if operator.endswith("ND") else 4
    wrong = np.argwhere((array < -sizes) | (array >= sizes))
    assert fault.wrong.position == tuple(wrong[0]) and fault.wrong.count == len(wrong)
    assert fault.outside == "it is clamped"


@pytest.mark.parametrize("operator", FAMILY)
def test_indices_in_range_are_no_faults(check, operator) -> None:
    index = np.array([[3, 2], [-4, -3]]) if operator.endswith("ND") else np.array([[3, -4, 0]])
    model, feeds = model_of(operator, index, constant=False)
    result = check(model, feeds)
    assert result.is_close and result.indices == [] and [row.tensor for row in result.rows] == ["y"]


def test_what_reads_indices_declares_it() -> None:
    """Operators whose kernels clamp by the rule; :func:`run_time_index` has no other users among ONNX operators."""
    declared = {definition.name for definition in registry.all() if definition.indices}
    assert declared >= {*FAMILY, "Scatter", "OneHot", "EmbedLayerNormalization", "GatherBlockQuantized", "MaxUnpool"}
    assert declared >= {"RoiAlign", "RotaryEmbedding"}


def test_one_hot_has_a_meaning_for_them(check) -> None:
    node = helper.make_node("OneHot", ["i", "d", "v"], ["y"])
    feeds = {"i": np.array([0, 3, -4, 2])}
    model = make_model([node], feeds, ["y"], constants={"d": np.array(3), "v": np.array([0, 1], np.float32)})
    result = check(model, feeds)
    (fault,) = result.indices
    assert result.is_close and not fault.is_error
    assert (fault.position, fault.wrong.value, fault.wrong.low, fault.wrong.high) == (0, 3, -3, 2)
    assert (fault.wrong.position, fault.wrong.count, fault.outside) == ((1,), 2, "it matches no place")


def test_computed_indices_of_several_nodes(check) -> None:
    """The first is named; what is computed from it has no value and is left out, the rest is compared and looked at."""
    text = """several (float[4,3] x, int64[2] a, int64[2] b) => (float[2,3] y, float[2,3] z, float[2,3] t)
    <int64 one = {1}> {
        c = Add (a, one)
        u = Gather (x, c)
        y = Gather (u, b)
        w = Tanh (x)
        d = Sub (b, one)
        z = Gather (w, d)
        t = Gather (w, b)
    }"""
    result = check(build(text), {"x": X, "a": np.array([0, 3]), "b": np.array([-4, 1])})
    assert [(fault.node, fault.tensor, fault.wrong.value) for fault in result.indices] == [
        ("Gather (main node 1)", "c", 4),
        ("Gather (main node 5)", "d", -5),
    ]
    assert result.skipped == ["y", "z"]
    assert [row.tensor for row in result.rows if row.difference.is_close] == ["w", "t"]


def test_a_model_in_stages(check) -> None:
    """Positions that the device has found read a table that is too short."""
    text = """stages (float[9] x, float[r,2] table) => (float[n,2] y) <int64[1] flat = {-1}> {
        i = NonZero (x)
        f = Reshape (i, flat)
        y = Gather (table, f)
    }"""
    x = np.array([0, 1, 0, 0, 1, 0, 1, 0, 1], np.float32)
    result = check(build(text), {"x": x, "table": np.ones((5, 2), np.float32)})
    (fault,) = result.indices
    assert (fault.node, fault.wrong.value, fault.wrong.high, fault.wrong.count) == ("Gather (main node 2)", 6, 4, 2)
    assert result.stages and result.skipped == ["y"]
    assert check(build(text), {"x": x, "table": np.ones((9, 2), np.float32)}).is_close


LOOP = """loop (float[4,3] x, int64 n) => (float[3] y) <bool on = {1}, float[3] start = {0, 0, 0}> {
    y = Loop <body = step (int64 i, bool go, float[3] v) => (bool again, float[3] next) {
        again = Identity (go)
        row = Gather (x, i)
        next = Add (v, row)
    }> (n, on, start)
}"""


@pytest.mark.parametrize("against", ["onnxruntime", "reference"])
def test_the_iteration_of_a_loop(check, against) -> None:
    result = check(build(LOOP), {"x": X, "n": np.array(6)}, against)
    (fault,) = result.indices
    assert fault.node == "Gather (main/Loop_0.body node 1)"
    assert (fault.tensor, fault.instance, fault.wrong.value) == ("i", GraphInstance("main/Loop_0.body", (4,)), 4)
    assert result.skipped == ["y"]
    assert check(build(LOOP), {"x": X, "n": np.array(4)}, against).is_close


@pytest.mark.parametrize("n", [3, 6])
def test_a_loop_that_is_written_out(check, n) -> None:
    model = build(LOOP.replace(", int64 n)", ")").replace("<bool on", f"<int64 n = {{{n}}}, bool on"))
    if n == 3:
        assert check(model, {"x": X}).is_close
        return
    # the iterations are constants of the plan, so the compiler refuses the index
    with pytest.raises(ShaderloomError, match="index 4 is out of range"):
        check(model, {"x": X})


def test_a_branch(check) -> None:
    text = """branch (float[4,3] x, int64[2] i, bool c) => (float[2,3] y) {
        y = If (c) <
            then_branch = up () => (float[2,3] u) { u = Gather (x, i) },
            else_branch = down () => (float[2,3] d) { e = Gather <axis = 1> (x, i) f = Gather (x, i) d = Neg (f) }
        >
    }"""
    feeds = {"x": X, "i": np.array([3, 1])}
    assert check(build(text), {**feeds, "c": np.array(True)}).is_close
    (fault,) = check(build(text), {**feeds, "c": np.array(False)}).indices
    assert fault.node == "Gather (main/If_0.else_branch node 0)" and (fault.wrong.low, fault.wrong.high) == (-3, 2)


def test_embeddings_do_not_count_from_the_end(check) -> None:
    tables = {name: np.ones((rows, 8), np.float32) for name, rows in (("w", 9), ("p", 5), ("s", 2))}
    norm = {"g": np.ones(8, np.float32), "b": np.zeros(8, np.float32)}
    names = ["t", "k", "w", "p", "s", "g", "b"]
    node = helper.make_node("EmbedLayerNormalization", names, ["y", "m"], domain="com.microsoft")
    feeds = {"t": np.array([[1, 8, -1]], np.int32), "k": np.array([[0, 1, 2]], np.int32)}
    model = make_model([node], feeds, ["y"], constants={**tables, **norm})
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    found = check(model, feeds).indices
    assert [(fault.tensor, fault.wrong.value, fault.wrong.low, fault.wrong.high) for fault in found] == [
        ("t", -1, 0, 8),
        ("k", 2, 0, 1),
    ]


def test_the_command(device, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)
    path = tmp_path / "gather.onnx"
    model, feeds = model_of("Gather", np.array([0, 4, -5]), constant=False)
    path.write_bytes(model.SerializeToString())
    np.savez(tmp_path / "in.npz", **feeds)
    arguments = ["check", str(path), "--inputs", str(tmp_path / "in.npz")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1, result.output
    assert (
        "index out of range: Gather 'reader' (main node 0), input 1 'i' at [1]: 4, allowed are -4 to 3; "
        "2 of 3 are out of range; it is clamped" in result.output
    )
    (row,) = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["indices"]
    assert (row["value"], row["allowed"], row["index"], row["input"]) == (4, [-4, 3], [1], 1)
