"""Stages whose sizes keep changing: one plan for a range of them, with the results of a plan for each."""

from __future__ import annotations

import numpy as np
import pytest

import shaderloom
from shaderloom.compiler.staging.partial_compile import StageInput
from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.execution.program.size_generalisation import open_stage_input, size_inputs
from shaderloom.model.open_sizes import SizeHistory
from shaderloom.runtime.plan.dtypes import FLOAT32, INT64
from shaderloom.runtime.plan.errors import ShapeError
from shaderloom.runtime.plan.plan import Symbol

from ...support.programs import BRANCHES, Pair, numbers, parse
from ...support.sessions import plans_of
from ...support.size_keys import counted

pytestmark = pytest.mark.usefixtures("quiet_providers")

#: What is carried grows by the size of x in every iteration
GROWING = """g (float[n] x, int64 k) => (float[m] y, float[s] sums) {
    y, sums = Loop (k, , x) < body = b (int64 i, bool go, float[a] v) => (bool on, float[c] w, float s) {
        on = Identity(go)  w = Concat<axis = 0>(v, x)  t = Tanh(v)  s = ReduceMean<keepdims = 0>(t) } > }"""

#: A decoder: keys and values of all steps so far, and a mask that is one longer than those of the steps before
DECODER = """g (float[1, 2, p, 4] k0, float[1, 2, p, 4] v0, float[1, 1, 1, q] m0, float[1, 2, 1, 4] x0, int64 k)
    => (float[1, 2, 1, 4] x, float[1, 2, r, 4] keys) <float[1, 1, 1, 1] zero = {0}> {
    keys, values, mask, x = Loop (k, , k0, v0, m0, x0) < body = b
        (int64 i, bool go, float[1, 2, a, 4] kc, float[1, 2, a, 4] vc, float[1, 1, 1, c] mc, float[1, 2, 1, 4] h)
        => (bool on, float[1, 2, d, 4] kn, float[1, 2, d, 4] vn, float[1, 1, 1, e] mn, float[1, 2, 1, 4] hn) {
        on = Identity(go)
        kn = Concat<axis = 2>(kc, h)
        g2 = Tanh(h)
        vn = Concat<axis = 2>(vc, g2)
        kt = Transpose<perm = [0, 1, 3, 2]>(kn)
        s = MatMul(h, kt)
        sm = Add(s, mc)
        w = Softmax<axis = -1>(sm)
        o = MatMul(w, vn)
        hn = Add(o, h)
        mn = Concat<axis = 3>(mc, zero) } > }"""


def plan_count(pair: Pair) -> int:
    return pair.session.stats.misses


@pytest.mark.slow
def test_a_loop_whose_state_grows(pair) -> None:
    """Twenty sizes: a plan each, or two and one for all that follow."""
    feeds = {"x": numbers(3), "k": np.array(20)}
    session, closed = pair(GROWING), pair(GROWING, dynamic="off")
    for each in (session, closed):
        each.check(**feeds)
    assert (plan_count(session), plan_count(closed)) == (3, 20)
    session.check(x=numbers(3), k=np.array(17))
    assert plan_count(session) == 3
    session.check(x=numbers(3, seed=1), k=np.array(41))
    assert plan_count(session) == 3


