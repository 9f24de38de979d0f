"""The npm package of the runner, as ``./dev npm`` builds it: in pages, behind a bundler, and in Node.js.

Covers: tools/npm.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shaderloom.bundles.compile import compile_bundle
from shaderloom.serve.files import content_type, page_resources, text_resource
from shaderloom.serve.site import Resource, Site
from shaderloom.version import __version__

from ..support.bundles import enlarge_plans, small_model
from .chromium import Chromium

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "build" / "node" / "node_modules"
SWIFTSHADER = Path("/usr/lib/chromium/vk_swiftshader_icd.json")

RUN = """async (form) => {
  const { load } = form === "global" ? globalThis.shaderloom : await import(`/package/${form}`);
  const { compare } = await import("/values.js");
  const workers = [];
  globalThis.Worker = class extends Worker {
    constructor(url, options) {
      super(url, options);
      this.addEventListener("message", ({ data }) => workers.push([new URL(url).pathname, data]));
    }
  };
  const session = await load("/bundle/");
  const { inputs, outputs, tolerance } = await session.sample();
  const results = await session.run(inputs);
  session.dispose();
  const agree = ([output, expected]) => compare(results[output], expected, tolerance).agrees;
  return [Object.entries(outputs).map(agree), workers];
}"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The folder of the built package."""
    if not (ROOT / "build" / "node" / "installed").is_file():
        pytest.skip("./dev npm has not installed its tools")
    folder = tmp_path_factory.mktemp("built") / "package"
    subprocess.run([ROOT / "dev", "npm", folder], check=True)
    return folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A bundle with a sample, and a plan that is large enough for a worker."""
    path = tmp_path_factory.mktemp("model") / "b"
    compile_bundle(small_model(bias=False), path, shapes=[{"x": (2, 3, 8)}], sample=True)
    enlarge_plans(path)
    return path


def resources_of(folder: Path, prefix: str) -> dict[str, Resource]:
    """The files of a folder and of those in it."""
    return {
        prefix + path.relative_to(folder).as_posix(): Resource(content_type(path.name), path.read_bytes)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_package_is_small(package: Path):
    for name in ("shaderloom.min.js", "shaderloom.global.js"):
        assert len(gzip.compress((package / name).read_bytes(), 9)) <= 35_000
        sources = json.loads((package / f"{name}.map").read_text())["sources"]
        assert any(source.endswith("runtime/web/shaderloom/session.js") for source in sources)
    at_once, waiting = set(), [package / "modules" / "shaderloom.js"]
    while waiting:
        at_once.add(path := waiting.pop())
        imports = re.findall(r'^(?:import |\} )(?:.* )?(?:from )?"(\./.+)";$', path.read_text(), re.MULTILINE)
        waiting += [path.parent / name for name in imports if path.parent / name not in at_once]
    assert len(at_once) > 1
    assert sum(path.stat().st_size for path in at_once) <= 120_000


def test_the_package_says_what_is_in_it(package: Path):
    described = json.loads((package / "package.json").read_text())
    assert described["version"] == __version__
    entries = [entry if isinstance(entry, str) else entry[kind]
               for entry in described["exports"].values() for kind in ("types", "default")]  # fmt: skip
    for name in {
        *entries,
        "README.md",
        "LICENSE",
        *re.findall(r"`([\w.]+\.\w+s)`", (package / "README.md").read_text()),
    }:
        assert (package / name).is_file(), name


@pytest.mark.parametrize("form", ["modules/shaderloom.js", "shaderloom.min.js", "global"])
def test_each_form_runs_a_bundle(browser: Chromium, package: Path, bundle: Path, form: str):
    script = "<!doctype html><link rel=icon href='data:,'><script src='/package/shaderloom.global.js'></script>"
    resources = {
        **page_resources(),
        **resources_of(package, "/package/"),
        **resources_of(bundle, "/bundle/"),
        **text_resource("page.html", script if form == "global" else script.partition("<script")[0]),
    }
    with Site(resources) as site, browser.open(site.url + "page.html") as page:
        agree, workers = page.call(RUN, form)
        scripts = {
            path
            for path in (urlsplit(url).path for url in page.requests)
            if path.endswith(".js") and "worker" not in path
        }
    assert agree
    assert all(agree)
    place = "modules/" if form.startswith("modules") else ""
    assert workers == [[f"/package/{place}checking_worker.js", {}]]
    if not form.startswith("modules"):
        assert scripts == {
            f"/package/shaderloom.{form.removeprefix('shaderloom.').removesuffix('.js')}.js",
            "/values.js",
        }


def test_a_page_of_vite_is_built_and_runs(browser: Chromium, package: Path, bundle: Path, tmp_path: Path):
    shutil.copytree(ROOT / "examples" / "web_vite", tmp_path, dirs_exist_ok=True)
    shutil.copytree(bundle, tmp_path / "public" / "model.shaderbundle")
    (tmp_path / "node_modules" / "@shaderloom").mkdir(parents=True)
    (tmp_path / "node_modules" / "@shaderloom" / "runtime").symlink_to(package)
    subprocess.run([TOOLS / ".bin" / "vite", "build", "--logLevel", "error"], cwd=tmp_path, check=True)
    built = tmp_path / "dist"
    assert len(list((built / "assets").glob("*.js"))) > 1, "what a page may never need is in files of its own"
    for worker in ("checking_worker", "hashing_worker"):
        assert list((built / "assets").glob(f"{worker}*.js"))
    files = resources_of(built, "/")
    with Site(files) as site, browser.open(site.url) as page:
        page.wait_for("document.querySelector('#log').textContent === 'ready'")
        page.evaluate("document.querySelector('#run').click()")
        page.wait_for("document.querySelector('#log').textContent.endsWith(' ms')")
        assert "float32 2x3" in page.evaluate("document.querySelector('#log').textContent")
        assert page.messages == []


NODE = """
import { openAsBlob } from "node:fs";
import { load } from "@shaderloom/runtime";
import { create, globals } from "webgpu";

