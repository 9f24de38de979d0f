"""Tensors beyond the binding size of a device: read in parts, or else by nodes on cpu, while the others run on wgpu.

Covers: shaderloom/session, shaderloom/execution/engine.
"""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import onnx.parser
import pytest

import shaderloom
from shaderloom.runtime.plan.errors import DeviceLimitError

from ...support.comparison import reference, relative_error
from ...support.large_weights import windows

pytestmark = pytest.mark.slow

BINDING, BUFFER = 1 << 16, 1 << 18
LIMIT = "max-storage-buffer-binding-size is 65,536"

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '
RNG = np.random.default_rng(5)
X = RNG.standard_normal((300, 64)).astype(np.float32)
W = RNG.standard_normal((256, 128)).astype(np.float32)
ROW = RNG.standard_normal((2, 256)).astype(np.float32)
LINE = RNG.standard_normal(200).astype(np.float32)
AXIS = np.array([1])
FIRST = np.array(0)

#: text, feeds, initializers, float64 result, operators on cpu
CASES = {
    "input": (
        "(float[n, 64] x) => (float[n] z) { c = CumSum(x, first) y = ReduceSum<keepdims = 0>(c, axis) z = Relu(y) }",
        {"x": X},
        {"axis": AXIS, "first": FIRST},
        np.maximum(X.astype(np.float64).cumsum(0).sum(1), 0),
        {"CumSum"},
    ),
    "output": (
        "(float[n] x) => (float[n, n] z) "
        "{ y = Unsqueeze(x, axis) t = Transpose(y) s = Add(y, t) z = CumSum(s, first) }",
        {"x": LINE},
        {"axis": AXIS, "first": FIRST},
        (LINE[:, None].astype(np.float64) + LINE).cumsum(0),
        {"CumSum"},
    ),
    "weight": (
        "(float[2, 256] x) => (float[2] z) "
        "{ c = CumSum(w, first) y = MatMul(x, c) r = Relu(y) z = ReduceMax<axes = [1], keepdims = 0>(r) }",
        {"x": ROW},
        {"w": W, "first": FIRST},
        np.maximum(ROW.astype(np.float64) @ W.astype(np.float64).cumsum(0), 0).max(1),
        {"CumSum"},
    ),
    "what a weight is made of": (
        "(float[128] x) => (float[128] z) "
        "{ c = CumSum(w, first) s = ReduceMax<axes = [0], keepdims = 0>(c) z = Mul(x, s) }",
        {"x": LINE[:128]},
        {"w": W, "first": FIRST},
        LINE[:128].astype(np.float64) * W.astype(np.float64).cumsum(0).max(0),
        {"CumSum"},
    ),
}


@pytest.fixture(scope="module")
def small(device):
    """A device that binds few bytes."""
    limits = {"max-storage-buffer-binding-size": BINDING, "max-buffer-size": BUFFER}
    return device.gpu.adapter.request_device_sync(required_limits=limits)


def make_model(text: str, initializers: dict[str, np.ndarray]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEAD + text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in initializers.items())
    return model


#: The same, of tensors that are read or computed in parts
PARTS = {
    "product": (
        "(float[2, 256] x) => (float[2] z) { y = MatMul(x, w) z = ReduceMax<axes = [1], keepdims = 0>(y) }",
        {"x": ROW},
        (ROW.astype(np.float64) @ W).max(1),
    ),
    "product with the transpose": (
        "(float[2, 128] x) => (float[2, 256] z) { t = Transpose(w) z = MatMul(x, t) }",
        {"x": ROW[:, :128]},
        ROW[:, :128].astype(np.float64) @ W.T,
    ),
    "rows": ("(int64[3] x) => (float[3, 128] z) { z = Gather(w, x) }", {"x": np.array([5, -1, 200])}, W[[5, 255, 200]]),
    "input": (
        "(float[300, 64] x) => (float[300] z) { y = ReduceSum<keepdims = 0>(x, axis) z = Relu(y) }",
        {"x": X},
        np.maximum(X.astype(np.float64).sum(1), 0),
    ),
    "output": (
        "(float[200] x) => (float[200, 200] z) { y = Unsqueeze(x, axis) t = Transpose(y) z = Add(y, t) }",
        {"x": LINE},
        LINE[:, None].astype(np.float64) + LINE,
    ),
    "what a weight is made of": (
        "(float[128] x) => (float[128] z) { s = ReduceMax<axes = [0], keepdims = 0>(w) z = Mul(x, s) }",
        {"x": LINE[:128]},
        LINE[:128].astype(np.float64) * W.max(0),
    ),
}


def on_cpu(session: shaderloom.InferenceSession) -> set[str]:
    return {row.op_type for row in session.placement() if row.provider == "cpu"}


@pytest.mark.parametrize("name", CASES)
def test_the_node_at_a_large_tensor_runs_on_cpu(small, name):
    text, feeds, initializers, expected, guilty = CASES[name]
    model = make_model(text, initializers)
    with shaderloom.InferenceSession(model, providers=["wgpu", "cpu"], device=small, cache=False) as session:
        for _ in range(2):
            (z,) = session.run(None, feeds)
            np.testing.assert_allclose(z, expected, rtol=1e-4, atol=1e-4)
        assert guilty <= on_cpu(session)
        assert "Relu" not in on_cpu(session)


