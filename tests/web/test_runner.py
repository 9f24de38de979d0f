"""shaderloom.js: what a session computes, of which shapes and types, and where its tensors are.

Covers: runtime/web/shaderloom.js.
"""

from __future__ import annotations

import json

import numpy as np
import onnx.parser
import onnx.reference
import pytest

from shaderloom.bundles.compile import compile_bundle

from ..support.bundles import (
    cache_bundle,
    cache_feeds,
    feeds,
    product_bundle,
    recurrent_bundle,
    recurrent_model,
    seal,
    small_bundle,
    small_model,
)
from .chromium import Page, PageError
from .sessions import SETUP

RUN = """async (values, dims) => {
  const session = await open();
  const data = new Float32Array(values);
  return lists(await session.run({ x: dims ? { data, dims } : data }));
}"""


def run(page: Page, n: int, *, shaped: bool) -> dict:
    array = feeds(n, bias=False)["x"]
    return page.call(RUN, array.ravel().tolist(), list(array.shape) if shaped else None)


def assert_is_the_reference(found: dict, n: int) -> None:
    names = [output.name for output in small_model(bias=False).graph.output]
    reference = onnx.reference.ReferenceEvaluator(small_model(bias=False)).run(None, feeds(n, bias=False))
    assert set(found) == set(names)
    for name, expected in zip(names, reference, strict=True):
        assert found[name]["dtype"] == expected.dtype.name
        assert found[name]["dims"] == list(expected.shape)
        values = np.array([float(value) for value in found[name]["data"]]).reshape(expected.shape)
        np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-5)


def test_shapes_are_chosen_by_sizes(open_bundle, static_bundle):
    page = open_bundle(static_bundle)
    page.evaluate(SETUP)
    for n in (5, 7, 5):
        for shaped in (False, True):
            assert_is_the_reference(run(page, n, shaped=shaped), n)
    assert page.messages == []


@pytest.mark.parametrize("software", [None, True, False])
def test_software_adapters_take_kernels_of_their_own(open_bundle, tmp_path, software):
    path = product_bundle(tmp_path / "b", 64)
    found = open_bundle(path).call(
        """async (software) => {
          const { load } = await import("/shaderloom.js");
          const session = await load("/bundle/", { software });
          const [plan] = await session.prepare(0);
          const { y } = await session.run({ x: new Float32Array(64 * 64) });
          return [plan.key, y.dims];
        }""",
        software,
    )
    record = json.loads((path / "manifest.json").read_bytes())["plans"][0]
    assert record["key"] != record["software"]
    # The browser of these tests computes on the CPU.
    assert found == [record["key"] if software is False else record["software"], [64, 64]]


def test_types_of_outputs(open_bundle, static_bundle):
    page = open_bundle(static_bundle)
    page.evaluate(SETUP)
    found = run(page, 5, shaped=False)
    assert found["shape"] == {"dtype": "int64", "dims": [3], "type": "BigInt64Array", "data": ["2", "5", "8"]}
    assert found["two"] == {"dtype": "float32", "dims": [2], "type": "Float32Array", "data": [1.5, -2.0]}


CACHE = """async ({ past, row, place }, inPlace, location) => {
  const session = await open();
  const buffer = session.device.createBuffer({
    size: 4 * past.length, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
  });
  session.device.queue.writeBuffer(buffer, 0, new Float32Array(past));
  const feeds = { past: buffer, row: new Float32Array(row), place: new BigInt64Array(place.map(BigInt)) };
  const found = await session.run(feeds, { inPlace, location });
  const again = await session.run({ ...feeds, past: found.present.buffer ?? found.present.data }, {});
  const fed = await session.run({ ...feeds, row: feeds.row.map(() => 0) }, { outputs: ["present"] });
  return [found.present.buffer === buffer, list(again.present), list(again.y), list(fed.present)];
}"""


