"""The page that ``serve`` shows as code and ``compile --page`` writes, without a browser.

Covers: shaderloom/serve/starter_page, shaderloom/serve/standalone.
"""

from __future__ import annotations

import json
from dataclasses import replace

import onnx
import pytest
from typer.testing import CliRunner

from shaderloom.cli import app
from shaderloom.runtime.bundle.reader import Bundle
from shaderloom.serve.starter_page import starter_page

from ...support.bundles import cache_bundle, small_bundle, small_model


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    path = cache_bundle(tmp_path_factory.mktemp("cache") / "b", dynamic={"batch": (0, 8, 2)})
    with Bundle(path) as bundle:
        return bundle.manifest


def test_a_page_feeds_every_input(manifest):
    page = starter_page(manifest, "cache", "cache/")
    assert "past: { data: new Float32Array(2 * 6 * 4), dims: [2, 6, 4] }" in page.replace('"past"', "past")
    assert '"place": { data: new BigInt64Array(2), dims: [2] }' in page
    assert len(page.splitlines()) == 21 + 3, "and a line for each input"


def test_names_are_texts_in_the_page(manifest):
    hostile = '</script><script>alert("1")'
    ports = tuple(replace(port, name=hostile) if port.name == "row" else port for port in manifest.inputs)
    (plan,) = manifest.plans
    shapes = {hostile if name == "row" else name: dims for name, dims in plan.shapes.items()}
    page = starter_page(replace(manifest, inputs=ports, plans=(replace(plan, shapes=shapes),)), hostile, hostile)
    assert page.count("<script") == page.count("</script") == 1
    assert "&lt;/script&gt;" in page


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "small.onnx"
    onnx.save(small_model(), path)
    return path


def compiled(*arguments: object):
    return CliRunner().invoke(app, ["compile", *map(str, arguments), "--shape", "x=2x5x8"])


def test_the_command_writes_a_folder_to_host(model, tmp_path):
    folder = tmp_path / "public"
    result = compiled(model, "--page", folder)
    assert result.exit_code == 0, result.stderr
    assert sorted(path.name for path in folder.iterdir()) == [
        "generate.d.ts", "generate.js", "index.html", "shaderloom", "shaderloom.d.ts", "shaderloom.js",
        "small.shaderbundle",
    ]  # fmt: skip
    page = (folder / "index.html").read_text()
    assert 'load("small.shaderbundle/"' in page
    with Bundle(folder / "small.shaderbundle") as bundle:
        bundle.check_all()

    (folder / "index.html").write_text("mine")
    result = compiled(model, "--page", folder, "--json")
    assert json.loads(result.stdout)["page"] == str(folder / "index.html")
    assert (folder / "index.html").read_text() == "mine"


def test_places_that_do_not_fit_are_refused(model, tmp_path):
    folder = tmp_path / "public"
    for arguments, reason in (
        ((), "the bundle needs a place"),
        (("--page", folder, "-o", folder), "each say where the bundle goes"),
        (("--page", folder, "--zip"), "reads a bundle that is a folder"),
    ):
        result = compiled(model, *arguments)
        assert result.exit_code == 1
        assert reason in result.stderr.replace("\n", " ")
    assert not folder.exists()
    small_bundle(tmp_path / "b", 5)
    (tmp_path / "file").write_text("")
    assert compiled(model, "--page", tmp_path / "file").exit_code == 1
