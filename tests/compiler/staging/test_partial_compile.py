"""How far a stage gets with the elements that are known: what is done, what is wanted, what waits for the run."""

from __future__ import annotations

import numpy as np
import onnx.parser

from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.options import Limits
from shaderloom.compiler.reference.interpreter import run_graph
from shaderloom.compiler.staging.partial_compile import Advance, StageInput, StagingContext, advance
from shaderloom.compiler.staging.program_graph import ProgramScope, branch_nodes
from shaderloom.runtime.plan.dtypes import BOOL, FLOAT32, INT64

RESHAPED = """g (float[n] x, int64[2] s) => (float[a, b] y) { e = Exp(x)  y = Reshape(e, s) }"""
BRANCH = """g (float[n] x, bool c) => (float[n] y) { e = Exp(x)
    y = If(c) <then_branch = t () => (float[n] p) { p = Neg(e) },
               else_branch = f () => (float[n] q) { q = Abs(e) }> }"""
LOOP = """g (float[n] x, int64 k, bool c) => (float[n] y) {
    y = Loop(k, c, x) <body = b (int64 i, bool d, float[n] s) => (bool e, float[n] t) {
        e = Identity(d)  t = Neg(s) }> }"""
DOUBLE = """g (float[n] x) => (float[n] y) { d = Cast<to = 11>(x)  a = Add(d, d)  y = Cast<to = 1>(a) }"""
X = np.linspace(-1, 1, 6, dtype=np.float32)


def stage(text: str, **operands: StageInput) -> Advance:
    model = load_model(onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 18]>' + text).SerializeToString())
    scope = ProgramScope(model.graph)
    return advance("stage", scope.nodes(), operands, StagingContext(scope.constants, Limits(), branch_nodes))


def operators(nodes) -> list[str]:
    return [item.node.op for item in nodes]


def test_a_shape_that_is_computed_is_wanted():
    reached = stage(RESHAPED, x=StageInput(FLOAT32, (6,)), s=StageInput(INT64, (2,)))
    assert operators(reached.done) == ["Exp"]
    assert operators(reached.pending) == ["Reshape"]
    assert reached.wanted == {"s"}
    assert not reached.refused


def test_known_elements_finish_the_stage():
    reached = stage(RESHAPED, x=StageInput(FLOAT32, (6,)), s=StageInput(INT64, (2,), np.array([2, -1])))
    assert not reached.pending
    graph = reached.finish(["y"])
    assert [value.name for value in graph.inputs] == ["x"], "what is compiled in is no input"
    (found,) = run_graph(graph, {"x": X})
    np.testing.assert_allclose(found, np.exp(X.astype(np.float64)).reshape(2, 3), rtol=1e-6)


def test_a_condition_opens_the_branch_that_is_taken():
    unknown = stage(BRANCH, x=StageInput(FLOAT32, (6,)), c=StageInput(BOOL, ()))
    assert operators(unknown.pending) == ["If"]
    assert unknown.wanted == {"c"}
    for taken, function in ((True, np.negative), (False, np.abs)):
        reached = stage(BRANCH, x=StageInput(FLOAT32, (6,)), c=StageInput(BOOL, (), np.array(taken)))
        assert not reached.pending
        (found,) = run_graph(reached.finish(["y"]), {"x": X})
        np.testing.assert_allclose(found, function(np.exp(X.astype(np.float64))), rtol=1e-6)


def test_a_loop_with_a_count_of_the_run_is_left_to_the_host():
    reached = stage(LOOP, x=StageInput(FLOAT32, (6,)), k=StageInput(INT64, ()), c=StageInput(BOOL, ()))
    assert operators(reached.loops) == ["Loop"]
    assert not reached.done


def test_what_no_device_holds_is_refused_with_its_type():
    reached = stage(DOUBLE, x=StageInput(FLOAT32, (6,)))
    ((item, error),) = reached.refused.items()
    assert item.node.op == "Cast"
    assert "float64" in str(error)
    assert not reached.done
