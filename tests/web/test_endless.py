"""A shader without an end: the page goes on, and the wait for it can be ended.

Covers: runtime/web/shaderloom.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shaderloom.runtime.bundle.files import open_files
from shaderloom.serve.files import bundle_resources, runner_resources
from shaderloom.serve.site import Site

from ..support.bundles import seal, small_bundle
from ..support.hostile_shaders import shader
from .chromium import Chromium, Page, find_chromium
from .conftest import EMPTY

pytestmark = pytest.mark.slow


@pytest.fixture
def page(browser, tmp_path) -> Iterator[Page]:
    """A page of a browser of its own, whose device ends with it, with a bundle whose one kernel is endless."""
    path = small_bundle(tmp_path / "b", 5, target="web-software")
    for file in (path / "shaders").iterdir():
        text = shader("", "loop { if y[0] == 7.0 { break; } y[1] += 1.0; }")
        file.write_text(text.replace("@binding(0)", "@binding(4)"))
    seal(path)
    files = open_files(path)
    program = find_chromium()
    assert program is not None
    resources = {**EMPTY, **runner_resources(), **bundle_resources(files, "/bundle/")}
    with Chromium(program) as own, Site(resources) as site, own.open(site.url + "empty.html") as page:
        yield page
    files.close()


#: Ends the wait after twenty ticks of the page's clock, which begin with the submission
RUN = """async (how) => {
  const { load } = await import("/shaderloom.js");
  const session = await load("/bundle/", { prepare: true });
  const aborting = new AbortController();
  const end = () => how === "signal" ? aborting.abort("enough") : session.dispose();
  const submit = GPUQueue.prototype.submit;
  let ticks = 0;
  GPUQueue.prototype.submit = function (...commands) {
    submit.apply(this, commands);
    setInterval(() => { if (++ticks === 20) end(); }, 10);
  };
  const feeds = { x: new Float32Array(2 * 5 * 8), bias: new Float32Array(8) };
  const ended = await session.run(feeds, { signal: aborting.signal }).then(() => "ran", (error) => error.kind ?? error);
  const again = await session.run(feeds, { signal: AbortSignal.abort("before") }).catch((error) => error.kind ?? error);
  return [ended, again];
}"""


@pytest.mark.parametrize(("how", "told"), [("signal", ["enough", "before"]), ("dispose", ["closed", "before"])])
def test_the_wait_can_be_ended(page, how, told):
    assert page.call(RUN, how) == told


#: Two runs at once, and the next one
LIMITED = """async (maxRunSeconds) => {
  const { load } = await import("/shaderloom.js");
  const session = await load("/bundle/", { prepare: true, maxRunSeconds });
  const feeds = { x: new Float32Array(2 * 5 * 8), bias: new Float32Array(8) };
  const run = () => session.run(feeds).then(() => "ran", ({ kind, message }) => `${kind}: ${message}`);
  return [...await Promise.all([run(), run()]), await run()];
}"""


def test_the_wait_has_an_end(page):
    """Each run waits for its own time, also behind one that the device does not end."""
    error = "device: a run takes the device more than 0.5 s (maxRunSeconds); the rest of it was not submitted"
    assert page.call(LIMITED, 0.5) == [error] * 3
