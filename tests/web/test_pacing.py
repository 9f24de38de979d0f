"""shaderloom.js: runs in several parts, and the end of those that take too long.

Covers: runtime/web/shaderloom/pacing.js.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ..support.bundles import copy_bundle, loops_bundle, loops_feeds, recurrent_bundle, seal, small_bundle
from ..support.hostile_shaders import shader
from .test_programs import TYPED, for_page

#: More than a part has
HUGE = 10**15

#: Counts submissions and dispatches; what they were is in ``counts``
COUNT = """
globalThis.counts = { submissions: 0, dispatches: 0 };
const count = (type, name, what) => {
  const original = type.prototype[name];
  type.prototype[name] = function (...values) {
    counts[what]++;
    globalThis.onCount?.(what);
    return original.apply(this, values);
  };
};
count(GPUQueue, "submit", "submissions");
count(GPUComputePassEncoder, "dispatchWorkgroups", "dispatches");
globalThis.open = async (options) => (await import("/shaderloom.js")).load("/bundle/", { prepare: true, ...options });
"""


def laborious(path: Path) -> Path:
    """Let the calls of a bundle say that each is more work than a part has."""
    for file in path.glob("plan-*.json"):
        plan = json.loads(file.read_bytes())
        for command in plan["commands"]:
            for call in command["calls"]:
                call["flops"] = HUGE
        file.write_text(json.dumps(plan))
    seal(path)
    return path


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recurrent_bundle(tmp_path_factory.mktemp("recurrent") / "b")


#: Runs begin without a wait for the ones before
RUN_ALL = f"""async (all) => {{
  const session = await open();
  counts.submissions = counts.dispatches = 0;
  const runs = await Promise.all(all.map((feeds) => session.run(({TYPED})(feeds))));
  const list = ([name, {{ data }}]) => [name, Array.from(data, Number)];
  return [runs.map((run) => Object.fromEntries(Object.entries(run).map(list))), counts];
}}"""


def test_a_run_in_parts_gives_what_one_part_gives(recurrent, open_bundle, tmp_path):
    """Runs that overlap share buffers: none begins before the one before is submitted to its end."""
    random = np.random.default_rng(0)
    all_feeds = [for_page({"x": random.standard_normal((n, 2, 8)).astype(np.float32)}) for n in (9, 3, 9)]
    found = []
    for path in (recurrent, laborious(copy_bundle(recurrent, tmp_path / "b"))):
        page = open_bundle(path)
        page.evaluate(COUNT)
        found.append(page.call(RUN_ALL, all_feeds))
    (whole, few), (parts, many) = found
    assert parts == whole
    assert few["submissions"] == len(all_feeds)
    assert many["dispatches"] == few["dispatches"] > 9
    assert many["submissions"] > 2 * few["submissions"]


def test_a_program_in_parts_gives_what_one_part_gives(open_bundle, tmp_path):
    all_feeds = [for_page(loops_feeds(4, 50, k)) for k in (7, 2, 7)]
    path = loops_bundle(tmp_path / "whole")
    found = []
    for each in (path, laborious(copy_bundle(path, tmp_path / "parts"))):
        page = open_bundle(each)
        page.evaluate(COUNT)
        found.append(page.call(RUN_ALL, all_feeds))
    (whole, few), (parts, many) = found
    assert parts == whole
    assert many["submissions"] > few["submissions"]


#: Aborts a run at its third part, and runs again
ABORT = f"""async (feeds) => {{
  const session = await open();
  counts.submissions = 0;
  const aborting = new AbortController();
  globalThis.onCount = () => {{ if (counts.submissions === 3) aborting.abort("enough"); }};
  const typed = ({TYPED})(feeds);
  const reason = await session.run(typed, {{ signal: aborting.signal }}).catch((error) => error);
  globalThis.onCount = undefined;
  await session.device.queue.onSubmittedWorkDone();
  const {{ submissions }} = counts;
  const {{ y }} = await session.run(typed);
  return [reason, submissions, y.dims];
}}"""


def test_an_aborted_run_submits_no_further_part(recurrent, open_bundle, tmp_path):
    page = open_bundle(laborious(copy_bundle(recurrent, tmp_path / "b")))
    page.evaluate(COUNT)
    feeds = for_page({"x": np.ones((9, 2, 8), np.float32)})
    assert page.call(ABORT, feeds) == ["enough", 3, [9, 1, 2, 64]]


#: The time of an iteration is that of as many steps as the input's first element says
SLOW = """
  for (var step = 0u; step < u32(x[0]); step++) { y[1] += 1.0; }
"""
REPEATS = 3000


def slow_bundle(path: Path) -> Path:
    """A bundle of many calls that say nothing of the work that the input asks for."""
    small_bundle(path, 5, bias=False, target="web-software")
    (file,) = path.glob("plan-*.json")
    plan = json.loads(file.read_bytes())
    (command,) = plan["commands"]
    (call,) = command["calls"]
    bound = [item["buffer"] for item in call["ranges"]]
    call |= {"flops": 0, "bytes": 0, "grid": [1, 1, 1]}
    plan["commands"] = [{"kind": "device", "calls": [call] * REPEATS}]
    plan["facts"] |= {"calls": []}
    plan["notes"] |= {"calls": []}
    file.write_text(json.dumps(plan))
    text = shader(f"@group(0) @binding({bound.index('input:x')}) var<storage, read> x: array<f32>;", SLOW)
    text = text.replace("@binding(0)", f"@binding({bound.index('output:y')})", 1)
    for kernel in (path / "shaders").iterdir():
        kernel.write_text(text)
    seal(path)
    return path


#: A slow run, what is submitted behind its end, and a fast one
LIMITED = """async (maxRunSeconds) => {
  const session = await open({ maxRunSeconds });
  const run = (steps) => session.run({ x: new Float32Array(80).fill(steps) });
  const fast = () => run(0).then(({ y }) => y.dims);
  const error = await run(5e5).catch(({ kind, message }) => `${kind}: ${message}`);
  const { dispatches } = counts;
  await session.device.queue.onSubmittedWorkDone();
  const rest = counts.dispatches - dispatches;
  const after = await fast();
  session.dispose();
  return [error, dispatches, rest, after];
}"""


@pytest.mark.slow
def test_a_run_ends_after_its_time(open_bundle, tmp_path):
    """It would take longer, and no estimate says so; the session is as it was."""
    page = open_bundle(slow_bundle(tmp_path / "b"))
    page.evaluate(COUNT)
    error, dispatches, rest, after = page.call(LIMITED, 0.5)
    assert error == "device: a run takes the device more than 0.5 s (maxRunSeconds); the rest of it was not submitted"
    assert 0 < dispatches < REPEATS
    assert rest == 0
    assert after == [2, 5, 8]
