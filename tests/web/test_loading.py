"""shaderloom.js: bundles that load, in parts and until they are cancelled, and those that are refused.

Covers: runtime/web/shaderloom.js.
"""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np
import onnx.parser
import pytest

from shaderloom.bundles.compile import compile_bundle
from shaderloom.runtime.bundle.format import CHUNK
from shaderloom.runtime.bundle.writer import BundleWriter

from ..support.bundles import change_manifest, copy_bundle, seal
from .chromium import Page
from .sessions import SETUP


def refusal(page: Page) -> str:
    page.evaluate(SETUP)
    return page.evaluate(
        "open().then((session) => session.prepare())"
        ".then(() => 'accepted', ({ kind, message }) => `${kind}: ${message}`)"
    )


def test_an_intact_bundle_is_accepted(open_bundle, static_bundle):
    assert refusal(open_bundle(static_bundle)) == "accepted"


@pytest.mark.parametrize("kind", ["manifest.json", "manifest.sha256", "plan-", "shaders/", "weights-"])
def test_a_flipped_bit_is_found(open_bundle, static_bundle, tmp_path, kind):
    folder = copy_bundle(static_bundle, tmp_path / "b")
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    name = next(name for name in names if name.startswith(kind))
    data = bytearray((folder / name).read_bytes())
    data[-2] ^= 1
    (folder / name).write_bytes(data)
    told = "manifest.json" if kind.startswith("manifest") else name
    assert refusal(open_bundle(folder)) == f"bundle: '{told}' is damaged: its hash differs from the bundle's"


def test_files_of_other_sizes_are_refused(open_bundle, static_bundle, tmp_path):
    for change, told in (("shorter", "ends after"), ("longer", "is longer than"), ("missing", "status 404")):
        folder = copy_bundle(static_bundle, tmp_path / change)
        path = folder / "weights-00001.safetensors"
        data = path.read_bytes()
        if change == "missing":
            path.unlink()
        else:
            path.write_bytes(data[:-1] if change == "shorter" else data + b"\0")
        assert told in refusal(open_bundle(folder))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"format": "2.1"}, "bundle: 'manifest.json': format is version 2.1; this runner reads 3.x"),
        ({"format": "3.7"}, "accepted"),
        ({"features": ["shader-moon"]}, "device: this GPU lacks what the bundle needs: the feature shader-moon"),
        ({"limits": {"maxBufferSize": 1 << 50}}, "device: this GPU lacks what the bundle needs: maxBufferSize"),
        ({"limits": {"maxMoons": 1}}, "device: this GPU lacks what the bundle needs: maxMoons of 1"),
    ],
)
def test_what_the_manifest_asks_for(open_bundle, static_bundle, tmp_path, fields, told):
    folder = copy_bundle(static_bundle, tmp_path / "b")
    change_manifest(folder, **fields)
    assert refusal(open_bundle(folder)).startswith(told)


def test_a_command_of_an_unknown_kind_is_refused(open_bundle, static_bundle, tmp_path):
    folder = copy_bundle(static_bundle, tmp_path / "b")
    path = next(folder.glob("plan-*.json"))
    plan = json.loads(path.read_bytes())
    plan["commands"][0]["kind"] = "host"
    path.write_text(json.dumps(plan))
    seal(folder)
    assert refusal(open_bundle(folder)) == f"bundle: '{path.name}': commands[0].kind is none of device, repeat"


def test_a_shader_that_the_browser_refuses_is_named(open_bundle, static_bundle, tmp_path):
    folder = copy_bundle(static_bundle, tmp_path / "b")
    shader = next((folder / "shaders").iterdir())
    shader.write_text(shader.read_text() + "\nfn broken( {")
    seal(folder)
    told = refusal(open_bundle(folder))
    assert told.startswith(f"device: kernel {shader.name[:12]} (")
    assert "was refused: line" in told


