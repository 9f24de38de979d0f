"""What people see of programs and of several bundles in the page of serve, and a page that ``compile --page`` wrote.

Covers: shaderloom/serve, runtime/web/shaderloom.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from typer.testing import CliRunner

import shaderloom
from shaderloom.cli import app
from shaderloom.runtime.bundle.files import open_files
from shaderloom.runtime.bundle.program_relations import steps_of
from shaderloom.runtime.bundle.reader import Bundle
from shaderloom.runtime.plan import dtypes
from shaderloom.serve.files import bundle_list, bundle_resources, page_resources, runner_resources
from shaderloom.serve.site import Site

from ..support.bundles import LOOPS, loops_bundle, small_bundle, small_model, steps_bundle

READY = "document.querySelectorAll('#kernels li').length > 0 && !document.body.hasAttribute('aria-busy')"


def test_programs_are_shown_step_by_step(open_bundle, tmp_path):
    path = steps_bundle(tmp_path / "b")
    page = open_bundle(path, "")
    page.wait_for(READY)
    kinds = "[...document.querySelectorAll('#steps [data-step]')].map((node) => node.dataset.step)"
    (program,) = json.loads((path / "manifest.json").read_bytes())["programs"]
    assert sorted(page.evaluate(kinds)) == sorted(step["kind"] for step in steps_of(program["steps"]))
    assert page.evaluate(kinds)[:3] == ["stage", "read", "branch"]
    text = page.evaluate("document.querySelector('#steps').innerText")
    assert "as m (0 to 200)" in text and "Branch on c" in text
    assert page.evaluate("document.querySelector('#program').hidden") is False
    assert not page.evaluate("document.querySelector('#bundle').checkVisibility()"), "there is one bundle"

    page = open_bundle(loops_bundle(tmp_path / "loops"), "")
    page.wait_for(READY)
    text = page.evaluate("document.querySelector('#steps').innerText")
    assert "Loop of at most 30" in text and "Loop of at most k" in text
    assert page.evaluate("document.querySelectorAll('#steps [data-step=loop] [data-step=stage]').length") == 2
    assert page.messages == []


def test_bundles_at_one_address_are_chosen(browser, tmp_path):
    paths = [small_bundle(tmp_path / "first", 5, sample=True), steps_bundle(tmp_path / "second")]
    resources, listed, opened = {**page_resources(), **runner_resources()}, [], []
    for path in paths:
        opened.append(open_files(path))
        resources |= bundle_resources(opened[-1], f"/bundles/{path.name}/")
        with Bundle(path) as bundle:
            listed.append((path.name, f"bundles/{path.name}/", bundle.manifest))
    with Site({**resources, **bundle_list(listed)}) as site, browser.open(site.url) as page:
        page.wait_for(READY)
        assert page.evaluate("[document.title, document.querySelector('#program').hidden]") == ["first", True]
        assert page.evaluate("document.querySelector('#bundle').checkVisibility()")
        page.evaluate("document.querySelector('#run').click()")
        page.wait_for("document.body.dataset.sample && !document.body.hasAttribute('aria-busy')")
        page.evaluate("(bundle.value = 1, bundle.dispatchEvent(new Event('change')))")
        page.wait_for("document.title === 'second' && " + READY)
        assert page.evaluate("[document.querySelector('#program').hidden, document.body.dataset.sample ?? null]") == [
            False, None
        ]  # fmt: skip
        assert 'load("bundles/second/"' in page.evaluate("document.querySelector('#code').textContent")
        assert page.messages == []
    for files in opened:
        files.close()


@contextmanager
def hosted(folder: Path) -> Iterator[str]:
    """Serve a folder as any server of files does, and yield its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("model", ["plan", "program"])
def test_a_page_that_compile_wrote_runs_where_it_is_hosted(browser, device, tmp_path, model):
    content = small_model() if model == "plan" else onnx.parser.parse_model(LOOPS)
    onnx.save(content, tmp_path / "m.onnx")
    arguments = ["compile", str(tmp_path / "m.onnx"), "--page", str(tmp_path / "public")]
    for shape in ["x=2x5x8"] if model == "plan" else ["x=3", "limit=", "k="]:
        arguments += ["--shape", shape]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    with hosted(tmp_path / "public") as url, browser.open(url) as page:
        page.wait_for("document.querySelector('#result').textContent === 'Ready'")
        page.evaluate("document.querySelector('#run').click()")
        page.wait_for("document.querySelector('#result').textContent.includes(': float32 [')")
        shown = page.evaluate("document.querySelector('#result').textContent").splitlines()
        assert {request.split("/")[2] for request in page.requests} == {page.evaluate("location.host")}
        assert page.messages == []
    with shaderloom.load_bundle(tmp_path / "public" / "m.shaderbundle", device=device) as session:
        shapes, ports = session.default_shapes(), session.bundle.manifest.inputs
        feeds = {port.name: np.zeros(shapes[port.name], dtypes.BY_NAME[port.dtype].numpy) for port in ports}
        names = [port.name for port in session.get_outputs()]
        for name, line, expected in zip(names, shown, session.run(names, feeds), strict=True):
            head, _, values = line.partition("] ")
            assert head == f"{name}: {expected.dtype} [{','.join(map(str, expected.shape))}"
            actual = [float(text) for text in values.split(", ") if text]
            np.testing.assert_allclose(actual, expected.ravel()[:8], rtol=1e-5)