def test_a_decoder(each_device) -> None:
    """Keys, values and the mask grow together; their sizes differ by one."""
    session = Pair(parse(DECODER), each_device)
    for past, steps in ((2, 20), (5, 30)):
        session.check(
            k0=numbers(1, 2, past, 4),
            v0=numbers(1, 2, past, 4, seed=1),
            m0=numbers(1, 1, 1, past + 1, seed=2),
            x0=numbers(1, 2, 1, 4, seed=3),
            k=np.array(steps),
        )
    assert plan_count(session) == 4
    open_plans = [plan.symbols for plan in plans_of(session.session) if plan.symbols]
    assert [len(symbols) for symbols in open_plans] == [1, 1], "few and many"


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True], ids=["float32", "float16"])
def test_a_decoder_with_a_node_on_the_cpu(half: bool, device) -> None:
    """A Softmax of doubles between two stages: both have ranges for few rows and for many, in half precision too."""
    model = parse("""g (float[1, p, 4] past, float[1, 1, 4] x) => (float[1, t, 4] present, float[1, 1, 4] y) {
        present = Concat<axis = 1>(past, x)  k = Transpose<perm = [0, 2, 1]>(present)  s = MatMul(x, k)
        d = Cast<to = 11>(s)  e = Softmax<axis = -1>(d)  f = Cast<to = 1>(e)  o = MatMul(f, present)  y = Tanh(o) }""")
    options = {"precision": "float16"} if half else {}
    with shaderloom.InferenceSession(
        model, device=device, cache=False, providers=["wgpu", "cpu"], options=options
    ) as session:
        past = numbers(1, 2, 4)
        made = []
        for step in range(17):
            x = numbers(1, 1, 4, seed=step)
            found, y = session.run(None, {"past": past, "x": x})
            past = np.concatenate([past, x], 1)
            weights = np.exp(x.astype(np.float64) @ past.transpose(0, 2, 1))
            expected = np.tanh(weights / weights.sum() @ past)
            np.testing.assert_allclose(y, expected, atol=1e-2 if half else 1e-5)
            np.testing.assert_allclose(found, past, rtol=1e-3 if half else 0)
            made.append(session.stats.misses)
        assert session.stats.steps == ["wgpu", "cpu", "wgpu"]
        assert not session.stats.refused_ranges
    assert made[2] == made[5] and made[7] == made[16] <= 8, made