def test_weights_larger_than_a_chunk_and_in_parts(open_bundle, tmp_path, monkeypatch):
    """11 MB of weights in files of at most 6 MB: parts begin and end within chunks."""
    original = BundleWriter.__init__

    def small_files(self, target, **options):
        original(self, target, **{**options, "weights_file_bytes": 6_000_000})

    monkeypatch.setattr(BundleWriter, "__init__", small_files)
    table = np.random.default_rng(0).standard_normal((2_750_000,)).astype(np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[2750000] y) { y = Add(x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "w"))
    compile_bundle(model, tmp_path / "b")
    files = sorted(path.stat().st_size for path in (tmp_path / "b").glob("weights-*"))
    assert len(files) > 1
    assert files[-1] > CHUNK
    page = open_bundle(tmp_path / "b")
    page.evaluate(SETUP)
    found = page.call("""async () => {
      const seen = [];
      const onProgress = ({ what, done, total }) => { if (what === "weights") seen.push([done, total]); };
      const session = await open({ onProgress });
      const { y } = await session.run({ x: new Float32Array([0]) });
      const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", y.data));
      return { seen, digest: Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("") };
    }""")
    assert found["digest"] == hashlib.sha256(table.tobytes()).hexdigest()
    assert found["seen"][0][0] == 0
    assert found["seen"][-1] == [11_000_000, 11_000_000]
    assert len(found["seen"]) >= 4


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("undefined", "input: a bundle is an address, a Blob, or a list of files or responses"),
        ("'http://['", "input: 'http://[' is no address"),
        ("'/bundle/', { signal: 5000 }", "input: signal is no AbortSignal"),
        ("'/bundle/', { device: navigator.gpu.requestAdapter() }", "input: device is no GPUDevice"),
        ("'/bundle/', { maxWeightBytes: '1GiB' }", "maxWeightBytes is 1GiB"),
        ("'/bundle/', { maxDeviceBytes: NaN }", "maxDeviceBytes is NaN"),
    ],
)
def test_arguments_of_other_types_are_refused(open_bundle, static_bundle, arguments, told):
    page = open_bundle(static_bundle)
    found = page.evaluate(
        """(async () => {
          const rejected = [];
          addEventListener("unhandledrejection", ({ reason }) => rejected.push(String(reason)));
          const { load } = await import("/shaderloom.js");
          const found = await load(ARGUMENTS).then(() => "loaded", ({ kind, message }) => `${kind}: ${message}`);
          await new Promise((resolve) => setTimeout(resolve));
          return [found, rejected];
        })()""".replace("ARGUMENTS", arguments)
    )
    assert told in found[0]
    assert found[1] == []


def test_a_load_can_be_cancelled(open_bundle, static_bundle):
    """At any time: it ends at once with the reason, frees its device, and reports nothing more."""
    page = open_bundle(static_bundle)
    found = page.call("""async () => {
      const { load } = await import("/shaderloom.js");
      const devices = [];
      const request = GPUAdapter.prototype.requestDevice;
      GPUAdapter.prototype.requestDevice = async function (...options) {
        devices.push(await request.apply(this, options));
        return devices.at(-1);
      };
      const results = {};
      for (const stop of ["before", "bundle", "device", "weights", "pipelines", "never"]) {
        const controller = new AbortController();
        const seen = [];
        const onProgress = ({ what, done, total, awaits }) => {
          seen.push({ what, done, total, awaits });
          if (what === stop && (what !== "pipelines" || done === 1)) controller.abort(stop);
        };
        if (stop === "before") controller.abort(stop);
        const ended = await load("/bundle/", { prepare: true, onProgress, signal: controller.signal })
          .then((session) => { session.dispose(); return "loaded"; }, (reason) => reason);
        results[stop] = { ended, seen };
      }
      const lost = await Promise.all(devices.map((device) => device.lost.then(({ reason }) => reason)));
      return { results, lost };
    }""")
    results = found["results"]
    assert {stop: result["ended"] for stop, result in results.items()} == {
        **{stop: stop for stop in results}, "never": "loaded"
    }  # fmt: skip
    assert results["before"]["seen"] == []
    for stop in ("bundle", "device", "weights"):
        assert results[stop]["seen"][-1]["what"] == stop
    assert set(found["lost"]) == {"destroyed"}
    assert len(found["lost"]) == 3, "of the last three loads"
    whole = results["never"]["seen"]
    assert [step["awaits"] for step in whole if step["what"] in ("bundle", "device")] == [
        "manifest.json",
        "the GPU device",
    ]
    pipelines = [step for step in whole if step["what"] == "pipelines"]
    assert [step["done"] for step in pipelines] == list(range(pipelines[0]["total"] + 1))
    assert all(re.fullmatch(r"kernel [0-9a-f]{12} \(\w+\)", step["awaits"]) for step in pipelines[:-1])
    assert pipelines[-1]["awaits"] == ""


def test_browsers_without_webgpu_are_told(open_bundle, static_bundle):
    page = open_bundle(static_bundle)
    page.evaluate("Object.defineProperty(navigator, 'gpu', { value: undefined })")
    assert refusal(page).startswith("device: this browser offers no WebGPU")
