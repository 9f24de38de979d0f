"""Which node runs where: models that go to two providers node by node, what crosses between them, and the report."""

from __future__ import annotations

import json
import warnings

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import shaderloom
from shaderloom.plans.placement import Placement
from shaderloom.runtime.plan.errors import InputError, LimitError, UnsupportedError

from ...support.reports import unpack

pytestmark = pytest.mark.usefixtures("quiet_providers")

HEADER = '<ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 3]>'
BOTH = ["wgpu", "cpu"]

#: float64 in the middle: two crossings, however many nodes are there
DOUBLE = """g (float[n] x) => (float[n] y) {
    a = Add(x, x)  b = Cast<to = 11>(a)  c = Mul(b, b)  d = Sqrt(c)  e = Cast<to = 1>(d)  f = Neg(e)  y = Exp(f) }"""
#: two separate refused nodes that do not depend on each other: one segment serves both
SIDES = """g (float[n] x) => (float[n] y) {
    a = Neg(x)  b = Exp(x)  c = Cast<to = 11>(a)  d = Cast<to = 11>(b)  e = Add(c, d)  f = Cast<to = 1>(e)
    h = Add(a, b)  y = Sub(f, h) }"""
SEQUENCE = """g (float[n] x) => (float[m] y, int64 count) {
    a = Add(x, x)  s = SequenceConstruct(x, a, x)  y0 = ConcatFromSequence<axis = 0>(s)  count = SequenceLength(s)
    y = Relu(y0) }"""
TEXT = """g (string[n] x) => (int64[1] size, string[n] y) { size = Shape(x)  y = StringNormalizer<case_change_action =
    "UPPER">(x) }"""
CONSTANT_TEXT = """g (string[n] x) => (string[n] y) <string[1] w = {"-"}> { y = StringConcat(x, w) }"""
SCALER = """g (float[n, 3] x) => (float[n, 3] y) {
    a = ai.onnx.ml.Scaler<offset = [1.0, 2.0, 3.0], scale = [2.0, 2.0, 0.5]>(x)  y = Tanh(a) }"""
WIDE_SCALER = """g (float[n, 3] x) => (float[n, 3] y) {
    w = Cast<to = 11>(x)  a = ai.onnx.ml.Scaler<offset = [1.0, 2.0, 3.0], scale = [2.0, 2.0, 0.5]>(w)
    b = Cast<to = 1>(a)  y = Tanh(b) }"""
CLASSES = """g (float[n, 2] x) => (string[n] label, float[n, 2] y) {
    a = Neg(x)
    label, scores = ai.onnx.ml.LinearClassifier<coefficients = [1.0, 2.0, -1.0, 0.5], intercepts = [0.5, 0.0],
        classlabels_strings = ["no", "yes"]>(a)
    y = Relu(scores) }"""
OPTIONAL = """g (float[n] x) => (float[n] y) { o = Optional(x)  has = OptionalHasElement(o)  v = OptionalGetElement(o)
    z = Cast<to = 1>(has)  y = Mul(v, z) }"""


def parse(text: str) -> onnx.ModelProto:
    opset = 20 if "StringConcat" in text else 18
    return onnx.parser.parse_model(HEADER.replace('"" : 18', f'"" : {opset}') + text)


@pytest.fixture
def open_session(device):
    opened = []

    def make(model, providers=BOTH, **options):
        session = shaderloom.InferenceSession(model, providers=providers, device=device, cache=False, **options)
        opened.append(session)
        return session

    yield make
    for session in opened:
        session.close()


def providers_of(session: shaderloom.InferenceSession) -> list[str]:
    return [placement.provider for placement in session.placement()]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