@pytest.mark.parametrize("location", ["cpu", "gpu"])
@pytest.mark.parametrize("in_place", [False, True])
def test_states_in_place(open_bundle, tmp_path, in_place, location):
    """An output that begins as an input takes over the fed buffer if it may, else the buffer stays as it was."""
    page = open_bundle(cache_bundle(tmp_path / "b"))
    page.evaluate(SETUP)
    feeds, present = cache_feeds()
    fed = {name: array.ravel().tolist() for name, array in feeds.items()}
    is_same, again, y, zeroed = page.call(CACHE, fed, in_place, location)
    assert is_same is (in_place and location == "gpu")
    np.testing.assert_array_equal(np.array(again["data"], np.float32), present.ravel())
    np.testing.assert_allclose(np.array(y["data"]), np.tanh(present.ravel()), rtol=1e-5)
    expected = (present if in_place else feeds["past"]).copy()
    expected[0, 5] = expected[1, 2] = 0
    np.testing.assert_array_equal(np.array(zeroed["data"], np.float32), expected.ravel())
    assert page.messages == []


def test_a_buffer_that_is_written_is_fed_once(open_bundle, tmp_path):
    page = open_bundle(cache_bundle(tmp_path / "b"))
    page.evaluate(SETUP)
    with pytest.raises(PageError, match="'row': its GPUBuffer is written, with 'present', and fed"):
        page.call(
            """async () => {
              const session = await open();
              const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC;
              const past = session.device.createBuffer({ size: 256, usage });
              await session.run({ past, row: past, place: new BigInt64Array(2) }, { inPlace: true });
            }"""
        )


def test_no_call_leaves_a_buffer_that_is_fed(open_bundle, tmp_path):
    """A range that fits the fed GPUBuffer, and leaves the tensor in it that a state writes in place."""
    path = cache_bundle(tmp_path / "b", dynamic={"batch": (1, 8)}, target="web-software")
    (file,) = path.glob("plan-*.json")
    plan = json.loads(file.read_bytes())
    plan["commands"][0]["calls"][0]["ranges"][2]["size"] = ["+", ["*", "batch", 96], 256]
    file.write_text(json.dumps(plan))
    seal(path)
    page = open_bundle(path)
    page.evaluate(SETUP)
    with pytest.raises(PageError, match="bytes 0 to 448 of 'output:present', which has 192"):
        page.call(
            """async () => {
              const session = await open();
              const past = session.device.createBuffer({ size: 2048, usage: GPUBufferUsage.STORAGE });
              const place = { data: new BigInt64Array(2), dims: [2] };
              const row = { data: new Float32Array(8), dims: [2, 1, 4] };
              const feeds = { past: { data: past, dims: [2, 6, 4] }, row, place };
              await session.run(feeds, { inPlace: true, location: "gpu" });
            }"""
        )


@pytest.mark.parametrize("dynamic", [None, {"n": (1, 64)}])
def test_calls_of_a_shared_kernel_bind_their_problems(open_bundle, tmp_path, dynamic):
    """Two products that differ in sizes alone are one kernel, which reads the sizes of each call."""
    generator = np.random.default_rng(1)
    weights = [generator.standard_normal(shape, np.float32) / 8 for shape in ((64, 128), (128, 192))]
    head = '<ir_version: 9, opset_import: ["" : 17]> g (float[n, 64] x) => (float[n, 192] y)'
    model = onnx.parser.parse_model(f"{head} {{ p = MatMul (x, w0)  t = Tanh (p)  q = MatMul (t, w1)  y = Tanh (q) }}")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(each, f"w{n}") for n, each in enumerate(weights))
    path = tmp_path / "b"
    compile_bundle(model, path, shapes=[{"x": (40, 64)}], dynamic=dynamic, software=False)
    (plan,) = (json.loads(file.read_bytes()) for file in path.glob("plan-*.json"))
    assert len(plan["kernels"]) == 1 and len(plan["problems"]) == 2
    page = open_bundle(path)
    page.evaluate(SETUP)
    x = generator.standard_normal((40, 64), np.float32)
    found = page.call(RUN, x.ravel().tolist(), list(x.shape))
    expected = np.tanh(np.tanh(x.astype(np.float64) @ weights[0]) @ weights[1])
    np.testing.assert_allclose(np.reshape(found["y"]["data"], expected.shape), expected, atol=1e-5)


