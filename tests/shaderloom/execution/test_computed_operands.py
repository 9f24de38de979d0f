"""Models that are no single plan because operands are computed, or results have as many elements as are found.

Covers: shaderloom/execution/program, compiler/staging.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import shaderloom

from ...support.programs import BOTH, numbers, parse, sparse

pytestmark = pytest.mark.usefixtures("quiet_providers")


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
