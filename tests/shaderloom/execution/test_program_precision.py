"""``precision="float16"`` of models in stages: halves inside stages, and the decisions of full precision.

Covers: shaderloom/execution/program, compiler/precision, shaderloom/model/calibration.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from typer.testing import CliRunner

import shaderloom
from shaderloom.cli import app
from shaderloom.compiler.precision.exact_set import CONTROL
from shaderloom.compiler.target import target_of
from shaderloom.execution.program.stage_compiler import UNCALIBRATED
from shaderloom.model.calibration import Calibration
from tests.support.comparison import reference, relative_error

from ...support.effort import quick_first
from ...support.sessions import plans_of

pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.usefixtures("fresh_notices")

TOLERANCE = 2e-2
HEADER = '<ir_version: 8, opset_import: ["" : 18]>'
WGPU = ["wgpu"]


def parse(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEADER + text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def weight(*shape: int, seed: int = 0) -> np.ndarray:
    return numbers(*shape, seed=seed) / np.float32(np.sqrt(np.prod(shape[1:])))


def squares(count: int) -> dict[str, np.ndarray]:
    return {f"w{number}": weight(64, 64, seed=number) for number in range(1, count + 1)}


def half(model: onnx.ModelProto, device, providers=WGPU, **options) -> shaderloom.InferenceSession:
    options = {"precision": "float16", "verify": True, **options}
    return shaderloom.InferenceSession(model, providers=providers, device=device, cache=False, options=options)


def full(model: onnx.ModelProto, device) -> shaderloom.InferenceSession:
    return shaderloom.InferenceSession(model, providers=WGPU, device=device, cache=False)


def tensors(session: shaderloom.InferenceSession) -> dict[str, str]:
    """Element type of the tensors in memory that have a name, of all stages."""
    rows = [row for plan in plans_of(session) for row in plan.facts.tensors]
    return {row.name: row.dtype for row in rows if row.name}


def full_precision(session: shaderloom.InferenceSession) -> dict[str, str]:
    plans = plans_of(session)
    return {row.tensor: row.why for plan in plans for row in plan.notes.precision.full_precision}


def weight_bytes(session: shaderloom.InferenceSession) -> int:
    return sum(plan.notes.memory.weight_bytes for plan in plans_of(session))


def check(session: shaderloom.InferenceSession, model: onnx.ModelProto, **feeds: np.ndarray) -> None:
    for _ in range(2):
        results = session.run(None, feeds)
        for result, expected in zip(results, reference(model.SerializeToString(), feeds), strict=True):
            assert result.shape == expected.shape
            assert relative_error(result, expected) <= TOLERANCE


SELECTION = parse(
    """g (float[1, 3, n, n] x, float[1, 3, n, n] m) => (float[k, 16] y) {
        a = Conv<pads = [1, 1, 1, 1]>(x, w1)  b = Relu(a)  c = Conv<pads = [1, 1, 1, 1]>(b, w2)
        features = Transpose<perm = [0, 2, 3, 1]>(c)
        s = Conv<pads = [1, 1, 1, 1]>(m, w3)  scores = Relu(s)  t = Conv(scores, w4)  chosen = Relu(t)
        last = Transpose<perm = [0, 2, 3, 1]>(chosen)  found = NonZero(last)
        places = Gather<axis = 0>(found, axes)  rows = Transpose<perm = [1, 0]>(places)
        picked = GatherND(features, rows)  h = MatMul(picked, w5)  r = Relu(h)  y = MatMul(r, w6)
    }""",
    w1=weight(32, 3, 3, 3, seed=1),
    w2=weight(32, 32, 3, 3, seed=2),
    w3=weight(16, 3, 3, 3, seed=3),
    w4=weight(1, 16, 1, 1, seed=4),
    w5=weight(32, 64, seed=5),
    w6=weight(64, 16, seed=6),
    axes=np.array([0, 1, 2]),
)
BRANCHES = parse(
    """g (float[r, 64] x) => (float[r, 64] y) {
        zero = Constant<value = float {0}>()  sum = ReduceSum<keepdims = 0>(x)  c = Greater(sum, zero)
        a = MatMul(x, w1)
        b = If(c) <
            then_branch = t () => (float[r, 64] p) { q = MatMul(a, w2)  qr = Relu(q)  p = MatMul(qr, w3) },
            else_branch = e () => (float[r, 64] o) { u = MatMul(a, w3)  v = Exp(u)  o = MatMul(v, w2) }
        >
        y = MatMul(b, w4)
    }""",
    **squares(4),
)
COUNTED = parse(
    """g (float[r, 64] x, int64 n) => (float[r, 64] y, float[s, r, 64] ys) {
        yes = Constant<value = bool {1}>()  a = MatMul(x, w1)
        l, ys = Loop(n, yes, a) <body = b (int64 i, bool c, float[r, 64] s)
                => (bool co, float[r, 64] so, float[r, 64] z) {
            co = Identity(c)  h = MatMul(s, w2)  hr = Relu(h)  so = MatMul(hr, w3)  z = Mul(so, so) }>
        y = MatMul(l, w4)
    }""",
    **squares(4),
)
SCANNED = parse(
    """g (float[r, 64] x, float[5, r, 64] xs, bool c) => (float[r, 64] y, float[5, r, 64] ys) {
        a = MatMul(x, w1)
        l, ys = Scan<num_scan_inputs = 1, body = b (float[r, 64] s, float[r, 64] e)
                => (float[r, 64] so, float[r, 64] z) {
            h = MatMul(s, w2)  hr = Relu(h)  k = MatMul(hr, w3)  so = Add(k, e)
            z = If(c) <then_branch = t () => (float[r, 64] p) { p = Exp(k) },
                       else_branch = o () => (float[r, 64] q) { q = Abs(k) }> }>(a, xs)
        y = MatMul(l, w4)
    }""",
    **squares(4),
)


@pytest.mark.parametrize("size", quick_first([7, 17]))
def test_a_selection_between_convolutions_and_products(each_device, size):
    with half(SELECTION, each_device) as session, full(SELECTION, each_device) as wide:
        feeds = {"x": numbers(1, 3, size, size), "m": numbers(1, 3, size, size, seed=1)}
        check(session, SELECTION, **feeds)
        wide.run(None, feeds)
        converts = target_of(each_device.profile).converts_halves  # else nothing but tables is stored as halves
        assert tensors(session)["b"] == tensors(session)["picked"] == ("float16" if converts else "float32")
        assert tensors(session)["scores"] == "float32"
        if converts:
            exact = {tensor for tensor, why in full_precision(session).items() if why == CONTROL}
            assert exact >= {"scores", "chosen"}
            assert weight_bytes(session) < 0.6 * weight_bytes(wide)


@pytest.mark.parametrize("rows", [1, 5])
def test_both_branches(device, rows):
    with half(BRANCHES, device) as session, full(BRANCHES, device) as wide:
        for sign in (1, -1):
            x = numbers(rows, 64)
            x *= sign * np.sign(x.sum())
            check(session, BRANCHES, x=x)
            wide.run(None, {"x": x})
        assert tensors(session)["qr"] == tensors(session)["v"] == "float16"
        assert weight_bytes(session) < 0.55 * weight_bytes(wide)


def test_a_loop(device):
    with half(COUNTED, device) as session:
        for count in (3, 1):
            check(session, COUNTED, x=numbers(5, 64), n=np.array(count))
        types = tensors(session)
        assert types["hr"] == "float16", "inside the body"
        assert types["a"] == types["so"] == "float32", "what is carried"


def test_a_scan_with_a_branch_inside(device):
    with half(SCANNED, device) as session:
        for c in (True, False):
            check(session, SCANNED, x=numbers(5, 64), xs=numbers(5, 5, 64, seed=1), c=np.array(c))
        assert tensors(session)["hr"] == "float16"


def test_segments_on_the_cpu_between(device):
    model = parse(
        """g (float[r, 64] x) => (float[r, 64] y) {
            a = MatMul(x, w1)  b = Relu(a)  c = MatMul(b, w2)  d = Cast<to = 11>(c)  e = Mul(d, d)  f = Cast<to = 1>(e)
            h = MatMul(f, w3)  k = Relu(h)  y = MatMul(k, w4) }""",
        **squares(4),
    )
    with half(model, device, providers=["wgpu", "cpu"]) as session:
        with pytest.warns(UserWarning, match="cannot run"):
            check(session, model, x=numbers(5, 64))
        assert tensors(session)["b"] == tensors(session)["k"] == "float16"


# -- decisions ---------------------------------------------------------------------------------------------------------


def test_halves_change_no_decision(device):
    """The weight is 1 in float16 and the score lies between: rounded, no row would be chosen."""
    model = parse(
        """g (float[r, 64] x) => (int64[1, m] y, float[r, 64] z) {
            s = MatMul(x, w1)  a = Relu(s)  t = MatMul(a, ones)  g = Greater(t, limit)  f = Squeeze(g)
            y = NonZero(f)  z = MatMul(x, w2)
        }""",
        w1=np.eye(64, dtype=np.float32) * np.float32(1.0002),
        ones=np.ones((64, 1), np.float32),
        limit=np.float32(64 * 1.0001),
        w2=weight(64, 64),
    )
    x = np.ones((7, 64), np.float32)
    x[::2] = 0.5
    with half(model, device) as session:
        chosen, _ = session.run(None, {"x": x})
        np.testing.assert_array_equal(chosen, [[1, 3, 5]])
        assert full_precision(session)["w1"] == full_precision(session)["a"] == CONTROL
        assert "w2" not in full_precision(session)


def test_a_loop_that_breaks_by_what_it_computes(device):
    """The condition reads a carried value: whatever leads to it stays in full precision, other values do not."""
    model = parse(
        """g (float[3, 64] x) => (float[3, 64] y, float[3, 64] o) {
            most = Constant<value = int64 {20}>()  yes = Constant<value = bool {1}>()  a = MatMul(x, w1)
            y, o = Loop(most, yes, a, x) <body = b (int64 i, bool c, float[3, 64] s, float[3, 64] e)
                    => (bool co, float[3, 64] so, float[3, 64] eo) {
                h = MatMul(s, w2)  hr = Relu(h)  so = MatMul(hr, w3)
                k = MatMul(e, w2)  kr = Relu(k)  eo = MatMul(kr, w4)
                size = ReduceMax<keepdims = 0>(so)  limit = Constant<value = float {0.25}>()
                co = Greater(size, limit) }>
        }""",
        **squares(4),
    )
    with half(model, device) as session, full(model, device) as wide:
        for seed in range(3):
            check(session, model, x=numbers(3, 64, seed=seed))
            wide.run(None, {"x": numbers(3, 64, seed=seed)})
            assert session.stats.steps == wide.stats.steps, "the loop has as many iterations"
        types = tensors(session)
        assert types["hr"] == "float32" and types["kr"] == "float16"


# -- what runs have reached --------------------------------------------------------------------------------------------


def test_a_value_that_grows_from_iteration_to_iteration_stays_in_full_precision(device):
    """Every iteration is looked at: in the first ones the values fit."""
    model = parse(
        """g (float[5, 64] x, int64 n) => (float[5, 64] y) {
            yes = Constant<value = bool {1}>()  a = MatMul(x, w1)
            y = Loop(n, yes, a) <body = b (int64 i, bool c, float[5, 64] s) => (bool co, float[5, 64] so) {
                co = Identity(c)  h = MatMul(s, w2)  hr = Abs(h)  k = MatMul(hr, w3)  so = Mul(k, ten) }>
        }""",
        ten=np.float32(10),
        **squares(3),
    )
    with half(model, device) as session:
        check(session, model, x=numbers(5, 64), n=np.array(2))
        assert tensors(session)["hr"] == "float16"
        session.calibrate({"x": numbers(5, 64), "n": np.array(7)})
        check(session, model, x=numbers(5, 64), n=np.array(7))
        assert "float16 ends at 65504" in full_precision(session)["hr"]
    with half(model, device) as session:
        check(session, model, x=numbers(5, 64), n=np.array(7))
        assert tensors(session)["hr"] == "float32"
    with half(model, device, reached=[]) as unchecked:
        (result,) = unchecked.run(None, {"x": numbers(5, 64), "n": np.array(7)})
        assert not np.isfinite(result).all()


def test_a_branch_is_calibrated_when_it_is_taken_first(device):
    """The other branch overflows where nothing has looked before."""
    model = parse(
        """g (float[5, 64] x) => (float[5, 64] y) {
            zero = Constant<value = float {0}>()  sum = ReduceSum<keepdims = 0>(x)  c = Greater(sum, zero)
            y = If(c) <
                then_branch = t () => (float[5, 64] p) { q = MatMul(x, w1)  r = Relu(q)  p = MatMul(r, w2) },
                else_branch = e () => (float[5, 64] o) {
                    u = MatMul(x, w3)  v = Mul(u, much)  k = MatMul(v, w2)  o = Tanh(k) }
            >
        }""",
        much=np.float32(1e5),
        **squares(3),
    )
    x = numbers(5, 64)
    x *= np.sign(x.sum())
    with half(model, device) as session:
        check(session, model, x=x)
        check(session, model, x=-x)
        assert tensors(session)["v"] == "float32"
        check(session, model, x=x)
        assert tensors(session)["r"] == "float16"


def test_a_mask_that_crosses_stages_stays_in_full_precision(device):
    """The calibration hides nothing; a later run hides a row as a whole."""
    model = parse(
        """g (float[4, 64] x, bool[4, 64] hidden, float[4] c) => (float[4, 64] y) {
            low = Where(hidden, lowest, zero)  s = ReduceSum<keepdims = 0>(c)  k = Cast<to = 9>(s)
            y = If(k) <then_branch = t () => (float[4, 64] p) {
                    a = MatMul(x, w1)  b = Add(a, low)  d = Softmax<axis = -1>(b)  p = MatMul(d, w2) },
                else_branch = e () => (float[4, 64] o) { o = Add(x, low) }>
        }""",
        lowest=np.float32(-3e38),
        zero=np.float32(0),
        **squares(2),
    )
    feeds = {"x": numbers(4, 64), "hidden": np.zeros((4, 64), bool), "c": np.ones(4, np.float32)}
    with half(model, device, disabled_passes=["fuse"]) as session:
        check(session, model, **feeds)
        feeds["hidden"][2] = True
        feeds["hidden"][3, ::2] = True
        check(session, model, **feeds)
        assert "constant beyond" in full_precision(session)["b"]


def test_positions_that_cross_stages_are_exact(device):
    model = parse(
        """g (int64[9, 1] n, float[4] c) => (float[9, 64] y) {
            f = Cast<to = 1>(n)  s = ReduceSum<keepdims = 0>(c)  k = Cast<to = 9>(s)
            y = If(k) <then_branch = t () => (float[9, 64] p) {
                    a = Mul(f, step)  b = Sin(a)  p = MatMul(b, w1) },
                else_branch = e () => (float[9, 64] o) { o = Mul(f, step) }>
        }""",
        step=np.full((1, 64), 0.5, np.float32),
        w1=weight(64, 64),
    )
    feeds = {"n": np.arange(4001, 4010, dtype=np.int64)[:, None], "c": np.ones(4, np.float32)}
    with half(model, device, disabled_passes=["fuse"]) as session:
        (result,) = session.run(None, feeds)
        assert tensors(session)["a"] == "float32"
    (expected,) = reference(model.SerializeToString(), feeds)
    assert relative_error(result, expected) <= 2e-3


def test_outputs_and_crossings_keep_their_type(device):
    model = parse("g (float[n] x) => (int64[a, m] y, float[n] z) { y = NonZero(x)  z = Exp(x) }")
    x = np.array([0.0, 1.0, 12.0], np.float32)  # exp(12) is beyond float16
    with half(model, device) as session:
        _, z = session.run(None, {"x": x})
        np.testing.assert_allclose(z, np.exp(x), rtol=1e-6)


def test_the_disk_tells_precisions_apart(device, tmp_path):
    feeds = {"x": numbers(1, 3, 7, 7), "m": numbers(1, 3, 7, 7, seed=1)}
    for precision, from_disk in (("float16", 0), ("float32", 0), ("float16", 2), ("float32", 2)):
        with shaderloom.InferenceSession(
            SELECTION, providers=WGPU, device=device, cache=str(tmp_path), options={"precision": precision}
        ) as session:
            (result,) = session.run(None, feeds)
            assert session.stats.disk_hits == from_disk
            halves = [row for row in tensors(session).values() if row == "float16"]
            assert bool(halves) == (precision == "float16")
    assert np.isfinite(result).all()


# -- what inspect says of it -------------------------------------------------------------------------------------------

CHOSEN = parse(
    """g (float[7, 64] x) => (float[m, 64] y, float[7, 64] z) {
        s = MatMul(x, w1)  a = Softmax(s)  t = MatMul(a, ones)  k = Mul(t, t)  f = Greater(k, limit)  e = Squeeze(f)
        i = NonZero(e)  j = Squeeze(i)
        h = MatMul(x, w2)  r = Relu(h)  q = MatMul(r, w3)  c = Softmax(q)  y = Gather(c, j)  z = MatMul(r, w4)
    }""",
    ones=numbers(64, 1),
    limit=np.float32(0.01),
    **squares(4),
)


def look(device, tmp_path: Path, monkeypatch, *arguments: str) -> str:
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)
    onnx.save(CHOSEN, tmp_path / "model.onnx")
    command = ["inspect", str(tmp_path / "model.onnx"), "--show", "placement", "--no-cache", *arguments]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_inspect_says_why_values_stay_in_full_precision(device, tmp_path, monkeypatch):
    text = look(device, tmp_path, monkeypatch, "--f16")
    facts = json.loads(look(device, tmp_path, monkeypatch, "--f16", "--json"))["precision"]
    assert len(facts) >= 2 and f"stage {len(facts)}: float16: " in text
    why = {row["tensor"]: row["why"] for stage in facts for row in stage["full_precision"]}
    assert why["w1"] == why["a"] == CONTROL and f"  {CONTROL}: " in text
    assert why["y"] == why["z"] == "an output of the model: it keeps its type"
    assert why["c"] == "it goes to another stage: there values keep the type that the model declares"
    assert sum(stage["activations"] for stage in facts) >= 1
    assert "precision" not in json.loads(look(device, tmp_path, monkeypatch, "--json"))


def test_inspect_says_why_a_stage_is_in_full_precision(device, tmp_path, monkeypatch):
    """As if every run took other branches than the one that was looked at."""
    monkeypatch.setattr(Calibration, "covers", lambda self, nodes: False)
    assert f"float32 as a whole: {UNCALIBRATED}" in look(device, tmp_path, monkeypatch, "--f16")