def test_one_plan_serves_dynamic_sizes(open_bundle, tmp_path):
    """Larger and smaller ones in turn, so that memory grows while bind groups of other sizes are kept."""
    page = open_bundle(small_bundle(tmp_path / "b", 3, bias=False, dynamic={"n": (1, 64)}))
    page.evaluate(SETUP)
    for n in (3, 64, 1, 17, 3):
        assert_is_the_reference(run(page, n, shaped=n % 2 == 0), n)
    with pytest.raises(PageError, match="not compiled for x=1040 elements; it was for x=2xnx8"):
        run(page, 65, shaped=False)


def test_sizes_share_bind_groups(open_bundle, tmp_path):
    """Sizes within the memory that is there make none, unless they bind a buffer of the caller's: one for each call."""
    page = open_bundle(small_bundle(tmp_path / "b", 3, bias=False, dynamic={"n": (1, 64)}))
    page.evaluate(SETUP)
    page.evaluate("""
      globalThis.groups = 0;
      const make = GPUDevice.prototype.createBindGroup;
      GPUDevice.prototype.createBindGroup = function (...values) { groups++; return make.apply(this, values); };
    """)
    made = []
    for n in (64, 3, 17, 1, 64):
        page.evaluate("groups = 0")
        assert_is_the_reference(run(page, n, shaped=True), n)
        made.append(page.evaluate("groups"))
    assert made[0] > 0 and made[1:] == [0, 0, 0, 0]
    again = page.call(
        """async (values, dims) => {
          const session = await open();
          const size = 4 * values.length;
          const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC;
          const buffer = session.device.createBuffer({ size, usage });
          session.device.queue.writeBuffer(buffer, 0, new Float32Array(values));
          groups = 0;
          const results = lists(await session.run({ x: { data: buffer, dims } }));
          return { results, groups };
        }""",
        feeds(17, bias=False)["x"].ravel().tolist(),
        [2, 17, 8],
    )
    assert_is_the_reference(again["results"], 17)
    assert 0 < again["groups"] < made[0]


def test_sizes_in_steps(open_bundle, tmp_path):
    page = open_bundle(small_bundle(tmp_path / "b", 3, bias=False, dynamic={"n": (3, 64, 4)}))
    page.evaluate(SETUP)
    for n in (3, 63, 7):
        assert_is_the_reference(run(page, n, shaped=n % 2 == 0), n)
    for n, shaped in ((5, True), (5, False), (67, True)):
        with pytest.raises(PageError, match=rf"not compiled for .*'n' is {n}; it was declared 3 to 63 in steps of 4"):
            run(page, n, shaped=shaped)


def test_repeated_commands(open_bundle, tmp_path):
    """A recurrent layer of declared steps: more of them than before, fewer, and none."""
    weights = recurrent_model()[1]
    w, r = weights["w"][0].T, weights["r"][0].T
    page = open_bundle(recurrent_bundle(tmp_path / "b"))
    page.evaluate(SETUP)
    for n in (0, 4, 64, 3):
        x = np.random.default_rng(n).standard_normal((n, 2, 8)).astype(np.float32)
        found = page.call(RUN, x.ravel().tolist(), [n, 2, 8])
        hidden, states = np.zeros((2, 64)), np.zeros((n, 2, 64))
        for step in range(n):
            states[step] = hidden = np.tanh(x[step] @ w + hidden @ r)
        np.testing.assert_allclose(np.array(found["y"]["data"]).reshape(n, 2, 64), states, atol=1e-5)
        np.testing.assert_allclose(np.array(found["last"]["data"]).reshape(2, 64), hidden, atol=1e-5)
    assert page.messages == []


