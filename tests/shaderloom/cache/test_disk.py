"""The disk cache: keys, damage, forgery, hostile files, limits, concurrent writers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
import zlib

import pytest

from shaderloom.cache import DiskCache, canonical, compiler_version, disk, entry, key_of, open_cache, writing

from ...support.patience import PATIENCE

ENTRIES = {
    "model": {"path": "m.onnx", "size": 10, "modified_ns": 5, "inode": 7},
    "files": {"": [10, 5, 7]},
    "shapes": {"x": [1, 3, "n"]},
    "dynamic": {"n": [1, 8]},
    "profile": {"kind": "cpu", "limits": {"a": 1}},
    "compiler": "abc",
    "options": {},
}


SECRET = bytes(range(32))


@pytest.fixture(params=[None, SECRET], ids=["without a secret", "authenticated"])
def secret(request) -> bytes | None:
    return request.param


@pytest.fixture
def cache(tmp_path, secret) -> DiskCache:
    return DiskCache(tmp_path / "cache", secret=secret)


def fresh(cache: DiskCache, secret: bytes | None) -> DiskCache:
    return DiskCache(cache.folder, secret=secret)


def entry_file(cache: DiskCache):
    (path,) = cache.folder.rglob("*.entry")
    return path


def test_what_was_put_is_found(cache, secret):
    value = {"text": "ü\n", "list": [1, 2.5, None, True]}
    assert cache.get("plan", ENTRIES) is None
    assert cache.put("plan", ENTRIES, value)
    assert cache.get("plan", ENTRIES) == value
    assert fresh(cache, secret).get("plan", dict(reversed(ENTRIES.items()))) == value
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
    target = cache.path_of("plan", other)
    target.parent.mkdir(exist_ok=True)
    wrong.rename(target)
    assert cache.get("plan", other) is None


def test_a_value_that_is_no_json_is_a_miss(cache, secret):
    for text in (b"{", b"[]", canonical({"key": ENTRIES}).encode()):
        write_entry(cache, secret, text)
        assert cache.get("plan", ENTRIES) is None


def write_entry(cache: DiskCache, secret: bytes | None, text: bytes) -> None:
    """Write what has the header of an entry for ENTRIES around any text."""
    path = cache.path_of("plan", ENTRIES)
    path.parent.mkdir(parents=True, exist_ok=True)
    body = zlib.compress(text)
    path.write_bytes(entry.head_of("plan", body, secret) + body)


def around(value: bytes) -> bytes:
    return b'{"key":' + canonical(ENTRIES).encode() + b',"value":' + value + b"}"


def is_dropped(cache: DiskCache, caplog, reason: str) -> bool:
    caplog.clear()
    missed = cache.get("plan", ENTRIES) is None
    return missed and reason in caplog.text and not os.path.lexists(cache.path_of("plan", ENTRIES))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_only_regular_files_are_opened(cache, caplog, tmp_path):
    """Neither a FIFO, without a writer, nor a link, nor a folder is an entry; each but the folder is removed."""
    cache.put("plan", ENTRIES, "value")
    path = entry_file(cache)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    os.mkfifo(path)
    assert is_dropped(cache, caplog, f"{path}: it is no regular file\n")
    path.symlink_to(elsewhere)
    assert is_dropped(cache, caplog, f"{path}: it is a link\n")
    assert elsewhere.exists()
    path.symlink_to("/dev/zero")
    assert is_dropped(cache, caplog, f"{path}: it is a link\n")
    path.mkdir()
    assert cache.get("plan", ENTRIES) is None
    path.rmdir()
    elsewhere.rename(path)
    assert cache.get("plan", ENTRIES) == "value"


def test_size_is_bounded_before_and_while_unpacking(cache, secret, caplog, monkeypatch):
    """A thousandfold of zlib's size is not unpacked, and a file that is larger than any entry not read."""
    bound = 1 << 20
    monkeypatch.setattr(entry, "MAX_ENTRY", bound)
    monkeypatch.setattr(disk, "MAX_ENTRY", bound)
    write_entry(cache, secret, around(b'"' + b"x" * (16 * bound) + b'"'))
    assert entry_file(cache).stat().st_size < bound // 10
    tracemalloc.start()
    try:
        assert is_dropped(cache, caplog, "bytes of text")
        write_entry(cache, secret, b"")
        with open(entry_file(cache), "r+b") as file:
            file.truncate(1 << 40)
        assert is_dropped(cache, caplog, "more than 1,048,576 bytes")
        assert tracemalloc.get_traced_memory()[1] < 4 * bound
    finally:
        tracemalloc.stop()
    assert not cache.put("plan", ENTRIES, "x" * bound), "what cannot be read back is not stored"


def test_nesting_is_bounded(cache, secret, caplog):
    for depth in (entry.MAX_NESTING, 900, 100_000):
        write_entry(cache, secret, around(b"[" * depth + b"]" * depth))
        assert is_dropped(cache, caplog, "unusable"), depth
    depth = entry.MAX_NESTING - 1  # the entry itself is one level
    write_entry(cache, secret, around(b"[" * depth + b"]" * depth))
    assert cache.get("plan", ENTRIES) is not None


@pytest.mark.parametrize("forger", [None, bytes(32)], ids=["a digest", "another user's secret"])
def test_an_entry_of_another_maker_is_a_miss(tmp_path, forger):
    cache = DiskCache(tmp_path, secret=SECRET)
    forged = fresh(cache, forger)
    assert forged.put("plan", ENTRIES, "evil")
    assert forged.get("plan", ENTRIES) == "evil"
    assert cache.get("plan", ENTRIES) is None
    assert cache.info().entries == 0, "it is removed"
    assert cache.put("plan", ENTRIES, "good")
    assert cache.get("plan", ENTRIES) == "good"
    assert fresh(cache, None).get("plan", ENTRIES) is None, "what cannot be verified is not used either"


