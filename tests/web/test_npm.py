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
from ..support.patience import PATIENCE
from ..support.signing import key_pair
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
        assert len(gzip.compress((package / name).read_bytes(), 9)) <= 30_000
        sources = json.loads((package / f"{name}.map").read_text())["sources"]
        assert any(source.endswith("runtime/web/shaderloom/session.js") for source in sources)
    entry = package / "modules" / "shaderloom.js"
    at_once, all_of_them = imported(entry, at_once=True), imported(entry)
    assert at_once < all_of_them < set((package / "modules").rglob("*.js"))
    assert sum(path.stat().st_size for path in at_once) <= 96_500
    assert sum(path.stat().st_size for path in all_of_them) <= 130_000


def imported(entry: Path, *, at_once: bool = False) -> set[Path]:
    """A module, those that it imports, and those that these import; without ``at_once`` also later ones and workers."""
    names = re.compile(r'^(?:import|export) .*"(\..+\.js)";$' if at_once else r'"(\.{1,2}/.+?\.js)"', re.MULTILINE)
    found, waiting = set[Path](), [entry]
    while waiting:
        found.add(path := waiting.pop())
        waiting += {(path.parent / name).resolve() for name in names.findall(path.read_text())} - found
    return found


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
    place = "modules/shaderloom/" if form.startswith("modules") else ""
    assert workers == [[f"/package/{place}checking_worker.js", {}]]
    if not form.startswith("modules"):
        assert scripts == {
            f"/package/shaderloom.{form.removeprefix('shaderloom.').removesuffix('.js')}.js",
            "/values.js",
        }


def vite_project(folder: Path, package: Path) -> None:
    """Copy Vite's example into a folder, with the package installed."""
    shutil.copytree(ROOT / "examples" / "web_vite", folder, dirs_exist_ok=True)
    (folder / "node_modules" / "@shaderloom").mkdir(parents=True)
    (folder / "node_modules" / "@shaderloom" / "runtime").symlink_to(package)


def vite_build(project: Path) -> Path:
    """Build a project, and return the folder of what a server hosts."""
    subprocess.run([TOOLS / ".bin" / "vite", "build", "--logLevel", "error"], cwd=project, check=True)
    return project / "dist"


def test_a_page_of_vite_is_built_and_runs(browser: Chromium, package: Path, bundle: Path, tmp_path: Path):
    vite_project(tmp_path, package)
    shutil.copytree(bundle, tmp_path / "public" / "model.shaderbundle")
    built = vite_build(tmp_path)
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


#: What a page in TypeScript writes
TYPED = """
import { load, ShaderloomError, evaluate, type Progress, type Session } from "@shaderloom/runtime";
import { loadGenerator } from "@shaderloom/runtime/generate";

const onProgress = ({ what, done, total }: Progress) => console.log(what, done / total);
const session: Session = await load("/b/", { onProgress, signal: AbortSignal.timeout(5), cache: true });
const { y } = await session.run({ x: new Float32Array(3) });
const first: number | bigint = y.data[0];
const elements: ArrayLike<number | bigint> = y.data;
const onDevice = await session.run({ x: new Float32Array(3) }, { location: "gpu" });
const buffer: GPUBuffer = onDevice.y.buffer;
const views = await session.run({ x: { data: buffer, dims: [3] } }, { location: "view", outputs: ["y"] });
views.y.release();
await session.run({ x: onDevice.y }, { into: { y: buffer }, inPlace: true, location: { z: "gpu" } });
for (const { label, microseconds } of await session.profile({})) console.log(label, microseconds / 1000);
await session.recover();
session.dispose();
const size: number = evaluate(["+", "n", 1], { n: 2 });
const generator = await loadGenerator("/b/").catch((error) => error instanceof ShaderloomError && error.kind);
// @ts-expect-error there is no such location
await session.run({}, { location: "moon" });
export { elements, first, generator, size };
"""


