"""Hostile bundles with right digests in Chromium: a result, or an error of the runner, never another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..support.bundles import change_manifest, copy_bundle, files_of, seal, small_bundle, write_manifest
from ..support.hostile import Seed, put
from .chromium import Page

#: What the runner says to loading a bundle and running it
OUTCOME = """async () => {
  const { load, ShaderloomError } = await import("/shaderloom.js");
  try {
    const session = await load("/bundle/");
    const feeds = { x: new Float32Array(2 * 5 * 8), bias: new Float32Array(8) };
    await session.run(feeds);
    for (const [index] of session.manifest.samples.entries()) await session.sample(index);
    return "ran";
  } catch (error) {
    return error instanceof ShaderloomError ? `${error.kind}: ${error.message}` : `foreign: ${error.stack}`;
  }
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """One plan, for GPUs and software adapters alike, so that a change of it is what the browser reads."""
    return small_bundle(tmp_path_factory.mktemp("hostile") / "b", 5, target="web-software")


def outcome(page: Page) -> str:
    return page.call(OUTCOME)


def test_the_bundle_itself_runs(open_bundle, folder):
    assert outcome(open_bundle(folder)) == "ran"


def test_weights_take_no_memory_before_they_come(open_bundle, folder, tmp_path):
    """Nineteen gigabytes that a manifest announces, in hashes that fit, are refused by their number."""
    path = copy_bundle(folder, tmp_path / "b")
    manifest = json.loads((path / "manifest.json").read_bytes())
    size = 19 << 30
    manifest["files"]["weights-00002.safetensors"] = {"size": size, "sha256": ["0" * 64] * (size // (4 << 20))}
    part = {"file": "weights-00002.safetensors", "offset": 0, "length": size}
    manifest["weights"]["0" * 64] = {"bytes": size, "parts": [part]}
    write_manifest(path, manifest)
    assert "maxWeightBytes is 8589934592" in outcome(open_bundle(path))


def test_names_of_prototypes_are_names(open_bundle, folder, tmp_path):
    """An output ``__proto__`` and an input ``constructor`` are there like all others."""
    path = copy_bundle(folder, tmp_path / "b")
    text = {file: file.read_text() for file in (path / "manifest.json", *path.glob("plan-*.json"))}
    for file, content in text.items():
        content = content.replace('"bias"', '"constructor"').replace("input:bias", "input:constructor")
        file.write_text(content.replace('"name": "y"', '"name": "__proto__"').replace("output:y", "output:__proto__"))
    change_manifest(path)
    seal(path)
    found = open_bundle(path).call(
        """async () => {
          const { load } = await import("/shaderloom.js");
          const session = await load("/bundle/");
          const found = await session.run({ x: new Float32Array(80), ["constructor"]: new Float32Array(8) });
          return [Object.keys(found).sort(), Object.getOwnPropertyDescriptor(found, "__proto__").value.dims];
        }"""
    )
    assert found == [["__proto__", "same", "shape", "table", "two"], [2, 5, 8]]


def test_samples_that_are_none(open_bundle, tmp_path):
    path = small_bundle(tmp_path / "b", 5, target="web-software", sample=True)
    (sample,) = (path / "samples").iterdir()
    for content in (b"", b"\xff" * 8, b"\x02" + bytes(7) + b"[]", (20).to_bytes(8, "little") + b'{"x":{"dtype":"Q"} }'):
        sample.write_bytes(content)
        seal(path)
        told = outcome(open_bundle(path))
        assert told == "ran" or told.startswith("bundle: "), told


#: Whether a page has made a shader or a buffer when it refuses the bundle, and what it says
MADE = """async () => {
  const made = [];
  for (const method of ["createBuffer", "createShaderModule"]) {
    GPUDevice.prototype[method] = () => { made.push(method); throw new Error(method); };
  }
  const { load } = await import("/shaderloom.js");
  const refusal = await load("/bundle/").then(() => "none", (error) => `${error.kind}: ${error.message}`);
  return { made, refusal };
}"""


@pytest.mark.parametrize(
    ("field", "value", "refusal"),
    [
        ("arenas", [1 << 40], "a buffer of the device may have"),
        ("arenas", [1 << 28] * 300, "maxDeviceBytes is"),
        ("outputs", ["batch", "n", 1 << 38], "'y' has"),
    ],
)
def test_absurd_memory_is_refused_before_anything_is_made(open_bundle, tmp_path, field, value, refusal):
    path = small_bundle(tmp_path / "b", 5, target="web-software", dynamic={"n": (1, 64), "batch": (2, 8, 2)})
    seed = Seed.of(path)
    place = ("outputs", 0, "shape") if field == "outputs" else (field,)
    files = seed.sealed(files_of(path), *seed.changed("plan", put(value, *place)).files())
    for name, content in files.items():
        (path / name).write_bytes(content)
    answer = open_bundle(path).call(MADE)
    assert answer["made"] == []
    assert answer["refusal"].startswith("device: ") and refusal in answer["refusal"]
