"""shaderloom.js: devices that are lost and replaced, sessions that share one, and sessions in a worker.

Covers: runtime/web/shaderloom/session.js, runtime/web/shaderloom/weights.js, runtime/web/shaderloom/device.js.
"""

from __future__ import annotations

import numpy as np
import onnx.reference
import pytest

from shaderloom.serve.files import runner_resources, text_resource
from shaderloom.serve.site import Resource, Site

from ..support.bundles import feeds, files_of, small_model
from .chromium import Chromium, Page, find_chromium
from .conftest import EMPTY

#: Counts pipelines, bytes of buffers that were made and destroyed, and bytes that were written; the outputs of a run
COUNT = """
globalThis.counts = { pipelines: 0, alive: 0, written: 0 };
const wrap = (type, name, add) => {
  const original = type.prototype[name];
  type.prototype[name] = function (...values) {
    const result = original.apply(this, values);
    add(result, this, ...values);
    return result;
  };
};
wrap(GPUDevice, "createComputePipelineAsync", () => counts.pipelines++);
const destroyed = new WeakSet();
wrap(GPUDevice, "createBuffer", (buffer) => { counts.alive += buffer.size; });
wrap(GPUBuffer, "destroy", (result, buffer) => {
  if (!destroyed.has(buffer)) counts.alive -= buffer.size;
  destroyed.add(buffer);
});
wrap(GPUQueue, "writeBuffer", (result, queue, buffer, offset, data, start, size) => {
  counts.written += size ?? data.byteLength;
});
globalThis.newDevice = async () => (await navigator.gpu.requestAdapter()).requestDevice();
globalThis.y = async (session, values) =>
  Array.from((await session.run({ x: new Float32Array(values) }, { outputs: ["y"] })).y.data);
globalThis.table = async (session, values) =>
  Array.from((await session.run({ x: new Float32Array(values) }, { outputs: ["table"] })).table.data);
"""


@pytest.fixture
def page(open_bundle, static_bundle):
    page = open_bundle(static_bundle)
    page.evaluate(COUNT)
    return page


def values() -> list[float]:
    return feeds(5, bias=False)["x"].ravel().tolist()


def assert_is_y(found: list[float]) -> None:
    expected = onnx.reference.ReferenceEvaluator(small_model(bias=False)).run(["y"], feeds(5, bias=False))[0]
    np.testing.assert_allclose(found, expected.ravel(), rtol=1e-5, atol=1e-5)


def test_a_session_recovers_from_the_loss_of_its_device(page: Page):
    found = page.call(
        """async (values) => {
          const { load } = await import("/shaderloom.js");
          const session = await load("/bundle/");
          await session.recover();
          const before = session.device;
          await y(session, values);
          before.destroy();
          const reason = await session.lost;
          const failed = await y(session, values).catch((error) => error.kind);
          const seen = [];
          const recovery = session.recover({ onProgress: ({ what }) => seen.push(what) });
          await Promise.all([recovery, session.recover()]);
          const after = await y(session, values);
          session.device.destroy();
          await session.lost;
          const aborted = await session.recover({ signal: AbortSignal.abort("no") }).catch((error) => error);
          await session.recover();
          const again = await y(session, values);
          session.dispose();
          const closed = await session.recover().catch((error) => error.kind);
          const same = before === session.device;
          return { same, reason, failed, seen: [...new Set(seen)], after, again, aborted, closed };
        }""",
        values(),
    )
    assert_is_y(found["after"])
    assert_is_y(found["again"])
    assert "was lost" in found["reason"]
    assert (found["same"], found["failed"], found["aborted"], found["closed"]) == (False, "device", "no", "closed")
    assert found["seen"] == ["device", "weights", "pipelines"]


@pytest.mark.slow
def test_a_session_recovers_from_the_crash_of_the_gpu_process(browser, static_bundle):
    """In a browser of its own: the process of the GPU ends, with all devices of all pages."""
    contents = {f"/bundle/{name}": data for name, data in files_of(static_bundle).items()}
    files = {path: Resource("text/plain", lambda data=data: data) for path, data in contents.items()}
    resources = {**EMPTY, **runner_resources(), **files}
    program = find_chromium()
    assert program is not None
    with Chromium(program) as own, Site(resources) as site, own.open(site.url + "empty.html") as page:
        page.evaluate(COUNT)
        page.call(
            """async (values) => {
              const { load } = await import("/shaderloom.js");
              globalThis.session = await load("/bundle/");
              await y(session, values);
            }""",
            values(),
        )
        own.send("Browser.crashGpuProcess")
        reason, failed, after = page.call(
            """async (values) => {
              const reason = await session.lost;
              const failed = await y(session, values).catch((error) => error.kind);
              await session.recover();
              return [reason, failed, await y(session, values)];
            }""",
            values(),
        )
    assert "was lost" in reason
    assert failed == "device"
    assert_is_y(after)


