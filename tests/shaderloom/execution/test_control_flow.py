"""Conditions and counts that are computed: If, Loop and Scan beside onnxruntime.

Covers: shaderloom/execution/program, compiler/staging.
"""

from __future__ import annotations

import numpy as np
import pytest

import shaderloom
from shaderloom.runtime.plan.errors import LimitError, ShaderloomError

from ...support.programs import BOTH, BRANCHES, COUNTED, WGPU, numbers, parse

pytestmark = pytest.mark.usefixtures("quiet_providers")


# -- If ----------------------------------------------------------------------------------------------------------------


def test_if_takes_the_branch_that_the_data_says(pair):
    session = pair(BRANCHES)
    for size in (1, 3, 63):
        x = np.abs(numbers(size)) + 0.1
        session.check(x=x)
        session.check(x=-x)
    assert session.read_back == ["c"]


@pytest.mark.parametrize("providers", [WGPU, BOTH])
def test_a_branch_that_is_never_taken_may_be_anything(device, providers):
    model = parse("""g (float[n] x) => (float[n] y) <float zero = {0}> {
        m = ReduceSum<keepdims = 0>(x)  c = Greater(m, zero)
        y = If (c) < then_branch = a () => (float[p] t) { t = Neg(x) },
                     else_branch = b () => (float[q] e) {
                         d = Cast<to = 11>(x)  u = Unknown(d)  e = Cast<to = 1>(u) } > }""")
    with shaderloom.InferenceSession(model, providers=providers, device=device, cache=False) as session:
        x = np.ones(3, np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x)
        made = session.stats.misses
        with pytest.raises(ShaderloomError, match=r"Unknown|float64"):
            session.run(None, {"x": -x})
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x)
        assert session.stats.misses == made


def test_a_branch_on_the_cpu(pair):
    session = pair(
        """g (float[n] x) => (float[n] y) <float zero = {0}> {
        m = ReduceSum<keepdims = 0>(x)  c = Greater(m, zero)
        y = If (c) < then_branch = a () => (float[p] t) { t = Neg(x) },
                     else_branch = b () => (float[q] e) {
                         d = Cast<to = 11>(x)  u = Mul(d, d)  e = Cast<to = 1>(u) } > }""",
        BOTH,
    )
    session.check(x=np.ones(3, np.float32))
    assert {row.provider for row in session.session.placement()} == {"wgpu", "folded"}
    session.check(x=-np.ones(3, np.float32))
    nested = {row.node: row.provider for row in session.session.placement() if "/" in row.node}
    assert nested["If_2.else_branch/Mul_1"] == "cpu"
    assert session.read_back == ["c"]  # what the branch reads comes from the caller, and goes to him


def test_branches_that_compute_nothing(pair):
    session = pair("""g (float[n] x, bool c) => (float[m] y) {
        w = Exp(x)
        y = If (c) < then_branch = a () => (float[p] t) { t = Identity(w) },
                     else_branch = b () => (float[q] e) { e = Constant<value_floats = [1.0, 2.0]>() } > }""")
    session.check(x=numbers(3), c=np.array(True))
    session.check(x=numbers(3), c=np.array(False))


# -- Loop --------------------------------------------------------------------------------------------------------------


def test_a_loop_with_a_count_of_the_data(pair):
    session = pair(COUNTED)
    for size in (1, 4, 65):
        for count in (1, 5, 2):
            session.check(x=numbers(size), k=np.array(count))
    assert session.session.stats.misses == 3  # one plan for each size, none for a count
    assert session.read_back == []


def test_a_loop_of_no_iterations(pair):
    session = pair(COUNTED.replace("float[s, n] ys", "float[s, t] ys"))
    y, ys = session.check(x=numbers(3), k=np.array(0))
    np.testing.assert_array_equal(y, numbers(3))
    assert ys.size == 0


BROKEN = """g (float[n] x) => (float[n] y, float[s] ys) <float most = {100}> {
    first = ReduceSum<keepdims = 0>(x)  start = Less(first, most)
    y, ys = Loop ( , start, x) < body = b (int64 i, bool go, float[n] v) => (bool on, float[n] w, float total) {
        w = Add(v, v)  total = ReduceSum<keepdims = 0>(w)  on = Less(total, most) } > }"""


def test_a_loop_that_breaks(pair):
    session = pair(BROKEN)
    session.check(x=np.arange(3, dtype=np.float32))
    assert session.read_back == ["start", *["Loop_2.body/on"] * 6]
    session.check(x=np.arange(7, dtype=np.float32))
    session.check(x=np.full(3, 1000, np.float32))  # never begins
    assert session.read_back == ["start"]


def test_carried_values_may_grow(pair):
    session = pair("""g (float[n] x, int64 k) => (float[m] y) {
        y = Loop (k, , x) < body = b (int64 i, bool go, float[a] v) => (bool on, float[c] w) {
            on = Identity(go)  w = Concat<axis = 0>(v, x) } > }""")
    session.check(x=numbers(3), k=np.array(4))
    session.check(x=numbers(2), k=np.array(1))


