"""shaderloom.js: where outputs are, and which buffers and copies that takes.

Covers: runtime/web/shaderloom/buffers.js, runtime/web/shaderloom/calls.js.
"""

from __future__ import annotations

import numpy as np
import onnx.reference
import pytest

from ..support.bundles import cache_bundle, cache_feeds, feeds, small_model
from .chromium import Page
from .sessions import SETUP

#: Counts what a run asks of WebGPU
COUNT = """
globalThis.counts = { copies: 0, copied: 0, buffers: 0, written: 0 };
const count = (type, name, add) => {
  const original = type.prototype[name];
  type.prototype[name] = function (...values) {
    add(...values);
    return original.apply(this, values);
  };
};
count(GPUCommandEncoder, "copyBufferToBuffer", (...values) => { counts.copies++; counts.copied += values.at(-1); });
count(GPUDevice, "createBuffer", () => counts.buffers++);
count(GPUQueue, "writeBuffer", (buffer, offset, data) => { counts.written += data.byteLength; });
globalThis.counted = async (work) => {
  Object.assign(counts, { copies: 0, copied: 0, buffers: 0, written: 0 });
  const result = await work();
  return [{ ...counts }, result];
};
globalThis.made = (session, size, usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST) =>
  session.device.createBuffer({ size, usage });
globalThis.read = async (session, buffer, bytes) => {
  const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
  const staging = session.device.createBuffer({ size: buffer.size, usage });
  const encoder = session.device.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, 0, staging, 0, buffer.size);
  session.device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  return Array.from(new Float32Array(staging.getMappedRange(0, bytes)));
};
"""


@pytest.fixture
def page(open_bundle, static_bundle):
    page = open_bundle(static_bundle)
    page.evaluate(SETUP + COUNT)
    return page


def reference() -> dict[str, np.ndarray]:
    names = [output.name for output in small_model(bias=False).graph.output]
    values = onnx.reference.ReferenceEvaluator(small_model(bias=False)).run(None, feeds(5, bias=False))
    return dict(zip(names, values, strict=True))


def values() -> list[float]:
    return feeds(5, bias=False)["x"].ravel().tolist()


def test_a_run_on_the_device_copies_nothing(page: Page):
    """Fed from a buffer, written to the caller's: no copy; from the second run on no buffer and no byte of the host."""
    counts, y = page.call(
        """async (values) => {
          const session = await open();
          const x = made(session, 4 * values.length);
          session.device.queue.writeBuffer(x, 0, new Float32Array(values));
          const feeds = { x: { data: x, dims: [2, 5, 8] } };
          const into = { y: made(session, 4 * values.length) };
          await session.run(feeds, { outputs: ["y"], into });
          const [counts, outputs] = await counted(() => session.run(feeds, { outputs: ["y"], into }));
          if (outputs.y.buffer !== into.y) throw new Error("another buffer");
          return [counts, await read(session, into.y, 4 * values.length)];
        }""",
        values(),
    )
    assert counts == {"copies": 0, "copied": 0, "buffers": 0, "written": 0}
    np.testing.assert_allclose(y, reference()["y"].ravel(), rtol=1e-5, atol=1e-5)
    assert page.messages == []


def test_new_buffers_are_written_without_a_copy(page: Page):
    counts, y = page.call(
        """async (values) => {
          const session = await open();
          const x = new Float32Array(values);
          const options = { outputs: ["y"], location: "gpu" };
          await session.run({ x }, options);
          const [counts, { y }] = await counted(() => session.run({ x }, options));
          return [counts, await read(session, y.buffer, x.byteLength)];
        }""",
        values(),
    )
    assert counts == {"copies": 0, "copied": 0, "buffers": 1, "written": 4 * len(values())}
    np.testing.assert_allclose(y, reference()["y"].ravel(), rtol=1e-5, atol=1e-5)


def test_each_output_has_its_location(page: Page):
    """One copy for each output that the host reads; those that equal another tensor, or are constant, need one, too."""
    expected = reference()
    counts, found = page.call(
        """async (values) => {
          const session = await open();
          const x = new Float32Array(values);
          const location = { y: "gpu", same: "gpu", two: "gpu", table: "cpu", shape: "view" };
          const [counts, outputs] = await counted(() => session.run({ x }, { location }));
          for (const name of ["y", "same", "two"]) {
            const bytes = outputs[name].dims.reduce((product, dim) => product * dim, 4);
            outputs[name].data = new Float32Array(await read(session, outputs[name].buffer, bytes));
          }
          return [counts, lists(outputs)];
        }""",
        values(),
    )
    table = expected["table"].nbytes
    assert counts["copies"] == 2, "of same, an input, and of table, a weight"
    assert counts["copied"] == expected["same"].nbytes + table
    for name, output in found.items():
        array = np.array([float(value) for value in output["data"]]).reshape(expected[name].shape)
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-5)
    assert page.messages == []