@pytest.mark.parametrize("name", PARTS)
def test_what_is_read_in_parts_stays_on_the_device(small, name):
    text, feeds, expected = PARTS[name]
    with shaderloom.InferenceSession(make_model(text, {"w": W, "axis": AXIS}), device=small, cache=False) as session:
        for _ in range(2):
            (z,) = session.run(None, feeds)
            np.testing.assert_allclose(z, expected, rtol=1e-4, atol=1e-4)
        assert on_cpu(session) == set()


@pytest.mark.parametrize("name", CASES)
def test_the_refusal_names_the_limit_and_not_a_cap(small, name):
    text, feeds, initializers, _, _ = CASES[name]
    with (
        shaderloom.InferenceSession(make_model(text, initializers), device=small, cache=False) as session,
        pytest.raises(DeviceLimitError) as caught,
    ):
        session.run(None, feeds)
    assert LIMIT in str(caught.value)
    assert caught.value.origin is not None
    assert "providers=['wgpu', 'cpu']" in str(caught.value)
    assert "cap" not in str(caught.value)


def summed(count: int) -> np.ndarray:
    return np.maximum(X[:count].astype(np.float64).cumsum(0).sum(1), 0)


def test_a_plan_for_many_sizes_leaves_the_large_ones_to_cpu(small):
    """Sizes within the limit stay on the device; without cpu the others are refused by the limit's name."""
    text, _, initializers, _, guilty = CASES["input"]
    model = make_model(text, initializers)
    options = {"device": small, "cache": False, "dynamic": {"n": (1, 4096)}}
    with shaderloom.InferenceSession(model, providers=["wgpu", "cpu"], **options) as session:
        for rows, nodes in ((30, set()), (300, guilty), (200, set()), (290, guilty)):
            np.testing.assert_allclose(session.run(None, {"x": X[:rows]})[0], summed(rows), rtol=1e-4, atol=1e-4)
            assert on_cpu(session) == nodes, rows
    with shaderloom.InferenceSession(model, **options) as session:
        with pytest.warns(match="no plan serves n 1 to 4096 on this device.*: the tensor takes"):
            session.run(None, {"x": X[:30]})
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it is said once
            np.testing.assert_allclose(session.run(None, {"x": X[:40]})[0], summed(40), rtol=1e-4, atol=1e-4)
            with pytest.raises(DeviceLimitError, match=LIMIT):
                session.run(None, {"x": X})
        assert list(session.report()["dynamic"]["refused"]) == ["n 1 to 4096"]


@pytest.mark.parametrize("providers", [["wgpu"], ["wgpu", "cpu"]])
def test_a_size_that_the_range_s_plan_cannot_bind_gets_a_plan_of_its_own(small, providers):
    """That plan reads the tensor in parts; the session returns to the plan of the range."""
    text, _, _ = PARTS["input"]
    model = make_model(text.replace("300", "n"), {"axis": AXIS})
    dynamic = {"n": (1, 4096)}
    with shaderloom.InferenceSession(model, providers=providers, device=small, cache=False, dynamic=dynamic) as session:
        for rows, is_range in ((30, True), (300, False), (31, True), (300, False)):
            (z,) = session.run(None, {"x": X[:rows]})
            np.testing.assert_allclose(z, np.maximum(X[:rows].astype(np.float64).sum(1), 0), rtol=1e-4, atol=1e-4)
            assert on_cpu(session) == set()
            assert session.stats.keys[session.stats.last_key].is_range is is_range
        assert session.stats.misses == 2


def test_a_stage_for_many_sizes_leaves_the_large_ones_to_cpu(small):
    """From the third size on a stage has a plan for a range of them, whose end the device cannot bind."""
    model = make_model(
        "(float[n] x) => (float[m, m] z) "
        "{ i = NonZero(x) f = Cast<to = 1>(i) t = Transpose(f) p = MatMul(t, f) z = CumSum(p, first) }",
        {"first": FIRST},
    )
    with shaderloom.InferenceSession(model, providers=["wgpu", "cpu"], device=small, cache=False) as session:
        for count in (100, 101, 102, 103, 125, 140, 126):
            (z,) = session.run(None, {"x": np.ones(count, np.float32)})
            np.testing.assert_array_equal(z, np.outer(np.arange(count), np.arange(count)).cumsum(0))
            assert on_cpu(session) == ({"MatMul", "CumSum"} if count == 140 else set()), count


def test_windows_are_profiled_and_stored_as_halves(device):
    """Calibration reads all tensors together, so a buffer is large here."""
    limits = {"max-storage-buffer-binding-size": BINDING, "max-buffer-size": 4 * BUFFER}
    small = device.gpu.adapter.request_device_sync(required_limits=limits)
    model, feeds = windows()
    (expected,) = reference(model, feeds)
    with shaderloom.InferenceSession(model, device=small, cache=False) as session:
        profile = session.profile(feeds)
        assert len(profile.calls) == session.report()["calls"] > 2
        for _ in range(3):  # encoded ahead from the second run on
            assert relative_error(session.run(None, feeds)[0], expected) <= 2e-5
    options = shaderloom.SessionOptions()
    options.precision = "float16"
    with shaderloom.InferenceSession(model, options, device=small, cache=False) as session:
        assert relative_error(session.run(None, feeds)[0], expected) <= 2e-3
