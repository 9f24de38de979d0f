"""The runner as one file, as ``./dev web-build`` makes it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shaderloom.bundles.compile import compile_bundle
from shaderloom.runtime.bundle.files import open_files
from shaderloom.serve.files import bundle_resources, folder_resources, page_resources
from shaderloom.serve.site import Site

from ..support.bundles import small_model
from .chromium import Chromium
from .conftest import EMPTY

ROOT = Path(__file__).resolve().parents[2]

RUN = """async (name) => {
  const { load } = await import(`/${name}`);
  const { compare } = await import("/values.js");
  const session = await load("/bundle/");
  const { inputs, outputs, tolerance } = await session.sample();
  const results = await session.run(inputs);
  session.dispose();
  return Object.entries(outputs).map(([output, expected]) => compare(results[output], expected, tolerance).agrees);
}"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the built files."""
    if not (ROOT / "build" / "node" / "installed").is_file():
        pytest.skip("./dev web-build has not installed its tools")
    folder = tmp_path_factory.mktemp("built")
    subprocess.run([ROOT / "dev", "web-build", folder], check=True)
    return folder


@pytest.mark.parametrize("name", ["shaderloom.js", "shaderloom.min.js"])
def test_one_file_runs_a_bundle(browser: Chromium, built: Path, tmp_path: Path, name: str):
    compile_bundle(small_model(bias=False), tmp_path / "b", shapes=[{"x": (2, 3, 8)}], sample=True)
    files = open_files(tmp_path / "b")
    resources = {**EMPTY, **page_resources(), **folder_resources(built), **bundle_resources(files, "/bundle/")}
    with Site(resources) as site, browser.open(site.url + "empty.html") as page:
        agree = page.call(RUN, name)
        scripts = {path for path in (urlsplit(url).path for url in page.requests) if path.endswith(".js")}
    files.close()
    assert agree and all(agree)
    assert scripts == {f"/{name}", "/values.js"}