def test_views_are_of_mapped_memory_until_they_are_released(page: Page):
    found = page.call(
        """async (values) => {
          const session = await open();
          const x = new Float32Array(values);
          const { y, same, two } = await session.run({ x }, { location: "view", outputs: ["y", "same", "two"] });
          const shared = y.data.buffer === same.data.buffer;
          const before = Array.from(y.data);
          y.release();
          y.release();
          const between = [y.data.length, same.data.length];
          const again = Array.from((await session.run({ x }, { outputs: ["y"] })).y.data);
          same.release();
          two.release();
          const [{ buffers }] = await counted(() => session.run({ x }, { outputs: ["y"] }));
          const after = [y.data.length, same.data.length];
          return { shared, before, between, after, two: Array.from(two.data), buffers, again };
        }""",
        values(),
    )
    count = len(values())
    assert found["shared"]
    np.testing.assert_allclose(found["before"], reference()["y"].ravel(), rtol=1e-5, atol=1e-5)
    assert found["again"] == found["before"]
    assert (found["between"], found["after"], found["two"]) == ([count, count], [0, 0], [1.5, -2.0])
    assert found["buffers"] == 0, "the staging buffer is used again"


def test_a_state_is_written_into_the_buffer_that_is_fed(open_bundle, tmp_path):
    page = open_bundle(cache_bundle(tmp_path / "b"))
    page.evaluate(SETUP + COUNT)
    arrays, present = cache_feeds()
    counts, data = page.call(
        """async ({ past, row, place }) => {
          const session = await open();
          const buffer = made(session, 4 * past.length);
          const feeds = { past: buffer, row: new Float32Array(row), place: new BigInt64Array(place.map(BigInt)) };
          const options = { into: { present: buffer }, outputs: ["present"] };
          session.device.queue.writeBuffer(buffer, 0, new Float32Array(past));
          await session.run(feeds, options);
          session.device.queue.writeBuffer(buffer, 0, new Float32Array(past));
          const [counts] = await counted(() => session.run(feeds, options));
          return [counts, await read(session, buffer, 4 * past.length)];
        }""",
        {name: array.ravel().tolist() for name, array in arrays.items()},
    )
    assert (counts["copies"], counts["buffers"]) == (0, 0)
    np.testing.assert_array_equal(np.array(data, np.float32), present.ravel())
    assert page.messages == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("{ into: { moon: made(session, 320) } }", "input: the run gives no output 'moon'"),
        ("{ outputs: ['two'], into: { y: made(session, 320) } }", "input: the run gives no output 'y'"),
        ("{ location: { moon: 'gpu' } }", "input: the run gives no output 'moon'"),
        ("{ location: { y: 'moon' } }", "input: location is one of cpu, gpu, view"),
        ("{ into: { y: made(session, 304) } }", "input: 'y' has 320 bytes, the buffer for it 304"),
        (
            "{ into: { y: made(session, 320, GPUBufferUsage.COPY_DST) } }",
            "input: the buffer for 'y' lacks the usage STORAGE",
        ),
        (
            "{ into: { two: made(session, 16, GPUBufferUsage.STORAGE) } }",
            "input: the buffer for 'two' lacks the usage COPY_DST",
        ),
        (
            "{ into: { table: made(session, 96000, GPUBufferUsage.STORAGE) } }",
            "input: the buffer for 'table' lacks the usage COPY_DST",
        ),
        ("{ into: { y: x, same: x } }", "input: the buffer for 'same' is that of another output"),
        ("{ into: { y: new Float32Array(80) } }", "input: into['y'] is no GPUBuffer"),
        ("{ into: { y: x } }", "input: 'x': its GPUBuffer is written, with 'y', and fed"),
    ],
)
def test_buffers_that_do_not_do_are_refused(page: Page, options: str, told: str):
    found = page.evaluate(
        f"""open().then(async (session) => {{
          const x = made(session, 320);
          return session.run({{ x: {{ data: x, dims: [2, 5, 8] }} }}, {options});
        }}).catch((error) => `${{error.kind}}: ${{error.message}}`)"""
    )
    assert found.startswith(told)
