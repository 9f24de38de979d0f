"""The secret of the disk cache: created once, for its owner alone, and refused otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from shaderloom.cache import open_cache
from shaderloom.cache.secret import load_secret, secret_path

from ...support.patience import PATIENCE

POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of POSIX systems")


@pytest.fixture
def path(tmp_path):
    load_secret.cache_clear()
    yield tmp_path / "state" / "cache.key"
    load_secret.cache_clear()


def test_it_is_created_once(path):
    secret = load_secret(path)
    assert secret is not None and len(secret) == 32
    load_secret.cache_clear()
    assert load_secret(path) == secret == path.read_bytes()
    assert [entry.name for entry in path.parent.iterdir()] == ["cache.key"]


@POSIX
def test_only_its_owner_has_access(path):
    old = os.umask(0)
    try:
        load_secret(path)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@POSIX
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_secret_that_others_have_is_none(path, mode, caplog):
    load_secret(path)
    load_secret.cache_clear()
    path.chmod(mode)
    assert load_secret(path) is None
    assert "others" in caplog.text and "cache.key" in caplog.text


@POSIX
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "short", "long", "blocked"])
def test_what_is_no_secret(path, tmp_path, kind):
    path.parent.mkdir(mode=0o700)
    other = tmp_path / "other"
    other.write_bytes(bytes(32))
    other.chmod(0o600)
    match kind:
        case "link":
            path.symlink_to(other)
        case "pipe":
            os.mkfifo(path, 0o600)
        case "folder":
            path.mkdir(0o700)
        case "short" | "long":
            path.write_bytes(bytes(31 if kind == "short" else 33))
            path.chmod(0o600)
        case "blocked":
            path.parent.rmdir()
            path.parent.write_text("not a folder")
    assert load_secret(path) is None


def test_processes_that_start_together_agree(path):
    program = f"""
        import pathlib
        from shaderloom.cache.secret import load_secret
        print(load_secret(pathlib.Path({str(path)!r})).hex())
    """
    processes = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    printed = {process.communicate(timeout=PATIENCE)[0].strip() for process in processes}
    assert printed == {path.read_bytes().hex()}


def test_a_cache_without_a_secret_is_not_authentic(tmp_path, monkeypatch, path):
    monkeypatch.setattr("shaderloom.cache.disk.secret_path", lambda: path)
    assert open_cache(tmp_path / "cache").is_authentic
    load_secret.cache_clear()
    path.write_bytes(b"damaged")
    cache = open_cache(tmp_path / "cache")
    assert not cache.is_authentic
    assert cache.put("plan", {}, 1) and cache.get("plan", {}) == 1


def test_it_lies_outside_the_cache():
    cache = open_cache(True)
    assert cache is None or cache.folder not in secret_path().parents
