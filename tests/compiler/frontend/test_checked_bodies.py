"""The option ``check_indices`` in bodies of If, Loop and Scan, beside onnxruntime.

Covers: compiler/frontend/checked_bodies, compiler/frontend/checked_indices, compiler/ops/internal.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx.parser
import pytest

import shaderloom
from shaderloom.runtime.plan.errors import InputError, RunError

HEADER = '<ir_version: 8, opset_import: ["" : {opset}]> '
Feeds = dict[str, Any]


class Case(NamedTuple):
    """A model of ``t`` [n, 4] and other inputs; feeds with indices in range, feeds without; the node of the error."""

    text: str
    good: list[Feeds]
    bad: list[Feeds]
    node: str


CASES = {
    "if": Case(
        "g (float[n, 4] t, int64[m] i, bool c) => (float y, float z) {"
        "  y, z = If(c) <then_branch = a () => (float p, float q) {"
        "    two = Gather(t, i)  p = ReduceSum<keepdims = 0>(two)  q = Neg(p)"
        "  }, else_branch = d () => (float r, float s) { r = ReduceSum<keepdims = 0>(t)  s = Neg(r) }> }",
        [{"i": [0, -3], "c": True}, {"i": [9], "c": False}],
        [{"i": [0, 5], "c": True}, {"i": [-6], "c": True}],
        "main/If_0.then_branch node 0",
    ),
    "loop": Case(  # with a value that is carried and one that is stacked
        "g (float[n, 4] t, int64[m] i, int64 n, float s) => (float y, float[k, 4] z) {"
        "  y, z = Loop(n, , s) <body = b (int64 k, bool before, float v) => (bool after, float w, float[4] e) {"
        "    after = Identity(before)  j = Gather(i, k)  e = Gather(t, j)"
        "    r = ReduceSum<keepdims = 0>(e)  w = Add(v, r) }> }",
        [{"i": [0, 1, -1, 2], "n": 3, "s": 1.0}, {"i": [0, 9], "n": 1, "s": 0.0}],
        [
            {"i": [0, 5, 1], "n": 3, "s": 0.0},
            {"i": [-6], "n": 1, "s": 0.0},
            {"i": [1, 7, 8], "n": 3, "s": 0.0},
            {"i": [0, 1], "n": 3, "s": 0.0},
        ],
        "main/Loop_0.body node",
    ),
    "written out": Case(
        "g (float[n, 4] t, int64[3] i) => (float y) {"
        "  n = Constant<value_int = 3>()  s = Constant<value_float = 0.5>()"
        "  y = Loop(n, , s) <body = b (int64 k, bool before, float v) => (bool after, float w) {"
        "    after = Identity(before)  j = Gather(i, k)  e = Gather(t, j)"
        "    r = ReduceSum<keepdims = 0>(e)  w = Add(v, r) }> }",
        [{"i": [0, 1, -1]}],
        [{"i": [0, 5, 1]}, {"i": [7, 5, 1]}, {"i": [0, 1, -6]}],
        "main/Loop_2.body node 2",
    ),
    "while": Case(  # walks along indices until one is 0
        "g (float[n, 4] t, int64[m] i) => (int64 y, float[k, 4] z) {"
        "  s = Constant<value_int = 1>()  go = Constant<value_int = 1>()  more = Cast<to = 9>(go)"
        "  y, z = Loop(, more, s) <body = b (int64 k, bool before, int64 at) => (bool after, int64 next, float[4] e) {"
        "    next = Gather(i, at)  e = Gather(t, next)  after = Cast<to = 9>(next) }> }",
        [{"i": [9, 2, 0]}, {"i": [9, -1, 0]}],
        [{"i": [0, 5, 0]}, {"i": [0, -6, 1]}],
        "main/Loop_3.body node",
    ),
    "scan": Case(
        "g (float[n, 4] t, int64[m] i, float s) => (float y, float[m, 4] z) {"
        "  y, z = Scan<num_scan_inputs = 1, body = b (float v, int64 j) => (float w, float[4] e) {"
        "    e = Gather(t, j)  r = ReduceSum<keepdims = 0>(e)  w = Add(v, r) }>(s, i) }",
        [{"i": [0, -3, 2], "s": 1.0}, {"i": [1], "s": 1.0}],
        [{"i": [0, -6, 2], "s": 1.0}, {"i": [5], "s": 1.0}],
        "main/Scan_0.body node 0",
    ),
    "nested": Case(  # an If in a Loop in a Loop; the inner one has as many iterations as the number of the outer
        "g (float[n, 4] t, int64[m] i, int64 n) => (float y) {"
        "  s = Constant<value_float = 0.5>()"
        "  y = Loop(n, , s) <body = b (int64 k, bool before, float v) => (bool after, float w) {"
        "    after = Identity(before)"
        "    w = Loop(k, , v) <body = c (int64 l, bool b2, float v2) => (bool a2, float w2) {"
        "      a2 = Identity(b2)  j = Gather(i, l)  two = Constant<value_int = 2>()  big = Less(j, two)"
        "      e = If(big) <then_branch = d () => (float p) {"
        "        row = Gather(t, j)  p = ReduceSum<keepdims = 0>(row)"
        "      }, else_branch = f () => (float q) { q = ReduceSum<keepdims = 0>(t) }>"
        "      w2 = Add(v2, e) }> }> }",
        [{"i": [0, 1, -1, 99], "n": 4}, {"i": [9, 9], "n": 2}, {"i": [9, 9], "n": 0}],
        [{"i": [0, -6, 1], "n": 4}, {"i": [-7, 9], "n": 2}],
        "then_branch node 0",
    ),
}
OLD_SCAN = HEADER.format(opset=8) + (
    "g (float[n] t, int64[1, m] i) => (float[1, m] y) {"
    "  y = Scan<num_scan_inputs = 1, body = b (int64 j) => (float e) { [r] e = Gather(t, j) }>(, i) }"
)


def _model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text if text.startswith("<") else HEADER.format(opset=18) + text)


def _feeds(feeds: Feeds, rows: int = 3) -> dict[str, np.ndarray]:
    table = np.arange(4 * rows, dtype=np.float32).reshape(rows, 4)
    arrays = {name: np.array(value) for name, value in feeds.items()}
    return {"t": table, **{k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in arrays.items()}}


@pytest.fixture
def open_session(each_device) -> Iterator[Any]:
    opened = []

    def make(model: onnx.ModelProto, *providers: str) -> shaderloom.InferenceSession:
        options = shaderloom.SessionOptions()
        options.check_indices = True
        session = shaderloom.InferenceSession(model, options, providers, device=each_device, cache=False)
        opened.append(session)
        return session

    yield make
    for session in opened:
        session.close()


@pytest.mark.parametrize("providers", [("wgpu",), pytest.param(("wgpu", "cpu"), marks=pytest.mark.slow)], ids="-".join)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_error_is_onnxruntimes(open_session, case, providers):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = _model(case.text)
    reference = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "check_indices does not reach")
        session = open_session(model, *providers)
    assert [each.name for each in session.get_outputs()] == [each.name for each in model.graph.output]
    for rows in (3, 5):
        for feeds in (_feeds(feeds, rows) for feeds in case.good):
            for actual, wanted in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
                np.testing.assert_allclose(actual, wanted)
        for feeds in (_feeds(feeds, 3) for feeds in case.bad):
            with pytest.raises(Exception, match="indices element out of data bounds") as expected:
                reference.run(None, feeds)
            with pytest.raises(RunError, match=re.escape(case.node)) as caught:
                session.run(None, feeds)
            text = str(expected.value)
            assert text[text.index("indices element") :].strip() in str(caught.value)


@pytest.mark.parametrize("whole", [True, False], ids=["the loop", "a node in its body"])
def test_what_the_cpu_runs_is_checked_there(open_session, whole):
    pytest.importorskip("onnxruntime")
    text = CASES["loop"].text
    if whole:
        text = text.replace("float", "double")
    else:
        text = text.replace("e = Gather(t, j)", "d = Cast<to = 11>(t)  f = Gather(d, j)  e = Cast<to = 1>(f)")
    session = open_session(_model(text), "wgpu", "cpu")
    feeds = _feeds({"i": [0, 1, -1, 2], "n": 3, "s": 1.0})
    if whole:
        feeds |= {"t": feeds["t"].astype(np.float64), "s": np.array(1.0)}
    total, rows = session.run(None, feeds)
    np.testing.assert_array_equal(rows, feeds["t"][[0, 1, -1]])
    assert total == 1 + rows.sum()
    with pytest.raises(InputError, match="idx=3 must be within the inclusive range"):
        session.run(None, feeds | {"i": np.array([0, 1, 3])})
    with pytest.raises((RunError, InputError), match="idx=3 must be within the inclusive range"):
        session.run(None, feeds | {"n": np.array(4), "i": np.array([0, 1, 2])})


def test_a_session_names_the_nodes_that_it_does_not_check(open_session):
    """Operands of Scan in opset 8 have an axis for the batch: none of them can be the row."""
    with pytest.warns(shaderloom.ShaderloomWarning, match="not reach Gather 'r' in a body of Scan"):
        session = open_session(_model(OLD_SCAN), "wgpu")
    table = np.array([3, 5, 7], np.float32)
    (rows,) = session.run(None, {"t": table, "i": np.array([[0, 2, 9]])})
    np.testing.assert_array_equal(rows, [[3, 7, 7]])


def test_a_branch_that_cannot_be_imported_is_named(open_session):
    text = CASES["if"].text.replace(
        "r = ReduceSum<keepdims = 0>(t)", "u = Neg(nothing)  r = ReduceSum<keepdims = 0>(u)"
    )
    with pytest.warns(shaderloom.ShaderloomWarning, match="not reach Gather 'two' in a body of If"):
        session = open_session(_model(text), "wgpu")
    assert session.run(None, _feeds({"i": [0, 9], "c": True}))[0] == 6 + 38