FEEDS = {
    "double": (DOUBLE, {"x": numbers(7)}, ["wgpu", "cpu", "wgpu"], 2),
    "sides": (SIDES, {"x": numbers(5)}, ["wgpu", "cpu", "wgpu"], 3),
    "sequence": (SEQUENCE, {"x": numbers(3)}, ["wgpu", "cpu", "wgpu"], 2),
    "text": (TEXT, {"x": np.array(["a", "b", "a"], object)}, ["cpu"], 0),
    "constant text": (CONSTANT_TEXT, {"x": np.array(["a", "b"], object)}, ["cpu"], 0),
    "scaler": (SCALER, {"x": numbers(4, 3)}, ["wgpu"], 0),
    "classes of text": (CLASSES, {"x": numbers(4, 2)}, ["wgpu", "cpu", "wgpu"], 2),
}


@pytest.mark.parametrize("with_onnxruntime", [True, False])
@pytest.mark.parametrize("name", FEEDS)
def test_values_and_crossings(name, open_session, monkeypatch, with_onnxruntime):
    text, feeds, steps, crossings = FEEDS[name]
    if not with_onnxruntime:
        monkeypatch.setattr("shaderloom.api.providers.cpu_packages", lambda: ["onnx"])
    model = parse(text)
    session = open_session(model)
    expected = ReferenceEvaluator(model).run(None, feeds)
    for _ in range(2):
        for actual, wanted in zip(session.run(None, feeds), expected, strict=True):
            if np.asarray(wanted).dtype == object or np.asarray(wanted).dtype.kind == "U":
                assert actual.tolist() == np.asarray(wanted).tolist()
            else:
                np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)
                assert actual.dtype == np.asarray(wanted).dtype
        assert session.stats.steps == steps
        assert len(session.stats.crossings) == crossings, session.stats.crossings
    placements = session.placement()
    assert [placement.op_type for placement in placements] == [node.op_type for node in model.graph.node]
    assert all(placement.reason for placement in placements if placement.provider == "cpu")


def test_features_of_float64_go_to_the_cpu(open_session):
    session = open_session(parse(WIDE_SCALER))
    x = numbers(4, 3)
    expected = np.tanh((x - [1.0, 2.0, 3.0]) * [2.0, 2.0, 0.5])
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-5, atol=1e-6)
    cast, scaler, *_ = session.placement()
    assert (cast.provider, scaler.provider) == ("cpu", "cpu")
    assert "float64" in cast.reason, scaler.reason


def test_optional_values(open_session):
    pytest.importorskip("onnxruntime")  # the reference evaluator gives a list for an optional tensor
    session = open_session(parse(OPTIONAL))
    x = numbers(4)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
    assert session.stats.steps == ["cpu", "wgpu"]


def test_the_report_says_where_and_why(open_session):
    session = open_session(parse(DOUBLE))
    session.run(None, {"x": numbers(3)})
    assert providers_of(session) == ["wgpu", "cpu", "cpu", "cpu", "cpu", "wgpu", "wgpu"]
    assert "float64" in session.placement()[1].reason
    assert [(crossing.tensor, crossing.to, crossing.bytes) for crossing in session.stats.crossings] == [
        ("a", "cpu", 12),
        ("e", "wgpu", 12),
    ]


def test_a_model_for_wgpu_alone_has_no_crossing(open_session):
    model = parse("""g (float[2, 3] x) => (float[3] y) <float[3] w = {1, 2, 3}, int64[1] axes = {0}> {
        scaled = Mul(w, w)  c = Constant<value_float = 1.0>()  s = Shape(x)  a = Mul(x, scaled)
        r = ReduceSum<keepdims = 0>(a, axes)  y = Add(r, c) }""")
    session = open_session(model)
    rows = session.placement()  # compiles for the declared shapes
    assert {row.op_type: row.provider for row in rows} == {
        "Mul": "wgpu",
        "Constant": "folded",
        "Shape": "folded",
        "ReduceSum": "wgpu",
        "Add": "wgpu",
    }
    assert rows[0].provider == "folded"
    session.run(None, {"x": numbers(2, 3)})
    assert session.stats.crossings == []
    assert session.stats.steps == ["wgpu"], "a single plan is a program of one step"


