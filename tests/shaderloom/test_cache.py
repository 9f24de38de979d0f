"""The disk cache: keys, damage, limits, concurrent writers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
import zlib

import pytest

from shaderloom.cache import DiskCache, canonical, compiler_version, key_of, open_cache

from ..support.patience import PATIENCE

ENTRIES = {
    "model": {"path": "m.onnx", "size": 10, "modified_ns": 5, "inode": 7},
    "files": {"": [10, 5, 7]},
    "shapes": {"x": [1, 3, "n"]},
    "dynamic": {"n": [1, 8]},
    "profile": {"kind": "cpu", "limits": {"a": 1}},
    "compiler": "abc",
    "options": {},
}


@pytest.fixture
def cache(tmp_path) -> DiskCache:
    return DiskCache(tmp_path / "cache")


def entry_file(cache: DiskCache):
    (path,) = cache.folder.rglob("*.entry")
    return path


def test_what_was_put_is_found(cache):
    value = {"text": "ü\n", "list": [1, 2.5, None, True]}
    assert cache.get("plan", ENTRIES) is None
    assert cache.put("plan", ENTRIES, value)
    assert cache.get("plan", ENTRIES) == value
    assert DiskCache(cache.folder).get("plan", dict(reversed(ENTRIES.items()))) == value
    assert cache.get("header", ENTRIES) is None


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_is_part_of_the_key(cache, name):
    cache.put("plan", ENTRIES, "value")
    for changed in ({**ENTRIES, name: "other"}, {key: value for key, value in ENTRIES.items() if key != name}):
        assert key_of("plan", changed) != key_of("plan", ENTRIES)
        assert cache.get("plan", changed) is None


def test_keys_are_the_same_in_another_process():
    program = f"""
        import json
        from shaderloom.cache import compiler_version, key_of
        print(key_of("plan", json.loads({json.dumps(ENTRIES)!r})))
        print(compiler_version())
    """
    environment = {**os.environ, "PYTHONHASHSEED": "123"}
    output = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True, env=environment
    ).stdout.split()
    compiler_version.cache_clear()
    assert output == [key_of("plan", ENTRIES), compiler_version()]


def test_any_flipped_byte_is_a_miss(cache):
    cache.put("plan", ENTRIES, {"wgsl": "fn main() {}" * 10})
    path = entry_file(cache)
    raw = path.read_bytes()
    for position in range(len(raw)):
        damaged = bytearray(raw)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        assert cache.get("plan", ENTRIES) is None, position
    path.write_bytes(raw)
    assert cache.get("plan", ENTRIES) is not None


def test_any_truncation_is_a_miss(cache):
    cache.put("plan", ENTRIES, {"wgsl": "fn main() {}" * 10})
    path = entry_file(cache)
    raw = path.read_bytes()
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        assert cache.get("plan", ENTRIES) is None, length
    path.write_bytes(raw + b"x")
    assert cache.get("plan", ENTRIES) is None


def test_a_damaged_entry_is_removed(cache):
    cache.put("plan", ENTRIES, 1)
    entry_file(cache).write_bytes(b"junk")
    assert cache.get("plan", ENTRIES) is None
    assert cache.info().entries == 0


def test_an_entry_for_another_key_is_a_miss(cache):
    """A file under the wrong name, however well-formed, is not used."""
    cache.put("plan", ENTRIES, "right")
    other = {**ENTRIES, "compiler": "other"}
    wrong = entry_file(cache)
    target = cache._path("plan", other)
    target.parent.mkdir(exist_ok=True)
    wrong.rename(target)
    assert cache.get("plan", other) is None


def test_a_value_that_is_no_json_is_a_miss(cache):
    import hashlib

    path = cache._path("plan", ENTRIES)
    path.parent.mkdir(parents=True)
    for text in (b"{", b"[]", canonical({"key": ENTRIES}).encode()):
        body = zlib.compress(text)
        path.write_bytes(f"shaderloom-cache 2 plan {hashlib.sha256(body).hexdigest()} {len(body)}\n".encode() + body)
        assert cache.get("plan", ENTRIES) is None


def test_an_entry_of_an_older_version_is_a_miss(cache):
    cache.put("plan", ENTRIES, "value")
    path = entry_file(cache)
    path.write_bytes(path.read_bytes().replace(b"shaderloom-cache 2 ", b"shaderloom-cache 1 ", 1))
    assert cache.get("plan", ENTRIES) is None
    assert not path.exists()


def test_the_least_recently_used_entries_go(tmp_path):
    cache = DiskCache(tmp_path, limit=10_000)
    noise = os.urandom(1500).hex()
    keys = [{"n": number} for number in range(4)]
    for age, entries in enumerate(keys):
        assert cache.put("plan", entries, noise)
        os.utime(cache._path("plan", entries), (time.time() - 100 + age,) * 2)
    assert cache.get("plan", keys[0]) is not None  # used now: the oldest is keys[1]
    while cache.get("plan", keys[1]) is not None:
        os.utime(cache._path("plan", keys[1]), (time.time() - 200,) * 2)
        number = cache.info().entries
        assert cache.put("plan", {"n": 100 + number}, noise)
    assert cache.get("plan", keys[0]) is not None
    assert cache.info().size <= 10_000
    assert not cache.put("plan", {"n": "large"}, os.urandom(20_000).hex())


def test_clear_leaves_foreign_files(cache):
    cache.put("plan", ENTRIES, 1)
    cache.put("header", ENTRIES, 1)
    foreign = cache.folder / "notes.txt"
    foreign.write_text("mine")
    assert cache.clear() == 2
    assert cache.info().entries == 0
    assert foreign.read_text() == "mine"
    assert DiskCache(cache.folder / "nowhere").clear() == 0


def test_concurrent_writers_and_readers(tmp_path):
    """Readers see a whole value or none while others write, evict and clear."""
    program = f"""
        import pathlib, sys
        from shaderloom.cache import DiskCache
        cache = DiskCache(pathlib.Path({str(tmp_path)!r}), limit=60_000)
        for round in range(60):
            for number in range(5):
                text = f"{{number}} " * 4000
                cache.put("plan", {{"n": number}}, text)
                found = cache.get("plan", {{"n": (number + round) % 5}})
                assert found is None or found == f"{{(number + round) % 5}} " * 4000, found[:20]
            if round % 20 == 7:
                cache.clear()
        print("done")
    """
    processes = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=PATIENCE)[0].strip() for process in processes] == ["done"] * 3
    assert not list(tmp_path.rglob("*.part"))


def test_a_folder_that_cannot_be_written_is_only_a_miss(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = DiskCache(blocked)
    assert cache.put("plan", ENTRIES, 1) is False
    assert cache.get("plan", ENTRIES) is None
    assert cache.info().entries == 0


def test_choice_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SHADERLOOM_CACHE", str(tmp_path))
    assert open_cache(True).folder == tmp_path
    assert open_cache(tmp_path / "other").folder == tmp_path / "other"
    assert open_cache(False) is None
    monkeypatch.setenv("SHADERLOOM_CACHE", "off")
    assert open_cache(True) is None
    monkeypatch.delenv("SHADERLOOM_CACHE")
    assert "shaderloom" in str(open_cache(True).folder)