def test_another_device_of_the_callers_takes_over(page: Page):
    found = page.call(
        """async (values) => {
          const { load } = await import("/shaderloom.js");
          const [first, second] = await Promise.all([newDevice(), newDevice()]);
          const session = await load("/bundle/", { device: first });
          first.destroy();
          await session.lost;
          const refused = await session.recover().catch((error) => `${error.kind}: ${error.message}`);
          await session.recover({ device: second });
          const result = await y(session, values);
          session.dispose();
          return { refused, result, same: session.device === second };
        }""",
        values(),
    )
    assert found["refused"].startswith("input: the device that was lost was the caller's")
    assert found["same"]
    assert_is_y(found["result"])


def test_sessions_on_one_device_share_weights_and_pipelines(page: Page):
    """Also those that load at once; what they share lives as long as one of them."""
    found = page.call(
        """async (values) => {
          const { load } = await import("/shaderloom.js");
          const device = await newDevice();
          const open = () => load("/bundle/", { device, prepare: true });
          const one = await open();
          const first = { ...counts };
          const two = await open();
          const second = { ...counts };
          const three = await open();
          one.dispose();
          two.dispose();
          const tables = [await table(three, values), await y(three, values)];
          three.dispose();
          await device.queue.onSubmittedWorkDone();
          const end = counts.alive;
          const [four, five] = await Promise.all([open(), open()]);
          const results = [await y(four, values), await table(five, values)];
          const written = counts.written;
          four.dispose();
          five.dispose();
          return { first, second, tables, results, end, last: counts.alive, written };
        }""",
        values(),
    )
    table = onnx.reference.ReferenceEvaluator(small_model(bias=False)).run(["table"], feeds(5, bias=False))[0]
    first, second = found["first"], found["second"]
    assert first["pipelines"] > 0
    assert first["written"] >= table.nbytes
    assert second == first, "the second session made and wrote nothing"
    for found_table, found_y in (found["tables"], found["results"][::-1]):
        np.testing.assert_allclose(found_table, table.ravel(), rtol=1e-5)
        assert_is_y(found_y)
    assert (found["end"], found["last"]) == (0, 0)
    assert found["written"] < 2.5 * first["written"], "once for the first three and once for the last two"


def test_an_aborted_upload_leaves_the_others_theirs(page: Page):
    """The first load's upload is held until the second waits for it, and aborted then."""
    found = page.call(
        """async (values) => {
          const { load } = await import("/shaderloom.js");
          const device = await newDevice();
          let release;
          const held = new Promise((resolve) => { release = resolve; });
          device.queue.onSubmittedWorkDone = () => held;
          const controller = new AbortController();
          const abort = () => { controller.abort("no"); release(); };
          const second = ({ what }) => { if (what === "device") setTimeout(abort); };
          let other;
          const first = ({ what }) => {
            if (what === "weights") other ??= load("/bundle/", { device, onProgress: second });
          };
          const { signal } = controller;
          const aborted = await load("/bundle/", { device, signal, onProgress: first }).catch((error) => error);
          const session = await other;
          const result = await y(session, values);
          session.dispose();
          return { aborted, result, alive: counts.alive };
        }""",
        values(),
    )
    assert_is_y(found["result"])
    assert (found["aborted"], found["alive"]) == ("no", 0)


WORKER = """
import { load } from "/shaderloom.js";
const session = load(new URL("/bundle/", location.href));
onmessage = async ({ data: { number, feeds } }) => {
  const outputs = await (await session).run(feeds);
  postMessage({ number, outputs }, Object.values(outputs).map(({ data }) => data.buffer));
};
"""


def test_a_worker_runs_and_transfers_its_outputs(browser, static_bundle):
    contents = {f"/bundle/{name}": data for name, data in files_of(static_bundle).items()}
    files = {path: Resource("text/plain", lambda data=data: data) for path, data in contents.items()}
    resources = {**EMPTY, **runner_resources(), **files, **text_resource("worker.js", WORKER)}
    with Site(resources) as site, browser.open(site.url + "empty.html") as page:
        found = page.call(
            """async (values) => {
              const worker = new Worker("/worker.js", { type: "module" });
              const answers = [];
              for (const number of [0, 1]) {
                const x = new Float32Array(values);
                worker.postMessage({ number, feeds: { x } }, [x.buffer]);
                answers.push(await new Promise((resolve, reject) => {
                  worker.onmessage = ({ data }) => resolve(data);
                  worker.onerror = reject;
                }));
              }
              return answers.map(({ outputs }) => [Object.keys(outputs).length, Array.from(outputs.y.data)]);
            }""",
            values(),
        )
    for count, y in found:
        assert count == len(small_model(bias=False).graph.output)
        assert_is_y(y)