def test_wgpu_alone_refuses_with_every_node_and_reason(device, open_session):
    with pytest.raises(UnsupportedError) as caught:
        open_session(parse(SEQUENCE), ["wgpu"])
    for name in ("SequenceConstruct", "ConcatFromSequence", "SequenceLength"):
        assert name in str(caught.value)
    assert "providers=['wgpu', 'cpu']" in str(caught.value)
    session = open_session(parse(SIDES), ["wgpu"])
    with pytest.raises(UnsupportedError) as caught:
        session.run(None, {"x": numbers(3)})
    assert "main node 2" in str(caught.value)
    assert "main node 3" in str(caught.value)
    session = open_session(parse(DOUBLE), ["wgpu"])
    with pytest.raises(UnsupportedError, match="float64"):
        session.run(None, {"x": numbers(3)})


def test_types_that_numpy_lacks_go_to_the_reference(open_session):
    model = parse("g (float[n] x) => (float[n] y) { a = Neg(x)  b = Cast<to = 27>(a)  y = Cast<to = 1>(b) }")
    model.opset_import[0].version = 28
    model.ir_version = 13
    x = numbers(9)
    session = open_session(model)
    expected = (-x).astype(ml_dtypes.float6_e2m3fn).astype(np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


@pytest.mark.parametrize("location", ["cpu", "gpu-buffer"])
def test_tensors_on_the_device_in_and_out(open_session, device, location):
    session = open_session(parse(DOUBLE), preferred_output_location=location)
    for size in (3, 65, 1000):
        x = numbers(size, seed=size)
        tensor = shaderloom.Tensor.from_numpy(x, device)
        target = shaderloom.Tensor.empty((size,), np.float32, device)
        (result,) = session.run(None, {"x": tensor})
        assert isinstance(result, shaderloom.Tensor) == (location == "gpu-buffer")
        session.run(None, {"x": tensor}, outputs={"y": target})
        wanted = np.exp(-np.abs(2.0 * x.astype(np.float64)))
        np.testing.assert_allclose(np.asarray(result), wanted, rtol=1e-5)
        np.testing.assert_array_equal(target.numpy(), np.asarray(result))


def test_an_output_that_only_the_host_holds_cannot_stay_on_the_device(open_session):
    session = open_session(parse(TEXT), preferred_output_location="gpu-buffer")
    with pytest.raises(InputError, match="cannot stay on a device"):
        session.run(["y"], {"x": np.array(["a"], object)})


def test_functions_of_the_model_are_taken_apart(open_session):
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 18, "local" : 1]>
        g (float[n] x) => (float[n] y) { a = local.twice(x)  y = Neg(a) }
        <domain: "local", opset_import: ["" : 18]>
        twice (v) => (w) { d = Cast<to = 11>(v)  e = Add(d, d)  w = Cast<to = 1>(e) }""")
    session = open_session(model)
    x = numbers(4)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], -2 * x)
    assert [(row.op_type, row.provider) for row in session.placement()] == [
        ("Cast", "cpu"),
        ("Add", "cpu"),
        ("Cast", "cpu"),
        ("Neg", "wgpu"),
    ]


def test_the_reason_reaches_the_user_once(open_session):
    session = open_session(parse(DOUBLE))
    with pytest.warns(UserWarning, match=r"provider 'wgpu' cannot run 4 nodes, 'cpu' does .*float64"):
        session.run(None, {"x": numbers(3)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.run(None, {"x": numbers(3)})
        session.run(None, {"x": numbers(4)})


def test_a_failure_on_the_cpu_names_the_node_and_both_reasons(open_session):
    session = open_session(parse("g (float[n] x, float[m] z) => (float[k] y) { y = Add(x, z) }"))
    with pytest.raises(InputError) as caught:
        session.run(None, {"x": numbers(3), "z": numbers(4)})
    assert "main node 0" in str(caught.value)
    assert "wgpu" in str(caught.value)


def test_a_placement_is_plain_data():
    row = Placement("n", "Add", "", "wgpu")
    assert (row.node, row.op_type, row.domain, row.provider, row.reason) == ("n", "Add", "", "wgpu", "")


# -- what needs more than the device has -----------------------------------------------------------------------------

#: A window of 89,401 elements: threads of a software driver do not count so far
LARGE = "m = MaxPool<kernel_shape = [299, 299]>(x)  y = Exp(m)"
LIMITED = {
    "one plan": f"g (float[1, 1, 300, 300] x) => (float[1, 1, 2, 2] y) {{ {LARGE} }}",
    "in stages": f"""g (float[1, 1, 300, 300] x, float[4] v) => (float[1, 1, 2, 2] y, int64[1, n] i) {{
        i = NonZero(v)  {LARGE} }}""",
}


@pytest.mark.parametrize("name", LIMITED)
def test_a_limit_of_the_device(name, open_session, device):
    if device.profile.kind != "cpu":
        pytest.skip("the limit is one of software drivers")
    model = parse(LIMITED[name])
    feeds = {"x": numbers(1, 1, 300, 300), "v": np.array([1, 0, 2, 0], np.float32)}
    feeds = {port.name: feeds[port.name] for port in model.graph.input}
    with pytest.raises(LimitError, match="rounds of the loops") as caught:
        open_session(model, providers=["wgpu"]).run(None, feeds)
    assert "MaxPool" in str(caught.value.origin)
    session = open_session(model)
    for _ in range(2):
        for actual, wanted in zip(session.run(None, feeds), ReferenceEvaluator(model).run(None, feeds), strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-5)
    rows = {row.op_type: row for row in session.placement()}
    assert rows["MaxPool"].provider == "cpu" and "65,535 rounds" in rows["MaxPool"].reason
    assert rows["Exp"].provider == "wgpu"
    assert session.stats.steps.count("cpu") == 1


def test_a_cap_is_no_limit_of_the_device(open_session):
    """What the caller forbids is not left to the cpu."""
    model = parse("g (float[n] x) => (float[m] y) { i = NonZero(x)  y = Tile(x, k) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1000]), "k"))
    session = open_session(model, caps=shaderloom.Caps(tensor_elements=500))
    with pytest.raises(LimitError, match="limit is 500"):
        session.run(None, {"x": numbers(3)})


# -- inspect -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def inspect(tmp_path):
    from typer.testing import CliRunner

    from shaderloom.cli import app

    def run(text: str, *arguments: str) -> str:
        path = tmp_path / "model.onnx"
        onnx.save(parse(text), path)
        result = CliRunner().invoke(app, ["inspect", str(path), "--shape", "x=5", "--no-cache", *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


def test_inspect_prints_placements(device, inspect):
    text = inspect(DOUBLE, "--show", "placement")
    assert "Cast gives elements of type float64" in text
    assert "3 wgpu, 4 cpu" in text
    assert "'e' goes to wgpu" in text
    found = json.loads(inspect(DOUBLE, "--show", "placement", "--json"))
    assert [row["provider"] for row in found["placements"]] == ["wgpu", "cpu", "cpu", "cpu", "cpu", "wgpu", "wgpu"]
    assert found["steps"] == ["wgpu", "cpu", "wgpu"]
    assert len(found["stages"]) == 2
    assert [row["tensor"] for row in found["crossings"]] == ["a", "e"]


def test_inspect_shows_the_largest_plan_of_several_steps(device, inspect, tmp_path):
    """What is asked of a single plan is answered by the stage with the most calls."""
    found = json.loads(inspect(DOUBLE, "--json"))
    assert found["subject"]["name"] in ("model.onnx, stage 1 of 2", "model.onnx, stage 2 of 2")
    stages = json.loads(inspect(DOUBLE, "--show", "placement", "--json"))["stages"]
    assert found["calls"] == max(stage["calls"] for stage in stages)
    assert "fn main" in inspect(DOUBLE, "--show", "wgsl")
    (tmp_path / "before.json").write_text(json.dumps(found), encoding="utf-8")
    assert inspect(DOUBLE, "--diff", str(tmp_path / "before.json")) == ""
    inspect(DOUBLE, "--html", str(tmp_path / "report.html"), "--profile")
    report = unpack((tmp_path / "report.html").read_text(encoding="utf-8"), "data")
    assert len(report["calls"]) == found["calls"] and all(call["ns"] > 0 for call in report["calls"])


def test_inspect_of_the_inputs_that_are_given(device, inspect, tmp_path):
    text = """g (float[5] x, bool c) => (float[5] y) {
        y = If (c) <then_branch = t () => (float[5] p) { p = Exp(x) },
                    else_branch = e () => (float[5] o) { o = Neg(x) }> }"""
    for condition, operator in ((True, "Exp"), (False, "Neg")):
        np.save(tmp_path / "c.npy", np.array(condition))
        found = json.loads(inspect(text, "--show", "placement", "--input", f"c={tmp_path / 'c.npy'}", "--json"))
        assert [row["op_type"] for row in found["placements"]] == ["If", operator]


def test_inspect_of_one_plan_has_placements(device, inspect, tmp_path):
    text = "g (float[n] x) => (float[n] y) { a = Neg(x)  y = Exp(a) }"
    found = json.loads(inspect(text, "--json"))
    assert [(row["op_type"], row["provider"]) for row in found["placements"]] == [("Neg", "wgpu"), ("Exp", "wgpu")]
    page = tmp_path / "page.html"
    inspect(text, "--html", str(page))
    assert "Where each ONNX node runs: 2 wgpu" in page.read_text()
    inspect(DOUBLE, "--html", str(page))
    assert "3 wgpu, 4 cpu" in page.read_text()


@pytest.mark.parametrize("nodes", ["", "y = Identity(x)"])
def test_texts_that_are_only_passed_on(open_session, nodes):
    output = "y" if nodes else "x"
    model = parse(f"g (string[1, 2] x) => (string[1, 2] {output}) {{ {nodes} }}")
    given = np.array([["a", "b"]], object)
    (found,) = open_session(model).run(None, {"x": given})
    np.testing.assert_array_equal(found, given)


@pytest.mark.parametrize(
    ("kind", "given"),
    [("string", np.array(["a"], object)), ("double", np.array([1.5])), ("complex64", np.array([1 + 2j], np.complex64))],
)
def test_what_no_device_holds_beside_what_it_computes(open_session, kind, given):
    """Unused, or passed on by a node."""
    unused = parse(f"g ({kind}[1] s, float[2] x) => (float[2] z) {{ z = Neg(x) }}")
    passed = parse(f"g ({kind}[1] s, float[2] x) => (float[2] z, {kind}[1] y) {{ z = Neg(x)  y = Identity(s) }}")
    for model in (unused, passed):
        session = open_session(model)
        found, *others = session.run(None, {"s": given, "x": np.ones(2, np.float32)})
        np.testing.assert_array_equal(found, [-1, -1])
        assert [other.tolist() for other in others] == [given.tolist()][: len(others)]
        assert session.placement()[0].provider == "wgpu"


@pytest.mark.parametrize("given", [np.ones(2, np.float32), [1, "a"], [None, "a"], None])
def test_inputs_of_texts_are_texts(open_session, given):
    session = open_session(parse(TEXT))
    with pytest.raises(InputError, match="expected strings"):
        session.run(None, {"x": given})
    with pytest.raises(InputError, match=r"element \[1\] is not UTF-8"):
        session.run(None, {"x": ["a", b"\xff"]})
    assert session.run(["y"], {"x": ["a", b"b"]})[0].tolist() == ["A", "B"]
