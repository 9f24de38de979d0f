"""``check`` of models in stages: all stages, branches and iterations of loops agree, and a planted fault is named with
its stage, its iteration, its kernel and its ONNX node.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from shaderloom.check.check import Checker
from shaderloom.check.graph_instance import MAIN_GRAPH, GraphInstance
from shaderloom.check.onnx_model import OnnxModel
from shaderloom.check.references import open_reference
from shaderloom.cli import app
from shaderloom.compiler.ops.registry import registry
from shaderloom.cpu.segment import CpuSegment
from shaderloom.execution.program.loops import LoopStep
from shaderloom.model.model import Model
from shaderloom.runtime.memory.tensor import Tensor

from .test_check import build, plant_in_template, plant_pass

pytest.importorskip("onnxruntime")

LOOP = """
loop (float[5,7] x, float lim) => (float[5,7] y, float[k,5,7] all) <int64 most = {9}, bool on = {1}, float[7,7] w> {
    start = Abs (x)
    y, all = Loop <body = step (int64 i, bool go, float[5,7] v) => (bool again, float[5,7] next, float[5,7] row) {
        p = MatMul (v, w)
        s = Sigmoid (p)
        next = Add (v, s)
        row = Neg (s)
        top = ReduceMax <keepdims = 0> (next)
        again = Less (top, lim)
    }> (most, on, start)
}"""

BRANCH = """
branch (float[4,6] x) => (float[4,6] y) <float zero = {0}, float[6,6] w> {
    a = MatMul (x, w)
    s = ReduceSum <keepdims = 0> (a)
    c = Greater (s, zero)
    b = If (c) <
        then_branch = up () => (float[4,6] u) { e = Softmax (a) u = MatMul (e, w) },
        else_branch = down () => (float[4,6] d) { f = Softmax <axis = 0> (a) d = MatMul (f, w) }
    >
    y = Softmax (b)
}"""

INSIDE = """
inside (float[3,4] x, int64 n) => (float[3,4] y) <bool on = {1}, float zero = {0}> {
    y = Loop <body = step (int64 i, bool go, float[3,4] v) => (bool again, float[3,4] next) {
        again = Identity (go)
        s = ReduceSum <keepdims = 0> (v)
        c = Greater (s, zero)
        next = If (c) <
            then_branch = up () => (float[3,4] u) { e = Neg (v) u = Softmax (e) },
            else_branch = down () => (float[3,4] d) { f = Exp (v) d = Sub (v, f) }
        >
    }> (n, on, x)
}"""

SCAN = """
scan (float[1,3] start, float[6,3] x) => (float[1,3] last, float[6,3] rows) <float zero = {0}> {
    last, rows = Scan <num_scan_inputs = 1, scan_input_directions = [1],
        body = step (float[1,3] v, float[3] e) => (float[1,3] next, float[3] row) {
        h = Tanh (e)
        m = ReduceSum <keepdims = 0> (h)
        c = Greater (m, zero)
        next = If (c) <
            then_branch = up () => (float[1,3] u) { u = Add (v, h) },
            else_branch = down () => (float[1,3] d) { d = Sub (v, h) }
        >
        row = Exp (h)
    }> (start, x)
}"""


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


MODELS = {
    "selection": (
        """select (float[12,6] x) => (float[n,5] y) <float[1,5] w, int64[1] last = {1}> {
            h = Tanh (x)
            z = Relu (h)
            i = NonZero (z)
            r = Transpose <perm = [1, 0]> (i)
            g = GatherND (z, r)
            q = Unsqueeze (g, last)
            m = MatMul (q, w)
            y = Softmax (m)
        }""",
        {"x": numbers(12, 6)},
    ),
    "loop": (LOOP, {"x": numbers(5, 7), "lim": np.array(4, np.float32)}),
    "branch": (BRANCH, {"x": numbers(4, 6)}),
    "inside": (INSIDE, {"x": numbers(3, 4), "n": np.array(4, np.int64)}),
    "scan": (SCAN, {"start": numbers(1, 3), "x": numbers(6, 3)}),
    "growing": (
        """text (float[3] x, int64 n) => (float[m] y) <bool yes = {1}> {
            y = Loop (n, yes, x) <body = b (int64 i, bool go, float[p] v) => (bool on, float[q] w) {
                on = Identity (go)
                e = Tanh (v)
                w = Concat <axis = 0> (e, x)
            }>
        }""",
        {"x": numbers(3), "n": np.array(7, np.int64)},
    ),
    "cpu": (
        """text (float[3,4] x) => (float[3,4] y) {
            a = Tanh (x)
            d = Cast <to = 11> (a)
            e = Exp (d)
            y = Cast <to = 1> (e)
        }""",
        {"x": numbers(3, 4)},
    ),
}


@pytest.fixture
def check(device, tmp_path):
    """Checks a model; gives the result."""

    def run(name: str, against: str = "onnxruntime", per_node: bool = True, feeds: dict | None = None, **options):
        text, given = MODELS[name]
        path = tmp_path / "model.onnx"
        path.write_bytes(build(text).SerializeToString())
        source = OnnxModel(path)
        model = Model(path, cache=False, options=options, keep_refused=True)
        with Checker(model, source, open_reference(against, source), device, feeds or given) as checker:
            return checker.run(per_node=per_node)

    return run


def tensors(result) -> list[tuple[str, str]]:
    return [(str(row.instance), row.tensor) for row in result.rows]


# -- right models ------------------------------------------------------------------------------------------------------


# onnx's evaluator joins the results of iterations end to end, and knows no Scan that runs backwards
@pytest.mark.parametrize(
    ("name", "against"),
    [(name, "onnxruntime") for name in MODELS]
    + [(name, "reference") for name in sorted(MODELS.keys() - {"loop", "scan"})],
)
def test_right_models_agree(check, name, against):
    result = check(name, against)
    assert result.is_close and result.diagnosis is None and result.rows
    assert result.stages >= 1


def test_every_stage_is_compared(check):
    result = check("selection")
    made = {row.tensor: row for row in result.rows}
    assert {"z", "g", "y"} <= made.keys()
    assert made["z"].stage == 1 and made["y"].stage > made["z"].stage
    assert all(row.instance == MAIN_GRAPH for row in result.rows)
    assert made["y"].node == "Softmax (main node 7)"


def test_iterations_that_share_a_plan_of_open_sizes(check):
    """Seven sizes: two plans for one each, and one for the others."""
    result = check("growing")
    assert result.is_close and result.stages == 3
    assert sum("w" in name for _, name in tensors(result)) >= 7


def test_the_outputs_alone(check):
    assert tensors(check("loop", per_node=False)) == [("main", "y"), ("main", "all")]


def test_every_iteration_of_a_loop_is_compared(check):
    result = check("loop")
    iterations = [row.instance.iterations for row in result.rows if row.tensor == "next"]
    assert iterations == [(number,) for number in range(len(iterations))] and len(iterations) >= 3
    row = next(row for row in result.rows if row.tensor == "row")
    assert row.node == "Neg (main/Loop_1.body node 3)"
    assert str(row.instance) == "main/Loop_1.body, iteration 0"
    made = tensors(result)
    assert made.index(("main/Loop_1.body, iteration 1", "next")) < made.index(("main", "all"))


def test_the_branch_that_is_taken_is_compared(check):
    x = numbers(4, 6)
    sides = set()
    for feeds in ({"x": x}, {"x": -x}):
        result = check("branch", feeds=feeds)
        assert result.is_close
        sides |= {row.instance.graph for row in result.rows} - {"main"}
    assert sides == {"main/If_3.then_branch", "main/If_3.else_branch"}


def test_branches_in_iterations(check):
    instances = {row.instance for row in check("inside").rows}
    assert {
        instance.iterations
        for instance in instances
        if ".then_branch" in instance.graph or ".else_branch" in instance.graph
    } == {(number,) for number in range(4)}


def test_what_the_cpu_made_is_compared(check):
    result = check("cpu")
    assert result.on_cpu >= 1
    assert [row.maker for row in result.rows if row.tensor == "y"] == ["cpu"]


def test_half_precision(check):
    for name in ("selection", "loop", "branch"):
        result = check(name, precision="float16")
        assert result.is_close, result.differing


WRITTEN_OUT = LOOP.replace("float[5,7] x, float lim", "float[5,7] x").replace("int64 most = {9}", "int64 most = {3}")
WRITTEN_OUT = WRITTEN_OUT.replace("top = ReduceMax <keepdims = 0> (next)", "")
WRITTEN_OUT = WRITTEN_OUT.replace("Less (top, lim)", "Identity (go)")


def test_the_iterations_of_a_loop_that_is_written_out(check, monkeypatch):
    monkeypatch.setitem(MODELS, "written out", (WRITTEN_OUT, {"x": numbers(5, 7)}))
    result = check("written out")
    assert result.is_close and result.stages is None, "it is one plan"
    assert [row.instance.iterations for row in result.rows if row.tensor == "s"] == [(0,), (1,), (2,)]
    definition = registry.get("Neg", "")
    wrong = replace(definition, element=registry.get("Abs", "").element)
    monkeypatch.setattr(registry, "of", lambda node, of=registry.of: wrong if node.op == "Neg" else of(node))
    diagnosis = check("written out", disabled_passes=["fuse"]).diagnosis
    assert (diagnosis.kind, diagnosis.node) == ("operator", "Neg (main/Loop_1.body node 3)")
    assert diagnosis.instance == GraphInstance("main/Loop_1.body", (0,))


# -- planted faults ----------------------------------------------------------------------------------------------------


def test_a_fault_in_a_later_stage(check, monkeypatch):
    original = registry.of
    wrong = replace(registry.get("Softmax", ""), expand=lambda builder, node: [builder.op("Sigmoid", node.operand(0))])
    monkeypatch.setattr(registry, "of", lambda node: wrong if node.op == "Softmax" else original(node))
    result = check("selection", per_node=False)
    diagnosis = result.diagnosis
    assert (diagnosis.kind, diagnosis.tensor, diagnosis.node) == ("operator", "y", "Softmax (main node 7)")
    assert diagnosis.stage == result.stages and diagnosis.stage > 1


def test_a_fault_in_a_template_of_a_later_stage(check, monkeypatch):
    plant_in_template(monkeypatch, "gemm/gemm_register.wgsl.j2", "var step = 0", "var step = 1")
    result = check("branch")
    diagnosis = result.diagnosis
    assert diagnosis.kind == "kernel" and "gemm" in diagnosis.kernel
    assert (diagnosis.tensor, diagnosis.node, diagnosis.stage) == ("a", "MatMul (main node 0)", 1)


def test_a_fault_in_the_body_of_a_loop(check, monkeypatch):
    """Sigmoid is right for what it is first given, and wrong from an iteration on."""
    definition = registry.get("Neg", "")
    wrong = replace(definition, element=registry.get("Abs", "").element)
    monkeypatch.setattr(registry, "of", lambda node, of=registry.of: wrong if node.op == "Neg" else of(node))
    result = check("loop", per_node=False)
    diagnosis = result.diagnosis
    assert (diagnosis.kind, diagnosis.node) == ("operator", "Neg (main/Loop_1.body node 3)")
    assert (diagnosis.tensor, diagnosis.instance) == ("row", GraphInstance("main/Loop_1.body", (0,)))
    assert diagnosis.worst.worst


def test_a_pass_that_drops_a_node_of_a_body(check, monkeypatch):
    plant_pass(monkeypatch, "Sigmoid")
    diagnosis = check("loop").diagnosis
    assert (diagnosis.kind, diagnosis.pass_name) == ("pass", "drop")
    assert diagnosis.node == "Sigmoid (main/Loop_1.body node 1)"
    assert diagnosis.instance.iterations == (0,)


def test_a_fault_from_an_iteration_on(check, monkeypatch):
    """What a loop carries is spoilt on its way into the third iteration: no kernel is at fault, and it is named."""
    body = LoopStep._body

    def spoilt(self, iteration, inner, carried, first, record):
        if iteration == 2:
            array = carried[0].tensor.numpy() + np.float32(1)
            carried = [type(carried[0])(Tensor.from_numpy(array, self._context.resources.device), "wgpu"), *carried[1:]]
        return body(self, iteration, inner, carried, first, record)

    monkeypatch.setattr(LoopStep, "_body", spoilt)
    diagnosis = check("loop").diagnosis
    assert (diagnosis.tensor, diagnosis.instance) == ("v", GraphInstance("main/Loop_1.body", (2,)))
    assert (diagnosis.kind, diagnosis.node) == ("unknown", "Loop (main node 1)")
    assert "the iteration before" in diagnosis.findings[0]


def test_results_of_iterations_that_are_put_together_wrongly(check, monkeypatch):
    stack = LoopStep._stack
    monkeypatch.setattr(LoopStep, "_stack", lambda self, row, axis, record: stack(self, row[::-1], axis, record))
    diagnosis = check("loop").diagnosis
    assert (diagnosis.tensor, diagnosis.node) == ("all", "Loop (main node 1)")
    assert "put together wrongly" in diagnosis.findings[0]


def test_the_cpu_at_fault(check, monkeypatch):
    run = CpuSegment.run

    def spoilt(self, values, outputs=()):
        return {name: array + 1 for name, array in run(self, values, outputs).items()}

    monkeypatch.setattr(CpuSegment, "run", spoilt)
    diagnosis = check("cpu").diagnosis
    assert diagnosis.kind == "cpu"
    assert "float64" in diagnosis.findings[0] and "onnxruntime" in diagnosis.findings[1]


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command(device, tmp_path, monkeypatch):
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)
    path = tmp_path / "loop.onnx"
    path.write_bytes(build(LOOP).SerializeToString())
    np.save(tmp_path / "lim.npy", np.array(4, np.float32))
    arguments = ["check", str(path), "--input", f"lim={tmp_path / 'lim.npy'}"]
    result = CliRunner().invoke(app, [*arguments, "--device", "none such"])
    assert result.exit_code == 1 and "error: device: no adapter matches" in result.stderr
    result = CliRunner().invoke(app, [*arguments, "--per-node"])
    assert result.exit_code == 0, result.output
    assert "next  (main/Loop_1.body, iteration 2)" in result.output
    assert "the model runs in stages" in result.output
    definition = registry.get("Neg", "")
    wrong = replace(definition, element=registry.get("Abs", "").element)
    monkeypatch.setattr(registry, "of", lambda node, of=registry.of: wrong if node.op == "Neg" else of(node))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "graph:     main/Loop_1.body, iteration 0" in result.output
    facts = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert facts["diagnosis"]["graph"] == "main/Loop_1.body" and facts["diagnosis"]["iterations"] == [0]
    assert facts["stages"] >= 2
