"""Signed bundles in a page: loaded with the key that signed them, refused with another.

Covers: runtime/web/shaderloom.
"""

from __future__ import annotations

import json

import pytest

from shaderloom.runtime.bundle.format import SIGNATURE
from shaderloom.runtime.bundle.zip import write_zip
from shaderloom.serve.files import runner_resources
from shaderloom.serve.site import Resource, Site

from ..support.bundles import copy_bundle, files_of, seal, small_bundle
from ..support.signing import key_pair
from .conftest import EMPTY

LOAD = """async (verifyKey) => {
  const { load } = await import("/shaderloom.js");
  return load("/bundle/", { verifyKey }).then((session) => (session.dispose(), "loaded"),
    ({ kind, message }) => `${kind}: ${message}`);
}"""


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> list[str]:
    """Two public keys, of which the private half of the first signs."""
    folder = tmp_path_factory.mktemp("keys")
    return [key_pair(folder, seed)[1].read_text() for seed in (1, 2)]


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signed")
    return small_bundle(folder / "b", 5, sign_key=key_pair(folder, 1)[0])


def test_the_key_decides(open_bundle, signed, keys):
    page = open_bundle(signed)
    assert page.call(LOAD, keys[0]) == "loaded"
    assert page.evaluate(f"({LOAD})(undefined)") == "loaded"
    assert page.call(LOAD, keys[1]) == "bundle: 'manifest.signature' is no signature of this bundle by the key"
    for key in ("", "x", keys[0].replace("PUBLIC", "PRIVATE"), keys[0].replace("MCow", "MCox")):
        assert page.call(LOAD, key).startswith("input: verifyKey is no public Ed25519 key")


def test_bundles_that_the_key_did_not_sign_are_refused(open_bundle, signed, keys, tmp_path):
    changed = copy_bundle(signed, tmp_path / "changed")
    manifest = json.loads((changed / "manifest.json").read_bytes())
    (changed / "manifest.json").write_text(json.dumps({**manifest, "nodes": 1}))
    seal(changed)
    assert "no signature of this bundle" in open_bundle(changed).call(LOAD, keys[0])

    longer = copy_bundle(signed, tmp_path / "longer")
    (longer / SIGNATURE).write_bytes((longer / SIGNATURE).read_bytes() + b"\n")
    assert "'manifest.signature' has more than 129 bytes" in open_bundle(longer).call(LOAD, keys[0])

    upper = copy_bundle(signed, tmp_path / "upper")
    (upper / SIGNATURE).write_bytes((upper / SIGNATURE).read_bytes().upper())
    assert "no signature of this bundle" in open_bundle(upper).call(LOAD, keys[0])

    plain = copy_bundle(signed, tmp_path / "plain")
    (plain / SIGNATURE).unlink()
    assert "status 404; 'shaderloom compile --sign' writes it" in open_bundle(plain).call(LOAD, keys[0])


#: A zip as a Blob and as a File, and the files of a folder
LOAD_ZIP = """async (verifyKey) => {
  const { load } = await import("/shaderloom.js");
  const blob = await (await fetch("/bundle.zip")).blob();
  const files = [...await (await fetch("/names.json")).json()].map((name) => fetch(`/bundle/${name}`));
  const folder = (await Promise.all(files)).filter(({ ok }) => ok);
  const named = await Promise.all(folder.map(async (response) =>
    new File([await response.clone().blob()], new URL(response.url).pathname.replace("/bundle/", ""))));
  const outcome = (source) => load(source, { verifyKey }).then((session) => (session.dispose(), "loaded"),
    ({ kind, message }) => `${kind}: ${message}`);
  return Promise.all([blob, new File([blob], "b.zip"), folder, named].map(outcome));
}"""


@pytest.mark.parametrize("is_signed", [True, False])
def test_zips_and_lists_of_files_are_verified(browser, signed, keys, tmp_path, is_signed):
    folder = copy_bundle(signed, tmp_path / "b")
    if not is_signed:
        (folder / SIGNATURE).unlink()
    contents = files_of(folder)
    with (tmp_path / "b.zip").open("wb") as file:
        write_zip(file, folder, list(contents))
    files = {f"/bundle/{name}": content for name, content in contents.items()}
    files |= {"/bundle.zip": (tmp_path / "b.zip").read_bytes(), "/names.json": json.dumps(list(contents)).encode()}
    served = {path: Resource("application/json", lambda data=data: data) for path, data in files.items()}
    with Site({**EMPTY, **runner_resources(), **served}) as site, browser.open(site.url + "empty.html") as page:
        right, wrong = (page.call(LOAD_ZIP, key) for key in keys)
    if is_signed:
        assert right == ["loaded"] * 4
        assert wrong == ["bundle: 'manifest.signature' is no signature of this bundle by the key"] * 4
    else:
        assert right == ["bundle: 'manifest.signature' is not among the files of the bundle"] * 4
