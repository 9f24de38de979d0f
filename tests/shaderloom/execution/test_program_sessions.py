"""Sessions of models in stages: tensors on the device, plans that are kept, errors, threads, the command line.

Covers: shaderloom/execution/program.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import onnx
import onnx.parser
import pytest
from typer.testing import CliRunner

import shaderloom
from shaderloom.cli import app
from shaderloom.execution.plan_bound import PlanBound
from shaderloom.execution.program.interpreter import STAGES
from shaderloom.execution.program.state import Block
from shaderloom.execution.program.step_cache import STEPS, NextStep, StepCache
from shaderloom.execution.program.steps import HostStep
from shaderloom.execution.steps import PlanStep
from shaderloom.runtime.plan.errors import ShaderloomError

from ...support.programs import BOTH, BRANCHES, COUNTED, WGPU, numbers, parse, sparse
from ...support.sessions import engine_of

pytestmark = pytest.mark.usefixtures("quiet_providers")


# -- sessions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("location", ["cpu", "gpu-buffer"])
def test_tensors_on_the_device_in_and_out(device, location):
    with shaderloom.InferenceSession(
        parse(BRANCHES), device=device, cache=False, preferred_output_location=location
    ) as session:
        for sign in (1, -1):
            x = sign * np.abs(numbers(5))
            expected = np.exp(x) + x.sum() if sign > 0 else np.concatenate([x, np.exp(x)])
            tensor = shaderloom.Tensor.from_numpy(x, device)
            target = shaderloom.Tensor.empty(expected.shape, np.float32, device)
            (result,) = session.run(None, {"x": tensor})
            assert isinstance(result, shaderloom.Tensor) == (location == "gpu-buffer")
            np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-5)
            session.run(None, {"x": tensor}, outputs={"y": target})
            np.testing.assert_allclose(target.numpy(), expected, rtol=1e-5)


def test_some_of_the_outputs(pair):
    session = pair(COUNTED).session
    x = numbers(3)
    (ys,) = session.run(["ys"], {"x": x, "k": np.array(2)})
    np.testing.assert_allclose(ys, [x * 0, 3 * x], rtol=1e-6)


def test_plans_of_stages_are_bounded_and_come_back(device):
    """Those of each size where sizes do not stay open; where they do, a few serve all sizes."""
    model = parse("g (float[n] x) => (int64[1, m] y) { y = NonZero(x) }")
    for dynamic in ("off", "auto"):
        with shaderloom.InferenceSession(model, device=device, cache=False, plans=1, dynamic=dynamic) as session:
            for _ in range(2):
                for size in range(1, 12):
                    np.testing.assert_array_equal(session.run(None, {"x": np.ones(size, np.float32)})[0], [range(size)])
            assert (session.stats.evictions > 0) == (dynamic == "off")
            assert (session.stats.misses < 11) == (dynamic == "auto")


def test_stages_come_from_the_disk(device, tmp_path):
    x = np.array([0, 2, 0, 3], np.float32)
    text = "g (float[n] x) => (int64[1, m] y) { f = Sub(x, x)  k = Add(x, f)  y = NonZero(k) }"
    for number in range(2):
        with shaderloom.InferenceSession(
            parse(text),
            device=device,
            cache=tmp_path,
        ) as session:
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], [[1, 3]])
            assert session.stats.misses == 2
            assert session.stats.disk_hits == 2 * number


def test_other_values_do_not_come_from_the_disk(device, tmp_path):
    text = "g (float[n] x, int64[2] s) => (float[a, b] y) { e = Exp(x)  y = Reshape(e, s) }"
    x = numbers(12)
    for shape in ((3, 4), (4, 3), (2, 6)):
        with shaderloom.InferenceSession(parse(text), device=device, cache=tmp_path) as session:
            (result,) = session.run(None, {"x": x, "s": np.array(shape)})
            np.testing.assert_allclose(result, np.exp(x).reshape(shape), rtol=1e-5)


def test_a_model_that_is_one_plan_stays_one(device):
    model = parse("g (float[n] x) => (float[n] y) { y = Relu(x) }")
    with shaderloom.InferenceSession(model, providers=BOTH, device=device, cache=False) as session:
        session.run(None, {"x": numbers(3)})
        assert session.stats.steps == ["wgpu"]
        assert session.stats.keys, "the plan is one of the session, by shape key"


def test_closing_and_recovering(device):
    session = shaderloom.InferenceSession(parse(BRANCHES), device=device, cache=False)
    session.run(None, {"x": numbers(3)})
    session.recover(device)
    session.run(None, {"x": numbers(3)})
    session.close()
    with pytest.raises(shaderloom.ClosedError):
        session.run(None, {"x": numbers(3)})


def test_a_condition_of_two_elements_is_an_error(device):
    model = parse("""g (float[n] x, bool[k] c) => (float[n] y) {
        y = If (c) < then_branch = a () => (float[n] t) { t = Neg(x) },
                     else_branch = b () => (float[n] e) { e = Exp(x) } > }""")
    with shaderloom.InferenceSession(model, device=device, cache=False) as session:
        with pytest.raises(ShaderloomError, match="one element"):
            session.run(None, {"x": numbers(3), "c": np.array([True, False])})
        assert session.run(None, {"x": numbers(3), "c": np.array([True])})[0].shape == (3,)


def test_a_shape_that_does_not_fit_is_told_with_the_node(device):
    model = parse("g (float[n] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }")
    feeds: Mapping[str, np.ndarray] = {"x": numbers(12), "s": np.array([5, 5])}
    with shaderloom.InferenceSession(model, device=device, cache=False) as session:
        with pytest.raises(ShaderloomError) as caught:
            session.run(None, feeds)
        assert caught.value.origin.op == "Reshape"


def test_what_follows_from_small_integers_needs_no_device(pair):
    session = pair("""g (float[n] x, int64 rate) => (float[m] y) <int64 high = {16000}> {
        c = Equal(rate, high)
        y = If (c) < then_branch = a () => (float[p] t) { t = Neg(x) },
                     else_branch = b () => (float[q] e) { h = Greater(rate, high)
                         e = If (h) < then_branch = d () => (float[r] u) { u = Exp(x) },
                                      else_branch = f () => (float[s] v) { v = Tanh(x) } > } > }""")
    for rate in (16000, 8000, 48000):
        session.check(x=numbers(5), rate=np.array(rate))
        assert session.session.stats.steps == ["wgpu"]
        assert session.read_back == []
    made = session.session.stats.misses
    session.check(x=numbers(5), rate=np.array(44100))
    assert session.session.stats.misses == made  # the rate itself is no part of the key


def test_what_needs_one_plan_says_so(pair):
    session = pair(BRANCHES).session
    with pytest.raises(ShaderloomError) as caught:
        session.plan_for({"x": numbers(3)})
    assert caught.value.origin.op == "If"
    assert "must be known at compile time" in str(caught.value)


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_kept_steps_are_bounded_by_number_plans_and_bytes():
    block = Block("b", (), ())
    state = block.state((), frozenset())
    closed: list[object] = []

    def step(plan: bool = False):
        made = object.__new__(PlanStep if plan else HostStep)
        made.close = lambda: closed.append(made)
        if plan:
            made.executor = SimpleNamespace(device_bytes=0)
        return NextStep(made, state, {})

    kept = StepCache(PlanBound.of(2), key_bytes=100)
    for number in range(40):
        kept.keep(state, (("x", ("float32", (number,))),), step())
    assert len(kept) == 2 * STEPS
    assert len(closed) == 40 - len(kept)
    plans = [step(plan=True) for _ in range(3)]
    kept.keep(state, (("p", (0,)),), plans[0])
    kept.keep(state, (("p", (1,)),), plans[1])
    assert kept.find(state, (("p", (0,)),)) is not None  # used: the other one goes
    kept.keep(state, (("p", (2,)),), plans[2])
    assert kept.plans() == [plans[0].step, plans[2].step]
    assert kept.find(state, (("p", (1,)),)) is None
    for number in range(5):
        kept.keep(state, (("k", ("int64", (5,), bytes([number]) * 40)),), step())
        assert kept.bytes <= 100
    kept.keep(state, (("k", ("int64", (50,), bytes(400))),), step())
    assert len(kept) == 1  # one that is too large alone still runs
    kept.close()
    assert len(kept) == kept.bytes == 0


def test_many_shapes_leave_a_bounded_program(device):
    """Every size makes states and steps of its own; the oldest go, and come back when they are wanted."""
    model = parse("""g (float[n] x) => (int64[a, m] y, float[p] z) {
        y = NonZero(x)  h = Sub(x, x)  c = Greater(x, h)  z = Compress(x, c) }""")
    with shaderloom.InferenceSession(model, providers=WGPU, device=device, cache=False, plans=1) as session:
        sizes = (*range(2, 22), 2, 3)
        for size in sizes:
            x = sparse(size, keep=0.7, seed=size)
            y, z = session.run(None, {"x": x})
            np.testing.assert_array_equal(y, np.stack(np.nonzero(x)))
            np.testing.assert_array_equal(z, x[x > 0])
        program = engine_of(session).program
        assert len(program.plans()) <= STAGES
        assert len(program._cache) <= STAGES * STEPS
        gc.collect()
        assert len(program._builder.main.states) <= 2 * len(program._cache) + 1
        assert session.stats.evictions > 0


def test_runs_of_several_threads_are_correct(device):
    model = parse("g (float[n] x) => (int64[a, m] y) { y = NonZero(x) }")
    with shaderloom.InferenceSession(model, providers=WGPU, device=device, cache=False) as session:
        inputs = [sparse(size, seed=size) for size in (5, 9, 17, 9, 5, 17)]
        with ThreadPoolExecutor(3) as pool:
            results = list(pool.map(lambda x: session.run(None, {"x": x})[0], inputs * 2))
        for x, y in zip(inputs * 2, results, strict=True):
            np.testing.assert_array_equal(y, np.stack(np.nonzero(x)))


def test_declared_dimensions_are_checked_and_sizes_may_change(device):
    model = parse("g (float[n] x) => (int64[a, m] y) { y = NonZero(x) }")
    dynamic = {"n": (1, 64)}
    with shaderloom.InferenceSession(model, providers=WGPU, device=device, cache=False, dynamic=dynamic) as session:
        for size in (5, 64, 9):
            x = sparse(size, seed=size)
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.stack(np.nonzero(x)))
        with pytest.raises(ShaderloomError, match="declared dynamic from 1 to 64"):
            session.run(None, {"x": np.zeros(65, np.float32)})


def test_run_of_a_model_in_stages(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[6] x) => (float[n] y)
        { r = Relu (x) at = NonZero (r) t = Transpose (at) y = GatherND (x, t) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "staged.onnx")
    np.save(tmp_path / "x.npy", np.array([3, -1, 2, 0, -5, 7], np.float32))
    arguments = ("run", tmp_path / "staged.onnx", "--input", f"x={tmp_path / 'x.npy'}")
    result = CliRunner().invoke(app, [str(argument) for argument in (*arguments, "--json")])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["outputs"][0]["shape"] == [3] and facts["stages"] == 2 and facts["calls"] > 1
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert f"{facts['calls']} calls in 2 stages" in result.output