#: What bodies of loops compute of v, which grows: r of the same length, or of another that grows too
BODIES = {
    "running sums": "r = CumSum(v, zero)",
    "softmax": "r = Softmax<axis = 0>(v)",
    "sorted": "n = Shape(v)  r, p = TopK<axis = 0>(v, n)",
    "outer product": "c = Unsqueeze(v, last)  d = Unsqueeze(v, flat)  m = MatMul(c, d)  r = ReduceMean(m, flat)",
    "reversed": "r = Slice(v, minus, least, flat, minus)",
    "padded": "p = Pad(v, two)  r = Slice(p, one, far)",
    "convolved": "t = Reshape(v, image)  c2 = Conv<pads = [1, 1]>(t, kernel)  r = Reshape(c2, minus)",
    "halved": "t = Reshape(v, image)  c2 = MaxPool<kernel_shape = [2], strides = [2]>(t)  r = Reshape(c2, minus)",
    "gathered": "a = ArgMax<axis = 0, keepdims = 0>(v)  g = Gather(v, a)  e = Equal(v, g)  r = Where(e, v, x0)",
    "expanded": "n = Shape(v)  h = Gather(v, zero)  r = Expand(h, n)",
    "counted": "n = Shape(v)  count = Squeeze(n, flat)  q = Range(zero, count, unit)  f = Cast<to = 1>(q)  "
    "r = Mul(f, v)",
    "in bytes": "h = Cast<to = 2>(v)  l = Mul(v, scale)  b = Cast<to = 3>(l)  g = Cast<to = 1>(b)  r = Add(g, v)",
    "even ones": "r = Slice(v, flat, far, flat, twice)",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_bodies_of_loops(name: str, pair) -> None:
    """Each is compiled for its first sizes alone and for a range then; sizes are odd, even, and not multiples of 4."""
    session = pair(f"""g (float[3] x, int64 k) => (float[m] y, float[s] sums, float[q] last_result)
    <int64 zero = {{0}}, int64 unit = {{1}}, int64[1] flat = {{0}}, int64[1] last = {{1}}, int64[1] one = {{1}},
     int64[1] minus = {{-1}}, int64[1] least = {{-9223372036854775807}}, int64[1] far = {{1000000}},
     int64[1] twice = {{2}}, int64[2] two = {{2, 1}}, int64[3] image = {{1, 1, -1}},
     float[1, 1, 3] kernel = {{0.5, -1.0, 0.25}}, float scale = {{20.0}}, float x0 = {{0.125}}> {{
    y, last_result, sums = Loop (k, , x, x) < body = b (int64 i, bool go, float[a] v, float[z] before)
        => (bool on, float[c] w, float[e] r, float s) {{
        on = Identity(go)  {BODIES[name]}  s = ReduceSum<keepdims = 0>(r)  w = Concat<axis = 0>(v, x) }} > }}""")
    for count in (9, 30):
        session.check(x=numbers(3), k=np.array(count))
    assert plan_count(session) < 10


def test_inputs_of_new_sizes(pair) -> None:
    """Both stages of a branch; sizes of 0 and 1 have plans of their own, and so do both sides."""
    session = pair(BRANCHES)
    made = []
    for size in (5, 9, 17, 13, 64, 1, 30):
        session.check(x=np.abs(numbers(size)) + 0.1)
        made.append(plan_count(session))
    assert made == [2, 4, 6, 6, 6, 8, 8]
    session.check(x=-np.abs(numbers(27)) - 0.1)
    assert plan_count(session) == 9
    session.check(x=np.abs(numbers(1100)))
    assert plan_count(session) == 11
    session.check(x=np.abs(numbers(1500)))
    assert plan_count(session) == 11


def test_a_stage_that_holds_for_some_sizes_only(pair) -> None:
    """Pairs of elements: multiples of the step that was met share a plan, and an odd size is the error that it was."""
    session = pair("""g (float[n] x, int64 k) => (float[m] y) <int64[2] pairs = {-1, 2}, int64[1] flat = {-1}> {
        y = Loop (k, , x) < body = b (int64 i, bool go, float[a] v) => (bool on, float[c] w) {
            on = Identity(go)  p = Reshape(v, pairs)  t = Transpose<perm = [1, 0]>(p)  f = Reshape(t, flat)
            w = Concat<axis = 0>(f, x) } > }""")
    session.check(x=numbers(4), k=np.array(9))
    assert plan_count(session) == 3
    (plan,) = (plan for plan in plans_of(session.session) if plan.symbols)
    assert [tuple(symbol.range) for symbol in plan.symbols] == [(12, 64, 4)]
    session.check(x=numbers(6), k=np.array(3))
    with pytest.raises(shaderloom.ShaderloomError, match="does not divide into groups"):
        session.session.run(None, {"x": numbers(5), "k": np.array(2)})


def test_what_later_stages_know_stays_known(pair) -> None:
    """The size of what grows decides about a slice behind the step: read by the next stage, compiled in as before."""
    session = pair("""g (float[n] x, int64 k) => (float[m] y, float[q] z) <int64[1] none = {0}, float zero = {0}> {
        y = Loop (k, , x) < body = b (int64 i, bool go, float[a] v) => (bool on, float[c] w) {
            on = Identity(go)  e = Exp(v)  s = ReduceSum<keepdims = 0>(e)  big = Greater(s, zero)
            size = Shape(v)
            h = If (big) < then_branch = t () => (float[o] u) { half = Div(size, size)  u = Slice(v, none, half) },
                           else_branch = f () => (float[o2] u2) { u2 = Neg(v) } >
            w = Concat<axis = 0>(v, h) } >
        z = Neg(y) }""")
    session.check(x=numbers(3), k=np.array(12))
    assert session.read_back == ["Loop_0.body/big"] * 12


def test_half_precision(device) -> None:
    model, x = parse(GROWING), numbers(3)
    with shaderloom.InferenceSession(model, device=device, cache=False, options={"precision": "float16"}) as session:
        (found, _) = session.run(None, {"x": x, "k": np.array(6)})
        np.testing.assert_allclose(found, np.tile(x, 7), rtol=1e-3)
        assert session.stats.misses == 3 and any(plan.symbols for plan in plans_of(session))


def test_integers_that_are_compiled_in_are_sizes() -> None:
    """Those that differ; beside an axis of the same size the axis tells it, else an input of its own."""
    seen = SizeHistory(narrow=False)
    for count in (5, 9):
        seen.note(counted(count, -1, a=(7,), b=(count + 1,)))
    general = seen.generalise(counted(12, -1, a=(7,), b=(13,)))
    assert general is not None and general.symbols == (Symbol("n[0]", 9, 256),)
    general_key = general.key(counted(12, -1, a=(7,), b=(13,)))
    assert general_key == general.key(counted(30, -1, a=(7,), b=(31,))) is not None
    assert general.key(counted(30, -1, a=(7,), b=(30,))) is None
    assert general.key(counted(30, -2, a=(7,), b=(31,))) != general_key
    count = open_stage_input(general, "n", StageInput(INT64, (2,), np.array([12, -1])))
    assert (
        count.static_value is not None and count.static_value[1] == -1 and ix.bounds(count.static_value[0]) == (9, 256)
    )
    axis = open_stage_input(general, "b", StageInput(FLOAT32, (13,)))
    assert ix.equal(axis.shape[0], ix.add(count.static_value[0], 1))
    (size_input,) = size_inputs(general, {"n": count, "b": axis}).values()
    assert size_input.feed(np.array([30, -1])).shape == (30, 0), "an axis that is one longer does not tell it"
    both = SizeHistory(narrow=False)
    for number in (5, 9):
        both.note(counted(number, a=(number,)))
    general = both.generalise(counted(12, a=(12,)))
    assert general is not None
    assert size_inputs(general, {"n": StageInput(INT64, (1,), np.array([12])), "a": StageInput(FLOAT32, (12,))}) == {}
    alone = SizeHistory(narrow=False)
    for number in (5, 9):
        alone.note(counted(number, a=(7,)))
    general = alone.generalise(counted(12, a=(7,)))
    assert general is not None
    (size_input,) = size_inputs(general, {"n": StageInput(INT64, (1,), np.array([12]))}).values()
    assert size_input.feed(np.array([30])).shape == (30, 0)


#: Stages that are compiled once how many elements are found is known
FOUND = {
    "NonZero": "p = NonZero(x)  t = Transpose<perm = [1, 0]>(p)  g1 = GatherND(x, t)  y = Tanh(g1)",
    "Compress": "b = Greater(x, zero)  f = Reshape(b, flat)  c = Compress(x, f)  y = Tanh(c)",
    "Unique": "r = Reshape(x, flat)  u, first, inverse, count = Unique(r)  c2 = Cast<to = 1>(count)  y = Mul(u, c2)",
    "TopK": "r = Reshape(x, flat)  b = Greater(r, zero)  i = Cast<to = 7>(b)  k = ReduceSum(i)  y, p = TopK(r, k)",
    "Slice": "r = Reshape(x, flat)  b = Greater(r, zero)  i = Cast<to = 7>(b)  k = ReduceSum(i)  "
    "s = Slice(r, none, k)  y = Tanh(s)",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_counts_of_what_is_found(name, pair) -> None:
    """0 and 1, and what comes before the third count, have plans of their own."""
    session = pair(f"g (float[4, 16] x) => (float[c] y) <float zero = {{0}}, int64[1] flat = {{-1}}, "
                   f"int64[1] none = {{0}}> {{ {FOUND[name]} }}")  # fmt: skip
    generator = np.random.default_rng(5)
    made = []
    for count in (5, 9, 12, 20, 33, 3, 50, 64, 2, 63, 1, 0, 31):
        x = np.zeros(64, np.float32)
        x[generator.choice(64, count, replace=False)] = np.arange(1, count + 1)
        session.check(x=x.reshape(4, 16))
        made.append(plan_count(session))
    assert made[2] == made[4] and made[5] == made[6] and made[-1] - made[2] <= 4, made


#: What is computed from a count, beside a result of that many elements
NUMBERS = {
    "a product": "c = Mul(k, big)",
    "a square": "c = Mul(k, k)",
    "a sum with 2 ** 40": "c = Add(k, huge)",
    "a difference from the least": "c = Sub(k, least)",
    "a float": "a = Mul(k, k)  b = Mul(a, a)  d = Cast<to = 1>(b)  c = Cast<to = 7>(d)",
    "a quotient": "a = Mul(k, big)  c = Div(a, thousand)",
    "a remainder": "a = Mul(k, big)  c = Mod(a, thousand)",
    "the larger": "a = Mul(k, big)  c = Max(a, big)",
    "a range": "a = Mul(k, big)  b = Add(a, k)  c = Range(a, b, one)",
    "a row of both": "a = Unsqueeze(k, flat)  b = Unsqueeze(most, flat)  d = Concat<axis = 0>(a, b)  c = Neg(d)",
    "a sum with a row": "a = Mul(k, big)  c = Add(r, a)",
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_64_bits_from_a_count(name, pair) -> None:
    session = pair(f"""g (int64 k) => (int64[m] r, int64[q] c)
        <int64 zero = {{0}}, int64 one = {{1}}, int64 big = {{1000000007}}, int64 huge = {{1099511627776}},
         int64 least = {{-9223372036854775807}}, int64 most = {{9223372036854775807}}, int64 thousand = {{1000}},
         int64[1] flat = {{0}}> {{ r = Range(zero, k, one)  {NUMBERS[name]} }}""")
    for count in (5, 9, 12, 60, 20000, 50000, 40000):
        session.check(k=np.array(count))


def test_an_index_that_is_beyond_some_sizes_is_an_error(pair) -> None:
    session = pair("""g (float[40, 6] x, int64 n) => (float[6] v, int64[m] r) <int64 zero = {0}, int64 one = {1}> {
        v = Gather(x, n)  r = Range(zero, n, one) }""")
    for number in (5, 9, 12, 39):
        session.check(x=numbers(40, 6), n=np.array(number))
    with pytest.raises(ShapeError, match="index 41 is out of range"):
        session.session.run(None, {"x": numbers(40, 6), "n": np.array(41)})


def test_boxes_that_are_left(pair) -> None:
    session = pair("""g (float[1, 40, 4] boxes, float[1, 1, 40] scores, int64[1] most) => (int64[c, 3] y, float[d] z)
        <float[1] overlap = {0.5}, int64[1] flat = {-1}, int64[1] two = {2}> {
        y = NonMaxSuppression(boxes, scores, most, overlap)  i = Gather<axis = 1>(y, two)  f = Reshape(i, flat)
        s = Reshape(scores, flat)  z = Gather(s, f) }""")
    corner = np.random.default_rng(3).uniform(0, 9, (1, 40, 2)).astype(np.float32)
    boxes = np.concatenate([corner, corner + 0.3], -1)
    made = []
    for most in (5, 9, 12, 20, 33, 3, 28, 2, 17):
        session.check(boxes=boxes, scores=np.abs(numbers(1, 1, 40)), most=np.array([most]))
        made.append(plan_count(session))
    assert made[2] == made[4] and made[5] == made[-1], made


def test_a_name_that_a_size_input_would_have(pair) -> None:
    """Then every count has a plan of its own."""
    model = parse("g (float[64] x, float[2] other) => (float[c] y, float[2] z) { p = NonZero(x)  y = Cast<to = 1>(p) "
                  " z = Neg(other) }")  # fmt: skip
    session = pair(model)
    for count in (5, 9, 12, 20):
        session.check(x=np.arange(64, dtype=np.float32) * (np.arange(64) < count), other=numbers(2))
    names = {port.name for plan in plans_of(session.session) for port in plan.inputs}
    (name,) = [name for name in names - {"x", "other"} if name.startswith("rows of")]
    for value in model.graph.input:
        value.name = name if value.name == "other" else value.name
    model.graph.node[-1].input[0] = name
    session = pair(model)
    for count in (5, 9, 12, 20):
        session.check(x=np.arange(64, dtype=np.float32) * (np.arange(64) < count), **{name: numbers(2)})


#: A stage of x whose sizes are open; most are not valid for few elements
CHOSEN = """g (float[n] x) => (float[q] y)
    <float low = {-1e30}, int64 i5 = {5}, int64[1] back = {-1}, int64[1] ten = {10}, int64[3] image = {1, 1, -1},
     float[1, 1, 5] kernel = {1, 1, 1, 1, 1}, float[1] one = {1}> {
    total = ReduceSum<keepdims = 0>(x)  c = Greater(total, low)
    y = If (c) < then_branch = a () => (float[r] t) { BODY },
                 else_branch = b () => (float[s] e) { e = Identity(x) } > }"""
CONV = "i = Reshape(x, image)  u = Conv(i, kernel)"
NEEDS_FIVE = {
    "an index": "u = Gather(x, i5)  t = Reshape(u, back)",
    "a window": f"{CONV}  t = Reshape(u, back)",
    "a window, summed": f"{CONV}  v = ReduceSum<keepdims = 0>(u)  t = Reshape(v, back)",
    "a window, cancelled": f"{CONV}  v = Concat<axis = 2>(u, i)  t = Reshape(v, back)",
    "a dilated pool": "i = Reshape(x, image)  u = MaxPool<kernel_shape=[3], dilations=[3]>(i)  t = Reshape(u, back)",
    "a computed size": "n = Shape(x)  d = Sub(n, ten)  t = Expand(one, d)",
}


@pytest.mark.parametrize("body", NEEDS_FIVE.values(), ids=list(NEEDS_FIVE))
def test_what_is_an_error_for_a_size_stays_one(pair, body) -> None:
    """A range of sizes is open only if the stage is valid for all of them."""
    session = pair(CHOSEN.replace("BODY", body))
    for count in (20, 22, 27, 31):
        session.check(x=numbers(count))
    for count in (3, 2):
        with pytest.raises(ShapeError):
            session.session.run(None, {"x": numbers(count)})
    session.check(x=numbers(24))
