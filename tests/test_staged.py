"""Models that are no single plan: shapes that depend on data, conditions and counts that are computed.

Each is compared with onnxruntime; :func:`run` also looks at how many plans were made and what was read back.
"""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnx.parser
import pytest
from typer.testing import CliRunner

import shaderloom
from shaderloom import notices
from shaderloom.cli import app
from shaderloom.program.interpreter import STAGES
from shaderloom.program.kept import STEPS, KeptSteps
from shaderloom.program.steps import Block, DeviceStep, ReadStep
from shaderloom.runtime.errors import LimitError, ShaderloomError

onnxruntime = pytest.importorskip("onnxruntime")

HEADER = '<ir_version: 8, opset_import: ["" : 18]>'
WGPU, BOTH = ["wgpu"], ["wgpu", "cpu"]


@pytest.fixture(autouse=True)
def quiet():
    notices.forget()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "provider 'wgpu' cannot run")
        yield
    notices.forget()


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + text)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def sparse(*shape: int, keep: float = 0.3, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal(shape) * (generator.random(shape) < keep)).astype(np.float32)


class Pair:
    """A session beside onnxruntime."""

    def __init__(self, model: onnx.ModelProto, device, providers=WGPU, **options):
        self.session = shaderloom.InferenceSession(model, providers=providers, device=device, cache=False, **options)
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 4
        self.reference = onnxruntime.InferenceSession(model.SerializeToString(), settings)

    def check(self, **feeds: np.ndarray) -> list[np.ndarray]:
        """Run twice: when it is compiled, and again."""
        wanted = self.reference.run(None, feeds)
        for _ in range(2):
            given = self.session.run(None, feeds)
            for actual, expected in zip(given, wanted, strict=True):
                assert actual.dtype == expected.dtype
                assert actual.shape == expected.shape
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
        return given

    @property
    def read_back(self) -> list[str]:
        return [crossing.tensor for crossing in self.session.stats.crossings]


@pytest.fixture
def pair(device):
    opened = []

    def make(model, providers=WGPU, **options) -> Pair:
        made = Pair(parse(model) if isinstance(model, str) else model, device, providers, **options)
        opened.append(made)
        return made

    yield make
    for made in opened:
        made.session.close()


# -- operands that are computed ----------------------------------------------------------------------------------------

#: The k of each is the number of positive elements: known when the device has counted them
COUNT = "p = Greater(x, zero)  i = Cast<to = 7>(p)  k = ReduceSum<keepdims = 1>(i)  n = Squeeze(k)"
CONSTANTS = (
    "float zero = {0}, int64 none = {0}, int64 one = {1}, int64[1] first = {0}, int64[1] flat = {-1}, "
    "int64[1] single = {1}"
)
COMPUTED = {
    "Range": "r = Range(none, n, one)  y = Mul(r, r)",
    "TopK": "y, z = TopK(x, k)",
    "Slice": "y = Slice(x, first, k)",
    "Slice from": "e = Shape(x)  y = Slice(x, k, e)",
    "Reshape": "e = Tile(x, k)  s = Concat<axis = 0>(flat, k)  y = Reshape(e, s)  ",
    "Expand": "s = Concat<axis = 0>(k, single)  y = Expand(x, s)",
    "Tile": "y = Tile(x, k)",
    "Pad": "s = Concat<axis = 0>(k, k)  y = Pad(x, s)",
    "OneHot": "v = Constant<value_floats = [0.5, 2.0]>()  q = Range(none, n, one)  y = OneHot(q, n, v)",
    "ConstantOfShape": "y = ConstantOfShape(k)",
    "Resize": "u = Unsqueeze(x, first)  w = Unsqueeze(u, first)  o = Constant<value_ints = [1, 1]>()"
    "  s = Concat<axis = 0>(o, k)  y = Resize(w, , , s)",
    "Split": "m = Shape(x)  d = Sub(m, k)  s = Concat<axis = 0>(k, d)  y, z = Split<axis = 0>(x, s)",
    "Unsqueeze": "q = Sub(k, k)  y = Unsqueeze(x, q)",
    "ReduceSum": "q = Sub(k, k)  y = ReduceSum(x, q)",
    "CumSum": "q = Sub(n, n)  y = CumSum(x, q)",
    "Trilu": "o = Shape(x)  s = Concat<axis = 0>(k, o)  u = Unsqueeze(x, first)  w = Expand(u, s)  y = Trilu(w, n)",
    "EyeLike": "s = Concat<axis = 0>(k, k)  q = ConstantOfShape(s)  y = EyeLike(q)",
}


