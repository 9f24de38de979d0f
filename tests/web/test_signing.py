"""Signed bundles in a page: loaded with the key that signed them, refused with another.

Covers: runtime/web/shaderloom.
"""

from __future__ import annotations

import json

import pytest

from shaderloom.runtime.bundle.format import SIGNATURE

from ..support.bundles import copy_bundle, seal, small_bundle
from ..support.signing import key_pair

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
    assert "'manifest.signature' cannot be fetched: status 404" in open_bundle(plain).call(LOAD, keys[0])