def test_an_if_inside_a_loop(pair):
    session = pair("""g (float[n] x, int64 k) => (float[n] y) <float zero = {0}> {
        y = Loop (k, , x) < body = b (int64 i, bool go, float[n] v) => (bool on, float[n] w) {
            on = Identity(go)  s = ReduceSum<keepdims = 0>(v)  c = Greater(s, zero)
            w = If (c) < then_branch = a () => (float[n] t) { t = Sub(v, x) },
                         else_branch = e () => (float[n] u) { h = Add(v, x)  u = Add(h, x) } > } > }""")
    for size in (3, 17):
        session.check(x=np.abs(numbers(size)), k=np.array(7))
    assert session.read_back == ["Loop_0.body/c"] * 7


def test_a_loop_inside_a_loop_and_captured_names(pair):
    session = pair("""g (float[n] x, int64 k) => (float[n] y) {
        scale = Exp(x)
        y = Loop (k, , x) < body = b (int64 i, bool go, float[n] v) => (bool on, float[n] w) {
            on = Identity(go)
            w = Loop (i, , v) < body = d (int64 j, bool go2, float[n] u) => (bool on2, float[n] r) {
                on2 = Identity(go2)  f = Cast<to = 1>(j)  g = Add(u, f)  q = Mul(g, scale)  r = Tanh(q) } > } > }""")
    session.check(x=numbers(5), k=np.array(4))


def test_nonzero_inside_a_loop(pair):
    session = pair("""g (float[n] x, int64 k) => (float[m] y) <int64[1] flat = {-1}, float half = {0.5}> {
        y = Loop (k, , x) < body = b (int64 i, bool go, float[a] v) => (bool on, float[c] w) {
            on = Identity(go)  s = Sub(v, half)  p = Relu(s)  q = NonZero(p)
            f = Reshape(q, flat)  w = Gather(s, f) } > }""")
    session.check(x=np.arange(6, dtype=np.float32), k=np.array(3))


def test_a_loop_over_a_sequence_runs_on_the_cpu(pair):
    session = pair(
        """g (float[n] x, int64 k) => (float[m] y) {
        e = SequenceEmpty<dtype = 1>()
        s = Loop (k, , e) < body = b (int64 i, bool go, seq(float[n]) v) => (bool on, seq(float[n]) w) {
            on = Identity(go)  f = Cast<to = 1>(i)  t = Add(x, f)  w = SequenceInsert(v, t) } >
        z = ConcatFromSequence<axis = 0>(s)  y = Neg(z) }""",
        BOTH,
    )
    session.check(x=numbers(3), k=np.array(4))
    rows = {row.op_type: row.provider for row in session.session.placement()}
    assert rows["Loop"] == "cpu"
    assert rows["Neg"] == "wgpu"


def test_too_many_iterations_are_an_error(device):
    caps = shaderloom.Caps(loop_iterations=5)
    with shaderloom.InferenceSession(parse(COUNTED), device=device, cache=False, caps=caps) as session:
        session.run(None, {"x": numbers(3), "k": np.array(5)})
        with pytest.raises(LimitError, match="loop_iterations"):
            session.run(None, {"x": numbers(3), "k": np.array(6)})
        session.run(None, {"x": numbers(3), "k": np.array(2)})


# -- Scan --------------------------------------------------------------------------------------------------------------

SCAN = """g (float[s, n] x, float[n] a) => (float[n] y, float[t, n] ys) <float most = {50}> {
    y, ys = Scan <num_scan_inputs = 1, scan_input_directions = [DIRECTION], scan_output_axes = [AXIS], body =
        b (float[n] v, float[n] e) => (float[n] w, float[n] o) {
            h = Add(v, e)  t = ReduceSum<keepdims = 0>(h)  c = Less(t, most)
            w = If (c) < then_branch = d () => (float[n] p) { p = Identity(h) },
                         else_branch = f () => (float[n] q) { q = Neg(h) } >
            o = Mul(w, w) } > (a, x) }"""


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_scan_with_a_condition_inside(pair, direction, axis):
    session = pair(SCAN.replace("DIRECTION", str(direction)).replace("AXIS", str(axis)))
    for count, size in ((3, 4), (7, 1), (5, 17)):
        session.check(x=np.abs(numbers(count, size)) * 4, a=numbers(size))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_scan_of_no_iterations_has_its_states_and_empty_results(pair, axis):
    session = pair(
        f"""g (float[s, 4] x, float[4] a) => (float[4] y, float[t, u] ys) {{
        y, ys = Scan <num_scan_inputs = 1, scan_output_axes = [{axis}], body =
            b (float[4] v, float[4] e) => (float[4] w, float[4] o) {{ w = Add(v, e)  o = Mul(w, w) }} > (a, x) }}"""
    )
    session.check(x=numbers(3, 4), a=numbers(4))
    y, ys = session.session.run(None, {"x": numbers(0, 4), "a": numbers(4)})  # onnxruntime refuses it
    np.testing.assert_array_equal(y, numbers(4))
    assert (ys.dtype, ys.shape) == (np.float32, (0, 4) if axis == 0 else (4, 0))