Object.assign(globalThis, globals);
Object.defineProperty(globalThis, "navigator", { value: { gpu: create([]) }, configurable: true });
const session = await load(await openAsBlob(process.argv[2]));
const { inputs, outputs, tolerance } = await session.sample();
const results = await session.run(inputs);
for (const [name, { data }] of Object.entries(outputs)) {
  const worst = Math.max(...Array.from(data, (value, at) => Math.abs(Number(value) - Number(results[name].data[at]))));
  console.log(name, worst <= tolerance * Math.max(1, ...Array.from(data, (value) => Math.abs(Number(value)))));
}
session.dispose();
"""


def test_node_runs_a_bundle(package: Path, tmp_path: Path):
    if not SWIFTSHADER.is_file():
        pytest.skip("SwiftShader, which Chromium brings, is not installed")
    path = tmp_path / "b.zip"
    compile_bundle(small_model(bias=False), path, shapes=[{"x": (2, 3, 8)}], sample=True, as_zip=True)
    (tmp_path / "node_modules" / "@shaderloom").mkdir(parents=True)
    (tmp_path / "node_modules" / "@shaderloom" / "runtime").symlink_to(package)
    for name in ("webgpu", "@webgpu", "debug", "ms"):
        (tmp_path / "node_modules" / name).symlink_to(TOOLS / name)
    (tmp_path / "run.mjs").write_text(NODE)
    driver = {name: str(SWIFTSHADER) for name in ("VK_ICD_FILENAMES", "VK_DRIVER_FILES")}
    done = subprocess.run(
        ["node", tmp_path / "run.mjs", path], env={**os.environ, **driver}, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    outputs = [output.name for output in small_model(bias=False).graph.output]
    assert sorted(done.stdout.split()) == sorted([*outputs, *["true"] * len(outputs)])