@pytest.mark.parametrize("resolution", ["bundler", "nodenext"])
def test_the_types_serve_a_page(package: Path, tmp_path: Path, resolution: str):
    (tmp_path / "node_modules" / "@shaderloom").mkdir(parents=True)
    (tmp_path / "node_modules" / "@shaderloom" / "runtime").symlink_to(package)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "page.ts").write_text(TYPED)
    module = "esnext" if resolution == "bundler" else resolution
    options = ["--noEmit", "--strict", "--target", "es2022", "--module", module, "--moduleResolution", resolution]
    done = subprocess.run([TOOLS / ".bin" / "tsc", *options, "page.ts"], cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout


#: Uses what the API has, and names what is not as it should be; runs in pages and in Node.js
TOUR = """
export async function tour(load, source, verifyKey) {
  const wrong = [];
  const check = (name, condition) => { if (!condition) wrong.push(name); };
  const told = (promise) => promise.then(() => "no error", (error) => error?.kind ?? error);
  const progress = new Set();
  const session = await load(source, { verifyKey, onProgress: ({ what }) => progress.add(what), maxRunSeconds: 60 });
  check("progress", ["bundle", "device", "weights", "pipelines"].every((what) => progress.has(what)));
  check("ports", session.inputs.length === 1 && session.outputs.length > 1 && session.shapes.length === 1);
  const { inputs, outputs: expected, tolerance } = await session.sample();
  const close = (one, two) => one.length === two.length && Array.from(one).every((value, at) =>
    Math.abs(Number(value) - Number(two[at])) <= tolerance * Math.max(1, Math.abs(Number(value))));
  const whole = await session.run(inputs);
  for (const [name, { data }] of Object.entries(expected)) check(`output ${name}`, close(whole[name].data, data));
  const { y } = whole;
  const views = await session.run(inputs, { outputs: ["y"], location: "view" });
  check("view", Object.keys(views).length === 1 && close(views.y.data, y.data));
  views.y.release();
  check("released", views.y.data.length === 0);
  const size = Math.ceil(y.data.byteLength / 16) * 16;
  const { STORAGE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
  const target = session.device.createBuffer({ size, usage: STORAGE | COPY_SRC });
  const mixed = await session.run(inputs, { outputs: ["y", "same"], location: { same: "gpu" }, into: { y: target } });
  check("into", mixed.y.buffer === target && mixed.same.buffer instanceof GPUBuffer);
  const staging = session.device.createBuffer({ size, usage: MAP_READ | COPY_DST });
  const encoder = session.device.createCommandEncoder();
  encoder.copyBufferToBuffer(target, 0, staging, 0, size);
  session.device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  check("written", close(new Float32Array(staging.getMappedRange(), 0, y.data.length), y.data));
  const [[input, { data, dims }]] = Object.entries(inputs);
  const usage = STORAGE | COPY_SRC | COPY_DST;
  const fed = session.device.createBuffer({ size: Math.ceil(data.byteLength / 16) * 16, usage });
  session.device.queue.writeBuffer(fed, 0, data);
  check("fed", close((await session.run({ [input]: { data: fed, dims } })).y.data, y.data));
  check("aborted", await told(session.run(inputs, { signal: AbortSignal.abort("no") })) === "no");
  check("refused", await told(session.run({ none: data })) === "input");
  const other = await load(source, { verifyKey, device: session.device });
  const both = await Promise.all([other.run(inputs), session.run(inputs)]);
  check("two sessions", other.device === session.device && both.every((each) => close(each.y.data, y.data)));
  other.dispose();
  check("one is left", close((await session.run(inputs)).y.data, y.data));
  check("kernels", (await session.prepare()).every(({ kernels }) => kernels.length > 0));
  if (session.device.features.has("timestamp-query")) {
    check("profile", (await session.profile(inputs)).every(({ microseconds }) => microseconds >= 0));
  } else check("no profile", await told(session.profile(inputs)) === "device");
  session.device.destroy();
  await session.lost;
  check("lost", await told(session.run(inputs)) === "device");
  await session.recover();
  check("recovered", close((await session.run(inputs)).y.data, y.data));
  session.dispose();
  check("closed", await told(session.run(inputs)) === "closed");
  check("aborted load", await told(load(source, { signal: AbortSignal.abort("never") })) === "never");
  check("another key", await told(load(source, { verifyKey: "none" })) === "input");
  return wrong;
}

/** Return the elements left of what a worker was sent, and those of what it gave back, or its error. */
export async function moved(worker) {
  const x = new Float32Array(48).fill(1);
  worker.postMessage({ x: { data: x, dims: [2, 3, 8] } }, [x.buffer]);
  const y = await new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = ({ message }) => reject(new Error(message));
  });
  worker.terminate();
  return y instanceof Error ? String(y) : [x.length, y.length];
}
"""

#: A worker that gives back what it is sent, computed
WORKER = """
const loaded = (FORM).then(({ load }) => load("/bundle/"));
onmessage = async ({ data }) => {
  try {
    const { y } = await (await loaded).run(data);
    postMessage(y.data, [y.data.buffer]);
  } catch (error) {
    postMessage(error);
  }
};
"""


@pytest.fixture(scope="module")
def signed(tmp_path_factory) -> tuple[Path, str]:
    """A signed zip with a sample, and the key that it is verified with."""
    folder = tmp_path_factory.mktemp("signed")
    private, public = key_pair(folder, 1)
    path = folder / "b.zip"
    shapes = [{"x": (2, 3, 8)}]
    compile_bundle(small_model(bias=False), path, shapes=shapes, sample=True, as_zip=True, sign_key=private)
    return path, public.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["modules/shaderloom.js", "shaderloom.min.js", "shaderloom.global.js"])