def test_overlapping_runs_do_not_mix(open_bundle, static_bundle):
    page = open_bundle(static_bundle)
    page.evaluate(SETUP)
    results = page.call(
        """async (arrays) => {
          const session = await open();
          const runs = arrays.map((values) => session.run({ x: new Float32Array(values) }));
          return (await Promise.all(runs)).map(lists);
        }""",
        [feeds(n, bias=False)["x"].ravel().tolist() for n in (5, 7, 5, 7)],
    )
    for n, found in zip((5, 7, 5, 7), results, strict=True):
        assert_is_the_reference(found, n)


def test_tensors_stay_on_the_device(open_bundle, static_bundle):
    """Outputs on the device are fed as they are; the result is that of the model run twice."""
    page = open_bundle(static_bundle)
    page.evaluate(SETUP)
    found = page.call(
        """async (values) => {
          const session = await open();
          const x = new Float32Array(values);
          const first = await session.run({ x }, { location: "gpu", outputs: ["y", "shape"] });
          const second = await session.run({ x: first.y }, { outputs: ["y", "same"] });
          const again = await session.run({ x: first.y.buffer }, { outputs: ["y"] }).catch((error) => error.message);
          const read = await session.run({ x: { data: first.y.buffer, dims: first.y.dims } }, { outputs: ["same"] });
          return { names: Object.keys(first), buffer: first.y.buffer instanceof GPUBuffer, again, second: lists(second),
            equal: read.same.data.every((value, index) => value === second.same.data[index]) };
        }""",
        feeds(5, bias=False)["x"].ravel().tolist(),
    )
    evaluator = onnx.reference.ReferenceEvaluator(small_model(bias=False))
    first = evaluator.run(["y"], feeds(5, bias=False))[0]
    second = evaluator.run(["y"], {"x": first})[0]
    assert (found["names"], found["buffer"], found["equal"]) == (["y", "shape"], True, True)
    np.testing.assert_allclose(np.reshape(found["second"]["same"]["data"], first.shape), first, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.reshape(found["second"]["y"]["data"], second.shape), second, rtol=1e-5, atol=1e-5)
    assert "not compiled for" in found["again"] or isinstance(found["again"], dict)


def test_a_device_of_the_caller_outlives_the_session(open_bundle, static_bundle):
    page = open_bundle(static_bundle)
    page.evaluate(SETUP)
    found = page.call(
        """async (values) => {
          const { load } = await import("/shaderloom.js");
          const device = await (await navigator.gpu.requestAdapter()).requestDevice();
          const session = await load("/bundle/", { device });
          const { y } = await session.run({ x: new Float32Array(values) }, { location: "gpu", outputs: ["y"] });
          session.dispose();
          session.dispose();
          const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
          const staging = device.createBuffer({ size: y.buffer.size, usage });
          const encoder = device.createCommandEncoder();
          encoder.copyBufferToBuffer(y.buffer, 0, staging, 0, staging.size);
          device.queue.submit([encoder.finish()]);
          await staging.mapAsync(GPUMapMode.READ);
          const kind = await session.run({}).catch((error) => error.kind);
          return { kind, data: Array.from(new Float32Array(staging.getMappedRange())) };
        }""",
        feeds(5, bias=False)["x"].ravel().tolist(),
    )
    expected = onnx.reference.ReferenceEvaluator(small_model(bias=False)).run(["y"], feeds(5, bias=False))[0]
    assert found["kind"] == "closed"
    np.testing.assert_allclose(found["data"][: expected.size], expected.ravel(), rtol=1e-5, atol=1e-5)