@pytest.mark.parametrize("name", COMPUTED)
def test_computed_operands(name, pair):
    body = COMPUTED[name]
    outputs = "float[] y, float[] z" if ", z = " in body else "float[] y"
    model = parse(f"g (float[size] x) => ({outputs}) <{CONSTANTS}> {{ {COUNT}  {body} }}")
    for value in model.graph.output:
        value.ClearField("type")
    session = pair(with_types(model))
    for size in (3, 7, 17):
        x = numbers(size, seed=size)
        x[0] = 1.0
        session.check(x=x)
    assert session.session.stats.steps.count("wgpu") >= 1


def with_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Element types of the outputs, without sizes."""
    inferred = {value.name: value.type for value in onnx.shape_inference.infer_shapes(model).graph.value_info}
    inferred.update((value.name, value.type) for value in onnx.shape_inference.infer_shapes(model).graph.output)
    for value in model.graph.output:
        value.type.tensor_type.elem_type = inferred[value.name].tensor_type.elem_type or onnx.TensorProto.FLOAT
    return model


def test_a_fed_shape_needs_no_stage_of_its_own(pair):
    session = pair("g (float[n] x, int64[2] s) => (float[a, b] y) { e = Exp(x)  y = Reshape(e, s) }")
    session.check(x=numbers(12), s=np.array([3, 4]))
    session.check(x=numbers(12), s=np.array([-1, 2]))
    assert session.session.stats.steps == ["wgpu"]
    assert session.read_back == []


def test_a_fed_shape_on_the_device_is_read(device, pair):
    session = pair("g (float[n] x, int64[2] s) => (float[a, b] y) { e = Exp(x)  y = Reshape(e, s) }").session
    x, s = numbers(12), np.array([3, 4])
    feeds = {"x": shaderloom.Tensor.from_numpy(x, device), "s": shaderloom.Tensor.from_numpy(s, device)}
    np.testing.assert_allclose(session.run(None, feeds)[0], np.exp(x).reshape(3, 4), rtol=1e-5)


def test_the_same_counts_need_no_new_plan(pair):
    session = pair(
        "g (float[n] x) => (float[m] y) { i = NonZero(x)  f = Reshape(i, flat)  y = Gather(x, f) }".replace(
            "=> (float[m] y) {", "=> (float[m] y) <int64[1] flat = {-1}> {"
        )
    )
    session.check(x=np.array([0, 1, 0, 2], np.float32))
    made = session.session.stats.misses
    session.check(x=np.array([3, 0, 4, 0], np.float32))
    assert session.session.stats.misses == made
    session.check(x=np.array([3, 0, 4, 1], np.float32))
    assert session.session.stats.misses > made


# -- results with as many elements as are found ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (2, 3, 4), (17, 65), (1000, 3)])
def test_nonzero(pair, shape):
    dims = ", ".join("abc"[: len(shape)])
    session = pair(
        f"g (float[{dims}] x) => (int64[r, n] y, float[n] z) {{ y = NonZero(x)  t = Transpose(y)  z = GatherND(x, t) }}"
    )
    for keep in (0.0, 0.05, 0.5, 1.0):
        session.check(x=sparse(*shape, keep=keep))


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "uint8"])
def test_nonzero_of_other_types(pair, dtype):
    session = pair(f"g ({dtype}[a, b] x) => (int64[2, n] y) {{ y = NonZero(x) }}")
    x = np.random.default_rng(1).integers(0, 2, (9, 7)).astype(dtype)
    session.check(x=x)
    session.check(x=np.zeros((0, 3), dtype))


def test_compress(pair):
    session = pair("""g (float[a, b] x, bool[c] k) => (float[n, b] y, float[m] z) {
        y = Compress<axis = 0>(x, k)  z = Compress(x, k) }""")
    for rows, kept in ((5, 4), (65, 65), (3, 1)):
        for share in (0.0, 0.5, 1.0):
            mask = np.random.default_rng(rows).random(kept) < share
            session.check(x=numbers(rows, 7), k=mask)


def test_what_no_device_holds_runs_on_the_cpu_and_says_so(pair):
    text = "g (double[n] x) => (int64[m] y, float[m] z) { u, i = Unique(x)  y = Add(i, i)  z = Cast<to = 1>(y) }"
    session = pair(text, BOTH)
    session.check(x=np.array([3.0, 1.0, 3.0, 2.0]))
    session.check(x=np.array([5.0, 5.0, 5.0]))
    row = session.session.placement()[0]
    assert (row.provider, row.op_type) == ("cpu", "Unique")
    assert "float64" in row.reason


# -- If ----------------------------------------------------------------------------------------------------------------

BRANCHES = """g (float[n] x) => (float[m] y) <float zero = {0}> {
    m = ReduceSum<keepdims = 0>(x)  c = Greater(m, zero)  w = Exp(x)
    y = If (c) < then_branch = a () => (float[p] t) { r = Relu(w)  t = Add(r, m) },
                 else_branch = b () => (float[q] e) { e = Concat<axis = 0>(x, w) } > }"""


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

COUNTED = """g (float[n] x, int64 k) => (float[n] y, float[s, n] ys) {
    y, ys = Loop (k, , x) < body = b (int64 i, bool go, float[n] v) => (bool on, float[n] w, float[n] o) {
        on = Identity(go)  w = Add(v, x)  f = Cast<to = 1>(i)  o = Mul(w, f) } > }"""


def test_a_loop_with_a_count_of_the_data(pair):
    session = pair(COUNTED)
    for size in (1, 4, 65):
        for steps in (1, 5, 2):
            session.check(x=numbers(size), k=np.array(steps))
    assert session.session.stats.misses == 3  # one plan for each size, none for a count
    assert session.read_back == []


def test_a_loop_of_no_steps(pair):
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


def test_too_many_steps_are_an_error(device):
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
    for steps, size in ((3, 4), (7, 1), (5, 17)):
        session.check(x=np.abs(numbers(steps, size)) * 4, a=numbers(size))


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
    model = parse("g (float[n] x) => (int64[1, m] y) { y = NonZero(x) }")
    with shaderloom.InferenceSession(model, device=device, cache=False, plans=1) as session:
        for _ in range(2):
            for size in range(1, 12):
                np.testing.assert_array_equal(session.run(None, {"x": np.ones(size, np.float32)})[0], [range(size)])
        assert session.stats.evictions > 0


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
        assert session._chain._program is None
        assert session.stats.steps == []


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


def test_a_bundle_refuses_naming_every_node(tmp_path):
    from shaderloom.bundle_compile import compile_bundle

    model = parse("""g (float[4] x, bool[4] k) => (float[m] y, int64[1, q] z) {
        a = Exp(x)  y = Compress(a, k)  z = NonZero(a) }""")
    with pytest.raises(ShaderloomError) as caught:
        compile_bundle(model, tmp_path / "m.shaderbundle")
    for name in ("Compress (main node 1)", "NonZero (main node 2)"):
        assert name in str(caught.value)
    assert not (tmp_path / "m.shaderbundle").exists()


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
        made = object.__new__(DeviceStep) if plan else ReadStep(())
        made.close = lambda: closed.append(made)
        return made

    kept = KeptSteps(2, key_bytes=100)
    for number in range(40):
        kept.keep(state, (("x", ("float32", (number,))),), (step(), state))
    assert len(kept) == 2 * STEPS
    assert len(closed) == 40 - len(kept)
    plans = [step(plan=True) for _ in range(3)]
    kept.keep(state, (("p", (0,)),), (plans[0], state))
    kept.keep(state, (("p", (1,)),), (plans[1], state))
    assert kept.find(state, (("p", (0,)),)) is not None  # used: the other one goes
    kept.keep(state, (("p", (2,)),), (plans[2], state))
    assert kept.plans() == [plans[0], plans[2]]
    assert kept.find(state, (("p", (1,)),)) is None
    for number in range(5):
        kept.keep(state, (("k", ("int64", (5,), bytes([number]) * 40)),), (step(), state))
        assert kept.bytes <= 100
    kept.keep(state, (("k", ("int64", (50,), bytes(400))),), (step(), state))
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
        program = session._chain.program()
        assert len(program.plans()) <= STAGES
        assert len(program._kept) <= STAGES * STEPS
        gc.collect()
        assert len(program.main.states) <= 2 * len(program._kept) + 1
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