def test_a_part_of_one_entry_does_not_verify_in_another(tmp_path):
    """Header and body of two authentic entries, and an authentic entry of another kind or key, are misses."""
    cache = DiskCache(tmp_path, secret=SECRET)
    other = {**ENTRIES, "model": {"path": "other.onnx"}}
    assert cache.put("plan", ENTRIES, "one") and cache.put("plan", other, "two") and cache.put("header", ENTRIES, "h")
    one, two = cache.path_of("plan", ENTRIES), cache.path_of("plan", other)
    head, _, body = one.read_bytes().partition(b"\n")
    other_head, _, other_body = two.read_bytes().partition(b"\n")
    for raw in (
        other_head + b"\n" + body,
        head + b"\n" + other_body,
        two.read_bytes(),
        cache.path_of("header", ENTRIES).read_bytes(),
        cache.path_of("header", ENTRIES).read_bytes().replace(b"header", b"plan", 1),
    ):
        one.write_bytes(raw)
        assert cache.get("plan", ENTRIES) is None
    one.write_bytes(head + b"\n" + body)
    assert cache.get("plan", ENTRIES) == "one"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of POSIX systems")
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_folder_that_others_may_write_to_is_not_used(tmp_path, mode, caplog):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o755)
    assert DiskCache(folder, secret=SECRET).put("plan", ENTRIES, 1), "readable by others: used"
    folder.chmod(mode)
    cache = DiskCache(folder, secret=SECRET)
    assert cache.get("plan", ENTRIES) is None and not cache.put("plan", ENTRIES, 2)
    assert f"{folder} is another user's, or others may write to it" in caplog.text


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of POSIX systems")
def test_a_new_folder_is_the_user_s_alone(tmp_path):
    cache = DiskCache(tmp_path / "new" / "cache", secret=SECRET)
    assert cache.put("plan", ENTRIES, 1)
    assert cache.folder.stat().st_mode & 0o077 == 0


def test_an_entry_of_an_older_version_is_a_miss(cache):
    cache.put("plan", ENTRIES, "value")
    path = entry_file(cache)
    path.write_bytes(path.read_bytes().replace(b"shaderloom-cache 3 ", b"shaderloom-cache 2 ", 1))
    assert cache.get("plan", ENTRIES) is None
    assert not path.exists()


def test_the_least_recently_used_entries_go(tmp_path):
    cache = DiskCache(tmp_path, limit=10_000)
    noise = os.urandom(1500).hex()
    keys = [{"n": number} for number in range(4)]
    for age, entries in enumerate(keys):
        assert cache.put("plan", entries, noise)
        os.utime(cache.path_of("plan", entries), (time.time() - 100 + age,) * 2)
    assert cache.get("plan", keys[0]) is not None  # used now: the oldest is keys[1]
    while cache.get("plan", keys[1]) is not None:
        os.utime(cache.path_of("plan", keys[1]), (time.time() - 200,) * 2)
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


def test_who_asks_waits_for_what_is_to_be_written(cache):
    release = threading.Event()

    def slow():
        release.wait(PATIENCE)
        return {"plan": 1}

    cache.put_later("plan", ENTRIES, slow)
    writing.begin_writing()
    writing.begin_writing()
    assert not list(cache.folder.rglob("*.entry")), "the caller goes on"
    threading.Timer(0.05, release.set).start()
    assert cache.get("plan", ENTRIES) == {"plan": 1}
    cache.put_later("plan", ENTRIES, lambda: {"plan": 2})
    assert cache.info().entries == 1
    cache.put_later("header", ENTRIES, dict)
    assert cache.clear() == 2 and cache.info().entries == 0


def test_nothing_is_encoded_before_a_run_has_its_outputs(cache):
    encoded = []
    cache.put_later("plan", ENTRIES, lambda: encoded.append("plan") or "value")
    assert encoded == []
    writing.begin_writing()
    cache.finish()
    assert encoded == ["plan"]
    assert cache.get("plan", ENTRIES) == "value"


@pytest.mark.parametrize("begun", [True, False])
def test_a_process_that_ends_completes_what_it_writes(tmp_path, begun):
    text = f"""
        import time
        from pathlib import Path
        from shaderloom.cache import DiskCache, writing
        DiskCache(Path({str(tmp_path / "c")!r})).put_later("plan", {{"a": 1}}, lambda: time.sleep(0.2) or "value")
        if {begun}:
            writing.begin_writing()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(text)], check=True, timeout=PATIENCE)
    assert DiskCache(tmp_path / "c").get("plan", {"a": 1}) == "value"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_leaves_what_waits_to_its_parent(tmp_path):
    text = f"""
        import os, sys
        from pathlib import Path
        from shaderloom.cache import DiskCache, writing
        cache = DiskCache(Path({str(tmp_path / "c")!r}))
        cache.put_later("plan", {{"a": 1}}, os.getpid)
        with writing._lock:  # as if another thread held it
            child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            print(os.getpid())
    """
    command = [sys.executable, "-c", textwrap.dedent(text)]
    parent = subprocess.run(command, check=True, timeout=PATIENCE, capture_output=True, text=True)
    assert DiskCache(tmp_path / "c").get("plan", {"a": 1}) == int(parent.stdout)