def test_loss_of_the_device_is_told(open_bundle, static_bundle):
    page = open_bundle(static_bundle)
    page.evaluate(SETUP)
    told, kind, message = page.call(
        """async (values) => {
          const session = await open();
          session.device.destroy();
          const told = await session.lost;
          const error = await session.run({ x: new Float32Array(values) }).catch((error) => error);
          return [told, error.kind, error.message];
        }""",
        feeds(5, bias=False)["x"].ravel().tolist(),
    )
    assert kind == "device"
    assert told == message
    assert "was lost" in told


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("session.run({ x: new Float32Array(96) })", "not compiled for x=96 elements"),
        ("session.run({ x: { data: new Float32Array(80), dims: [5, 2, 8] } })", "not compiled for x=5x2x8"),
        ("session.run({ x: { data: new Float32Array(80), dims: [2, 7, 8] } })", "has 80 elements, which is not 2x7x8"),
        ("session.run({ x: new Float64Array(80) })", "is float32: give Float32Array, not Float64Array"),
        ("session.run({ x: { data: new Float32Array(80), dims: '2x5x8' } })", "'x': dims is no list of integers"),
        ("session.run({ x: { data: new Float32Array(80), dims: [2n, 5n, 8n] } })", "'x': dims is no list of integers"),
        (
            "session.run({ x: { buffer: new Float32Array(80), dims: [2, 5, 8], dtype: 'int32' } })",
            "'x' is float32, not int32",
        ),
        ("session.run({ x: [1, 2] })", "give Float32Array, not Array"),
        ("session.run({ z: new Float32Array(80) })", "has no input 'z'; it has x"),
        ("session.run({ x: new Float32Array(80) }, { outputs: ['z'] })", "has no output 'z'"),
        (
            "session.run({ x: new Float32Array(80) }, { location: 'moon' })",
            'location is one of cpu, gpu, view, not "moon"',
        ),
        ("session.sample(0)", "has no sample 0"),
        ("session.prepare(7)", "has no plan 7"),
        ("session.run()", "feeds is no object"),
        ("session.run({})", "the feeds lack x"),
        ("session.profile(null)", "feeds is no object"),
        ("session.run({ x: new Float32Array(80) }, { outputs: 'y' })", "outputs is a list of names"),
        ("session.run({ x: new Float32Array(80) }, { signal: 5000 })", "signal is no AbortSignal"),
        ("session.recover({ signal: new AbortController() })", "signal is no AbortSignal"),
    ],
)
def test_wrong_feeds_are_refused(open_bundle, static_bundle, expression, told):
    page = open_bundle(static_bundle)
    page.evaluate(SETUP)
    found = page.evaluate(
        f"open().then((session) => {expression}).catch(({{ kind, message }}) => `${{kind}}: ${{message}}`)"
    )
    assert found.startswith("input: ")
    assert told in found


DATA_TYPES = """
<ir_version: 10, opset_import: ["" : 21]>
types (int64[3] a, bool[3] b, float16[3] c, uint8[5] d, int8[2] e)
    => (int64[3] sum, bool[3] neither, float16[3] twice, uint8[5] dark, int8[2] less) {
    sum = Add(a, a)
    neither = Not(b)
    twice = Add(c, c)
    dark = Add(d, d)
    less = Sub(e, e)
}
"""


def test_types_smaller_and_larger_than_a_word(open_bundle, tmp_path):
    compile_bundle(onnx.parser.parse_model(DATA_TYPES), tmp_path / "b")
    page = open_bundle(tmp_path / "b")
    page.evaluate(SETUP)
    found = page.call("""async () => lists(await (await open()).run({
      a: new BigInt64Array([1n, -(2n ** 40n), 2n ** 62n - 1n]),
      b: new Uint8Array([0, 1, 0]),
      c: new Uint16Array([0x3c00, 0xc000, 0x0001]),
      d: new Uint8Array([1, 2, 3, 200, 5]), e: new Int8Array([-128, 5]),
    }))""")
    half = found["twice"]["data"]
    if found["twice"]["type"] == "Float16Array":
        half = np.array(half, np.float16).view(np.uint16).tolist()
    assert found["sum"]["data"] == ["2", str(-(2**41)), str(2**63 - 2)]
    assert (found["neither"]["data"], found["neither"]["type"]) == ([1, 0, 1], "Uint8Array")
    assert half == [0x4000, 0xC400, 0x0002]
    assert found["dark"]["data"] == [2, 4, 6, 144, 10]
    assert found["less"]["data"] == [0, 0]
