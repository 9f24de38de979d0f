"""shaderloom.js: bundles that a page has as a zip, as files or as responses.

Covers: runtime/web/shaderloom/blobs.js, runtime/web/shaderloom/files.js.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from shaderloom.runtime.bundle.reader import Bundle
from shaderloom.runtime.bundle.zip import order, write_zip
from shaderloom.runtime.plan.errors import BundleError
from shaderloom.serve.files import runner_resources, text_resource
from shaderloom.serve.site import Resource, Site

from ..support.bundles import feeds, files_of
from .chromium import Chromium, Page
from .conftest import EMPTY

#: Opens what ``source`` gives, and runs it
RUN = """
globalThis.attempt = async (source, values) => {
  const { load, ShaderloomError } = await import("/shaderloom.js");
  try {
    const session = await load(await source());
    const { same } = await session.run({ x: new Float32Array(values) }, { outputs: ["same"] });
    session.dispose();
    return Array.from(same.data);
  } catch (error) {
    return error instanceof ShaderloomError ? `${error.kind}: ${error.message}` : String(error.stack);
  }
};
globalThis.bytes = async (name) => (await fetch(`/bundle/${name}`)).blob();
"""


@pytest.fixture(scope="module")
def page(browser: Chromium, static_bundle: Path, tmp_path_factory: pytest.TempPathFactory):
    """A page beside the bundle, in a folder and as a zip."""
    contents = files_of(static_bundle)
    zipped = tmp_path_factory.mktemp("zip") / "b.zip"
    with zipped.open("wb") as file:
        write_zip(file, static_bundle, list(contents))
    files = {f"/bundle/{name}": content for name, content in contents.items()} | {"/b.zip": zipped.read_bytes()}
    for name, members in {"more": {**contents, "moon.txt": b""}, "mixed": contents}.items():
        files[f"/{name}.zip"] = other_zip(tmp_path_factory.mktemp(name), members, reverse=name == "mixed")
    served = {path: Resource("application/octet-stream", lambda data=data: data) for path, data in files.items()}
    names = text_resource("names.json", json.dumps(list(contents)))
    with (
        Site({**EMPTY, **runner_resources(), **served, **names}) as site,
        browser.open(site.url + "empty.html") as opened,
    ):
        opened.evaluate(RUN)
        yield opened


def other_zip(folder: Path, members: Mapping[str, bytes], reverse: bool) -> bytes:
    """A zip with canonical entries, in reverse order if wanted, which the Python reader refuses, too."""
    for name, content in members.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    names = order(list(members))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shaderloom.runtime.bundle.zip.order", lambda names: list(names))
        with (folder.parent / f"{folder.name}.zip").open("wb") as file:
            write_zip(file, folder, names[::-1] if reverse else names)
    with pytest.raises(BundleError):
        Bundle(Path(file.name))
    return Path(file.name).read_bytes()


def outcome(page: Page, source: str) -> str | list[float]:
    return page.call(f"(values) => attempt(async () => {{ {source} }}, values)", values())


def values() -> list[float]:
    return feeds(5, bias=False)["x"].ravel().tolist()


@pytest.mark.parametrize(
    "source",
    [
        "return (await fetch('/b.zip')).blob();",
        "return new File([await (await fetch('/b.zip')).blob()], 'model.zip');",
        """const names = await (await fetch("/names.json")).json();
           return Promise.all(names.reverse().map(async (name) => new File([await bytes(name)], name)));""",
        """const names = await (await fetch("/names.json")).json();
           return Promise.all(names.map(async (name) => Object.defineProperty(
             new File([await bytes(name)], name), "webkitRelativePath", { value: `picked/${name}` })));""",
        """const names = await (await fetch("/names.json")).json();
           const urls = ["/names.json", ...names.map((name) => `/bundle/${name}?v=1`)];
           return Promise.all(urls.map((url) => fetch(url)));""",
    ],
    ids=["zip", "file", "files", "folder", "responses"],
)
def test_what_a_page_has_is_a_bundle(page: Page, source: str):
    np.testing.assert_array_equal(np.array(outcome(page, source), np.float32), np.array(values(), np.float32))


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("return [];", "bundle: none of the files is 'manifest.json'"),
        ("return [new File([await bytes('manifest.json')], 'manifest.json')];",
         "bundle: 'manifest.sha256' is not among the files of the bundle"),
        ("return [await fetch('/bundle/manifest.json'), await fetch('/bundle/manifest.sha256')];", "among the files"),
        ("return Promise.all(['manifest.json', 'manifest.sha256', 'weights-00001.safetensors', 'moon'].map((name) => "
         "fetch(`/bundle/${name}`)));", "is not among the files"),
        ("const broken = new Response(new ReadableStream({ pull: (to) => to.error('cut') })); "
         "return [Object.defineProperty(broken, 'url', { value: 'http://x/100%/manifest.json' })];",
         "bundle: 'http://x/100%/manifest.json' was not fetched: "),
        ("const response = await fetch('/bundle/manifest.json'); await response.text(); return [response];",
         "/bundle/manifest.json' was not fetched: "),
        ("return (await fetch('/more.zip')).blob();", "the zip has 'moon.txt' in place of plan-"),
        ("return (await fetch('/mixed.zip')).blob();", "in place of manifest.json"),
        ("return new Blob([]);", "no zip of stored, canonical entries: it is too short"),
        ("return new Blob([new Uint8Array(5000)]);", "no zip of stored, canonical entries: it has another end"),
        ("return new Blob([await (await fetch('/b.zip')).blob(), 'x']);", "it has another end"),
    ],
)  # fmt: skip
def test_what_is_no_bundle_is_refused(page: Page, source: str, told: str):
    assert told in outcome(page, source)


def test_every_byte_of_a_zip_counts(page: Page):
    """A flipped bit anywhere in a header, the directory or the end is refused; none hangs."""
    found = page.call("""async () => {
      const whole = new Uint8Array(await (await fetch("/b.zip")).arrayBuffer());
      const { load } = await import("/shaderloom.js");
      const view = new DataView(whole.buffer);
      const start = view.getUint32(whole.length - 6, true);
      const places = Array.from({ length: whole.length - start }, (_, at) => start + at);
      const names = view.getUint16(start + 28, true);
      for (let at = 0; at < 30 + names; at++) places.push(at);
      const accepted = [];
      for (const at of places) {
        const changed = whole.slice();
        changed[at] ^= 1;
        const error = await load(new Blob([changed]), { maxWeightBytes: 0 }).catch((error) => error);
        if (error.kind !== "bundle" || /maxWeightBytes/.test(error.message)) accepted.push(at - start);
      }
      return { tried: places.length, accepted };
    }""")
    assert found["tried"] > 300
    assert found["accepted"] == []
