"""Signatures of bundles: whose key signed what, from the compiler to the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import shaderloom
from shaderloom.cli import app
from shaderloom.runtime.bundle.format import DIGEST, MANIFEST, SIGNATURE
from shaderloom.runtime.bundle.reader import Bundle
from shaderloom.runtime.plan.errors import BundleError, InputError, UnsupportedError

from ...support.bundles import copy_bundle, feeds, files_of, seal, small_bundle
from ...support.signing import key_pair


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> tuple[Path, Path]:
    return key_pair(tmp_path_factory.mktemp("keys"), 1)


@pytest.fixture(scope="module")
def signed(tmp_path_factory, keys) -> Path:
    return small_bundle(tmp_path_factory.mktemp("signed") / "b", 5, sign_key=keys[0])


def test_a_signature_is_of_the_digest_alone(signed, keys, tmp_path):
    """Signed again the bytes are the same; without a key the rest of the bundle is."""
    files = files_of(signed)
    assert len(files[SIGNATURE]) == 129 and files[SIGNATURE].endswith(b"\n")
    plain = files_of(small_bundle(tmp_path / "plain", 5))
    assert {name: content for name, content in files.items() if name != SIGNATURE} == plain
    assert files_of(small_bundle(tmp_path / "again", 5, sign_key=keys[0].read_bytes())) == files


@pytest.mark.parametrize("as_zip", [False, True], ids=["folder", "zip"])
def test_signed_bundles_open_with_and_without_the_key(keys, device, tmp_path, as_zip):
    path = small_bundle(tmp_path / "b", 5, sign_key=keys[0], as_zip=as_zip)
    outputs = []
    for key in (None, keys[1], keys[1].read_bytes()):
        with shaderloom.load_bundle(path, device=device, verify_key=key) as session:
            session.bundle.check_all()
            outputs.append(session.run(["y"], feeds())[0])
    np.testing.assert_array_equal(outputs[1], outputs[0])
    np.testing.assert_array_equal(outputs[2], outputs[0])


def refused(path: Path, key: Path | bytes) -> str:
    with pytest.raises(BundleError) as caught:
        Bundle(path, key)
    return str(caught.value)


def test_what_the_key_did_not_sign_is_refused(signed, keys, tmp_path):
    _, other = key_pair(tmp_path, 2)
    assert "no signature of this bundle by the key [check that the key is that of" in refused(signed, other)
    plain = small_bundle(tmp_path / "plain", 5)
    assert f"'{SIGNATURE}' is missing [ask for a signed bundle: " in refused(plain, keys[1])

    changed = copy_bundle(signed, tmp_path / "changed")
    (shader,) = sorted((changed / "shaders").iterdir())[:1]
    shader.write_text(shader.read_text() + "\n// another shader\n")
    seal(changed)  # the digests are right again
    Bundle(changed).close()
    assert "no signature of this bundle by the key" in refused(changed, keys[1])


@pytest.mark.parametrize(
    "change",
    [lambda line: b"", lambda line: line[:-1], lambda line: line + b"\n", lambda line: line.upper(),
     lambda line: b"0" * 128 + b"\n", lambda line: b" " + line[1:], lambda line: b"\xff" * 129,
     lambda line: bytes([line[0] ^ 1]) + line[1:]],
)  # fmt: skip
def test_signatures_that_are_spelt_otherwise_are_none(signed, keys, tmp_path, change):
    path = copy_bundle(signed, tmp_path / "b")
    (path / SIGNATURE).write_bytes(change((path / SIGNATURE).read_bytes()))
    assert "no signature of this bundle by the key" in refused(path, keys[1])


def test_a_signature_of_the_digest_without_its_context_is_none(signed, keys, tmp_path):
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    path = copy_bundle(signed, tmp_path / "b")
    signature = load_pem_private_key(keys[0].read_bytes(), None).sign((path / DIGEST).read_bytes())
    (path / SIGNATURE).write_bytes(signature.hex().encode() + b"\n")
    assert "no signature" in refused(path, keys[1])


def test_keys_that_are_none(signed, keys, tmp_path):
    private, public = keys
    for key in (private, b"", b"-----BEGIN PUBLIC KEY-----\n", tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match=r"no public Ed25519 key|cannot read the key"):
            Bundle(signed, key)
    for key in (public, b"x", tmp_path / "none"):
        with pytest.raises(InputError, match=r"no private Ed25519 key|cannot read the key"):
            small_bundle(tmp_path / "b", 5, sign_key=key)
    assert not (tmp_path / "b").exists()


def test_without_the_package_the_extra_is_named(signed, keys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setattr("shaderloom.runtime.bundle.signing.find_spec", lambda name: None)
    Bundle(signed).close()
    with pytest.raises(UnsupportedError, match=r"shaderloom\[sign\]"):
        Bundle(signed, keys[1])


def test_the_command_line_signs_and_verifies(keys, tmp_path):
    import onnx

    from ...support.bundles import small_model

    private, public = keys
    _, other = key_pair(tmp_path, 3)
    onnx.save(small_model(), tmp_path / "small.onnx")
    run = CliRunner()
    shape = ["--shape", "x=2x5x8"]
    bundle = str(tmp_path / "b")
    result = run.invoke(app, ["compile", str(tmp_path / "small.onnx"), "-o", bundle, *shape, "--sign", str(private)])
    assert result.exit_code == 0, result.stderr
    result = run.invoke(app, ["verify", bundle, "--verify-key", str(public), "--json"])
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["files"] == len(files_of(tmp_path / "b"))
    for command in ("verify", "run"):
        result = run.invoke(app, [command, bundle, "--verify-key", str(other)])
        assert result.exit_code == 1
        assert "no signature of this bundle" in result.stderr
    result = run.invoke(app, ["run", str(tmp_path / "small.onnx"), *shape, "--verify-key", str(public)])
    assert result.exit_code == 1
    assert "--verify-key is for bundles" in result.stderr
    assert (tmp_path / "b" / MANIFEST).is_file()