def test_each_form_has_the_whole_api(
    browser: Chromium, package: Path, bundle: Path, signed: tuple[Path, str], form: str
):
    """With a signed zip as a Blob; and in a worker, which transfers its output."""
    path, key = signed
    is_global = form == "shaderloom.global.js"
    module = f'import("/package/{form}")'
    imported = f'importScripts("/package/{form}"); ' if is_global else ""
    worker = imported + WORKER.replace("FORM", "Promise.resolve(shaderloom)" if is_global else module)
    script = f"<script src='/package/{form}'></script>" if is_global else ""
    resources = {
        **text_resource("page.html", f"<!doctype html><link rel=icon href='data:,'>{script}"),
        **text_resource("tour.js", TOUR),
        **text_resource("worker.js", worker),
        **resources_of(package, "/package/"),
        **resources_of(bundle, "/bundle/"),
        "/b.zip": Resource("application/zip", path.read_bytes),
    }
    load = "globalThis.shaderloom" if is_global else module
    with Site(resources) as site, browser.open(site.url + "page.html") as page:
        wrong, moved = page.call(
            f"""async (key) => {{
              const [{{ load }}, {{ tour, moved }}] = [await {load}, await import("/tour.js")];
              const wrong = await tour(load, await (await fetch("/b.zip")).blob(), key);
              const worker = new Worker("/worker.js", {{ type: "{"classic" if is_global else "module"}" }});
              return [wrong, await moved(worker)];
            }}""",
            key,
        )
    assert wrong == []
    assert moved == [0, 48]


#: Gives the page of Vite's example what the other forms are tried with
BUILT = """
import { load } from "@shaderloom/runtime";
import { moved, tour } from "./tour.js";

globalThis.attempt = async (key) => {
  const wrong = await tour(load, await (await fetch("/b.zip")).blob(), key);
  return [wrong, await moved(new Worker(new URL("./worker.js", import.meta.url), { type: "module" }))];
};
"""


@pytest.mark.slow
def test_what_vite_builds_has_the_whole_api(
    browser: Chromium, package: Path, bundle: Path, signed: tuple[Path, str], tmp_path: Path
):
    """The same, whose modules and workers the bundler has in files of its own; the example's settings are enough."""
    vite_project(tmp_path, package)
    path, key = signed
    (tmp_path / "main.js").write_text(BUILT)
    (tmp_path / "tour.js").write_text(TOUR)
    (tmp_path / "worker.js").write_text(WORKER.replace("FORM", 'import("@shaderloom/runtime")'))
    built = {**resources_of(vite_build(tmp_path), "/"), **resources_of(bundle, "/bundle/")}
    with (
        Site({**built, "/b.zip": Resource("application/zip", path.read_bytes)}) as site,
        browser.open(site.url) as page,
    ):
        page.wait_for("globalThis.attempt")
        wrong, sizes = page.call("attempt", key)
    assert wrong == []
    assert sizes == [0, 48]


NODE = """
import { openAsBlob } from "node:fs";
import { load } from "@shaderloom/runtime";
import { create, globals } from "webgpu";
import { tour } from "./tour.mjs";

Object.assign(globalThis, globals);
Object.defineProperty(globalThis, "navigator", { value: { gpu: create([]) }, configurable: true });
console.log(JSON.stringify(await tour(load, await openAsBlob(process.argv[2]), process.argv[3])));
"""


@pytest.mark.slow
def test_node_has_the_whole_api(package: Path, signed: tuple[Path, str], tmp_path: Path):
    """Each output is as the sample says, on SwiftShader; the process ends by itself."""
    if not SWIFTSHADER.is_file():
        pytest.skip("SwiftShader, which Chromium brings, is not installed")
    path, key = signed
    (tmp_path / "node_modules" / "@shaderloom").mkdir(parents=True)
    (tmp_path / "node_modules" / "@shaderloom" / "runtime").symlink_to(package)
    for name in ("webgpu", "@webgpu", "debug", "ms"):
        (tmp_path / "node_modules" / name).symlink_to(TOOLS / name)
    (tmp_path / "run.mjs").write_text(NODE)
    (tmp_path / "tour.mjs").write_text(TOUR)
    driver = {name: str(SWIFTSHADER) for name in ("VK_ICD_FILENAMES", "VK_DRIVER_FILES")}
    command = ["node", tmp_path / "run.mjs", path, key]
    done = subprocess.run(command, env={**os.environ, **driver}, text=True, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
