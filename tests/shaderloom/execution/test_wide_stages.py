"""Tensors that a file declares float16, that leave its range, and that go from one stage of a program to another.

Covers: compiler/precision/wide_tensors.py, shaderloom/execution/values.py.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from shaderloom import InferenceSession, SessionOptions, Tensor

from ...support.programs import BOTH, parse

pytestmark = pytest.mark.usefixtures("quiet_providers")

ROW = np.array([4, 0, 16, 28], np.float16)
SMALL = float(np.float16(1e-3))

#: ``b`` reaches 6e5, ``y`` is back in the range; how many elements are picked is counted in between
PICKED = """g (float16[n] x) => (float16[m] y%s) <float shrink = {0.001}> {
    a = Mul(x, x)  b = Mul(a, a)  i = NonZero(b)  j = Transpose(i)  p = GatherND(b, j)  y = Mul(p, shrink) }"""

#: the carried value grows in each iteration, and is stacked, too
LOOP = """g (float16[n] x, int64 k) => (float16[n] y, float16[s, n] z) <float shrink = {0.001}> {
    v, vs = Loop (k, , x) < body = b (int64 i, bool go, float16[n] u) => (bool on, float16[n] w, float16[n] o) <
        float grow = {100.0}> { on = Identity(go)  w = Mul(u, grow)  o = Identity(w) } >
    y = Mul(v, shrink)  z = Mul(vs, shrink) }"""

BRANCH = """g (float16[n] x, bool c) => (float16[n] y) <float shrink = {0.001}> {
    a = Mul(x, x)
    b = If (c) < then_branch = p () => (float16[n] t) { t = Mul(a, a) },
                 else_branch = q () => (float16[n] e) { e = Neg(a) } >
    i = NonZero(b)  j = Transpose(i)  p = GatherND(b, j)  y = Mul(p, shrink) }"""

#: float64 is for the host: it reads ``b``, which is declared float16
ON_HOST = """g (float16[n] x) => (float16[n] y) <float shrink = {0.001}> {
    a = Mul(x, x)  b = Mul(a, a)  d = Cast<to = 11>(b)  e = Neg(d)  f = Cast<to = 10>(e)  y = Mul(f, shrink) }"""


#: a stage makes a mask from a constant, and another one computes with it; where all is masked, infinities are NaN.
#: ``i`` are the elements of ``x``, which are counted in between, and ``o`` is ``x``
MASKS = {
    "summed": ("a = Mul(m, low)  b = GatherND(a, i)  d = Add(b, b)  e = Add(o, d)", -2 * 65504.0),
    "cast": ("f = Cast<to = 1>(m)  a = Mul(f, lowest)  b = GatherND(a, i)  d = Cast<to = 10>(b)  e = Add(o, d)", -3e38),
    "moved": ("s = Shape(m)  a = Expand(low, s)  b = GatherND(a, i)  d = Add(b, b)  e = Add(o, d)", -2 * 65504.0),
    "of a branch": (
        """f = ReduceMax<keepdims = 0>(m)  g = Cast<to = 9>(f)
        b = If (g) <then_branch = t () => (float16[n] l) { l = Mul(m, low) },
                    else_branch = u () => (float16[n] r) { r = Neg(m) }>
        d = Add(b, b)  e = Add(o, d)""",
        -2 * 65504.0,
    ),
    "in a loop": (
        """a = Mul(m, low)  k = Size(i)  z = Sub(k, two)
        e = Loop (z, , o) <body = l (int64 h, bool on, float16[n] v) => (bool go, float16[n] r) {
            go = Identity(on)  q = MatMul(v, w)  r = Add(q, a) }>""",
        -2 * 65504.0,
    ),
    "carried": (
        """a = Mul(m, low)  k = Size(i)  z = Sub(k, two)
        d = Loop (z, , a) <body = l (int64 h, bool on, float16[n] v) => (bool go, float16[n] r) {
            go = Identity(on)  r = Add(v, v) }>
        e = Add(o, d)""",
        -4 * 65504.0,
    ),
    "scanned": (
        """a = Mul(m, low)  b = GatherND(a, i)
        t, d = Scan <num_scan_inputs = 1, body = l (float16 v, float16 c) => (float16 p, float16 r) {
            p = Identity(v)  r = Add(c, c) }> (zero, b)
        e = Add(o, d)""",
        -2 * 65504.0,
    ),
    "over the host": (
        """f = Cast<to = 1>(m)  a = Mul(f, lowest)  b = Cast<to = 11>(a)  r = Neg(b)  q = Neg(r)  g = Cast<to = 1>(q)
        d = Cast<to = 10>(g)  e = Add(o, d)""",
        -3e38,
    ),
}


def halves(text: str) -> onnx.ModelProto:
    """Return a model with its float constants as float16, which the text format has no numbers for, but ``lowest``."""
    model = parse(text)
    graphs = [model.graph, *(each.g for node in model.graph.node for each in node.attribute if each.HasField("g"))]
    floats = [each for graph in graphs for each in graph.initializer if each.data_type == onnx.TensorProto.FLOAT]
    for tensor in (each for each in floats if each.name != "lowest"):
        array = numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


def opened(model: onnx.ModelProto, device: Any, **options: Any) -> InferenceSession:
    settings = SessionOptions()
    settings.widen = options.pop("widen", "auto")
    options.setdefault("cache", False)
    return InferenceSession(model, settings, device=device, options={"verify": True}, **options)


def close(found: np.ndarray, expected: np.ndarray) -> bool:
    assert found.dtype == np.float16 and found.shape == expected.shape
    return bool(np.abs(found.astype(np.float64) - expected).max() <= 3 * 2.0**-11 * np.abs(expected).max())


def picked(x: np.ndarray) -> np.ndarray:
    return x[x != 0].astype(np.float64) ** 4 * SMALL


def test_a_tensor_that_another_stage_reads(device, calibrations) -> None:
    with opened(halves(PICKED % ""), device) as session:
        for _ in range(2):
            assert close(session.run(None, {"x": ROW})[0], picked(ROW))
        assert len(calibrations) == 1
    with opened(halves(PICKED % ""), device, widen="off") as session:
        assert np.isinf(session.run(None, {"x": ROW})[0]).any()


@pytest.mark.slow
def test_stages_with_outputs_on_the_device(device, calibrations, fresh_notices) -> None:
    with opened(halves(PICKED % ""), device, preferred_output_location="gpu-buffer") as session:
        low = ROW / np.float16(4)
        assert close(session.run(None, {"x": low})[0].numpy(), picked(low))
        (y,) = session.run(None, {"x": ROW})  # the shapes are not new
        with pytest.warns(UserWarning, match="output y is not finite in run 2 "):
            y.numpy()
        assert close(session.run(None, {"x": ROW})[0].numpy(), picked(ROW)) and len(calibrations) == 1


@pytest.mark.slow
@pytest.mark.parametrize("location", ["cpu", "gpu-buffer", "tensor"])
def test_an_output_that_another_stage_reads(device, location: str) -> None:
    """The caller gets it in its own type; the stage behind does not."""
    with opened(halves(PICKED % ", float16[n] b"), device) as session:
        target = Tensor.empty(ROW.shape, np.float16, device) if location == "tensor" else location
        for _ in range(2):
            y, b = session.run(["y", "b"], {"x": ROW}, outputs={"b": target})
            assert close(y, picked(ROW))
            np.testing.assert_array_equal(np.asarray(b), np.array([256, 0, np.inf, np.inf], np.float16))


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
def test_a_value_that_a_loop_carries(device, count: int) -> None:
    x, k = ROW / np.float16(8), np.array(count)
    with opened(halves(LOOP), device) as session:
        for _ in range(2):
            y, z = session.run(None, {"x": x, "k": k})
            powers = 100.0 ** np.arange(1, count + 1)
            assert close(y, x.astype(np.float64) * 100.0**count * SMALL)
            assert z.shape == (count, 4) and close(z, np.outer(powers, x.astype(np.float64)) * SMALL)


@pytest.mark.slow
def test_sizes_that_a_loop_carries_in_float32_are_open(device) -> None:
    with opened(halves(LOOP), device) as session:
        for size in range(2, 9):
            x = np.resize(ROW / np.float16(8), size)
            assert close(session.run(None, {"x": x, "k": np.array(3)})[0], x.astype(np.float64) * 1e6 * SMALL)
        assert session.stats.misses == 8  # none for sizes above 3


@pytest.mark.slow
def test_a_result_of_a_branch(device) -> None:
    with opened(halves(BRANCH), device) as session:
        (y,) = session.run(None, {"x": ROW, "c": np.array(False)})
        assert close(y, -(ROW[ROW != 0].astype(np.float64) ** 2) * SMALL)
        assert close(session.run(None, {"x": ROW, "c": np.array(True)})[0], picked(ROW))


@pytest.mark.slow
def test_the_next_process_remembers_stages(device, calibrations, tmp_path) -> None:
    for _ in range(2):
        with opened(halves(PICKED % ""), device, cache=tmp_path) as session:
            assert close(session.run(None, {"x": ROW})[0], picked(ROW))
    assert len(calibrations) == 1 and session.stats.disk_hits == session.stats.misses > 0


@pytest.mark.slow
def test_sizes_that_change_have_one_stage(device, calibrations) -> None:
    with opened(halves(PICKED % ""), device) as session:
        for size in range(2, 9):
            x = np.resize(ROW, size)
            assert close(session.run(None, {"x": x})[0], picked(x))
    assert len(calibrations) == 1


@pytest.mark.slow
def test_a_node_on_the_host_gets_halves_and_a_warning(device) -> None:
    with opened(halves(ON_HOST), device, providers=BOTH) as session:
        small = ROW / np.float16(4)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "provider 'wgpu' cannot run")
            (y,) = session.run(None, {"x": small})
        assert close(y, -(small.astype(np.float64) ** 4) * SMALL)
        with pytest.warns(UserWarning, match=r"tensor 'b' reaches 6.15e\+05 and is infinite where the host reads it"):
            (y,) = session.run(None, {"x": ROW})
        assert np.isinf(y).any()


@pytest.mark.parametrize("kind", MASKS)
def test_what_constants_of_another_stage_reach_costs_no_run(device, calibrations, kind: str) -> None:
    nodes, low = MASKS[kind]
    model = halves(
        f"""g (float16[n] x, float16[n, n] w, float16[n] m) => (float16[k] y)
        <float low = {{-65504.0}}, float lowest = {{-3e38}}, float zero = {{0.0}}, int64 two = {{2}}> {{
        c = NonZero(x)  i = Transpose(c)  o = MatMul(x, w)  {nodes}  y = Softmax<axis = 0>(e) }}"""
    )
    x = np.array([1, 2, 3, 4], np.float16)
    with opened(model, device, providers=BOTH if kind == "over the host" else ["wgpu"]) as session:
        for masked in ([1, 1, 1, 1], [1, 0, 0, 1]):
            mask = np.array([1, 1, 1, 1] if kind == "moved" else masked, np.float16)
            scores = x.astype(np.float32) + np.float32(low) * mask.astype(np.float32)
            expected = np.exp(scores - scores.max())
            feeds = {"x": x, "w": np.eye(4, dtype=np.float16), "m": mask}
            assert close(session.run(None, feeds)[0], expected / expected.sum())
    assert not calibrations
