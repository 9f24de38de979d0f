"""Damaged bundles are refused with one error that names the file."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shaderloom.runtime.bundle.files import is_bundle
from shaderloom.runtime.bundle.format import DIGEST, MANIFEST
from shaderloom.runtime.bundle.integrity import digest_line
from shaderloom.runtime.bundle.reader import Bundle
from shaderloom.runtime.bundle.zip import read_directory
from shaderloom.runtime.plan.errors import BundleError

from ...support.bundles import change_manifest, copy_bundle, files_of, seal, small_bundle, write_manifest
from ...support.effort import SOAK

#: Random bits that are flipped, one at a time
FLIPS = 10_000 if SOAK else 600
TRUNCATIONS = min(FLIPS, 256)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A bundle with two plans."""
    return small_bundle(tmp_path_factory.mktemp("bundles") / "small.shaderbundle", 5, 7)


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("zips") / "small.shaderbundle", 5, 7, as_zip=True)


@pytest.fixture
def copy(folder, tmp_path) -> Path:
    return copy_bundle(folder, tmp_path / "copy.shaderbundle")


def check(path: Path) -> None:
    with Bundle(path) as bundle:
        bundle.check_all()


def refused(path: Path) -> str:
    """The message with which the bundle is refused."""
    with pytest.raises(BundleError) as caught:
        check(path)
    message = str(caught.value)
    assert message.startswith("bundle: ") and "\n" not in message
    return message


def test_intact_bundles_pass(folder, packed):
    check(folder)
    check(packed)
    assert is_bundle(folder)
    assert is_bundle(packed)


def flip(path: Path, position: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (value,) = file.read(1)
        file.seek(position)
        file.write(bytes([value ^ 1 << bit]))


@pytest.mark.fuzz
def test_every_flipped_bit_of_a_folder_is_found(copy):
    sizes = {name: len(data) for name, data in files_of(copy).items()}
    generator = np.random.default_rng(1)
    names = list(sizes)
    for index in range(FLIPS):
        # half by file, so that small files are met, half by byte
        weights = None if index % 2 else np.array(list(sizes.values())) / sum(sizes.values())
        name = str(generator.choice(names, p=weights))
        position, bit = int(generator.integers(sizes[name])), int(generator.integers(8))
        flip(copy / name, position, bit)
        message = refused(copy)
        assert f"'{name}'" in message or (name == DIGEST and f"'{MANIFEST}'" in message), (name, position, bit)
        flip(copy / name, position, bit)
    check(copy)


@pytest.mark.fuzz
def test_every_flipped_bit_of_a_zip_is_found(packed, tmp_path):
    path = copy_bundle(packed, tmp_path / "copy.shaderbundle")
    size = path.stat().st_size
    headers = _bytes_of_headers(path)
    generator = np.random.default_rng(2)
    for index in range(FLIPS):
        position = int(generator.choice(headers)) if index % 2 else int(generator.integers(size))
        bit = int(generator.integers(8))
        flip(path, position, bit)
        refused(path)
        flip(path, position, bit)
    check(path)


def _bytes_of_headers(path: Path) -> np.ndarray:
    data = path.read_bytes()
    header = np.ones(len(data), bool)
    for entry in read_directory(memoryview(data)).values():
        header[entry.offset : entry.offset + entry.size] = False
    return np.flatnonzero(header)


def test_every_truncation_is_found(copy, packed, tmp_path):
    generator = np.random.default_rng(3)
    contents = files_of(copy)
    for index in range(TRUNCATIONS):
        if index % 2:
            path, data = tmp_path / "cut.shaderbundle", packed.read_bytes()
        else:
            name = str(generator.choice(list(contents)))
            path, data = copy / name, contents[name]
        path.write_bytes(data[: int(generator.integers(len(data)))])
        message = refused(path if index % 2 else copy)
        if not index % 2:
            assert f"'{name}'" in message or name == DIGEST
            path.write_bytes(data)
    check(copy)


def test_missing_files(copy):
    for name, data in files_of(copy).items():
        (copy / name).unlink()
        folder_empty = "/" in name and not any((copy / name).parent.iterdir())
        message = refused(copy)
        assert f"'{name}' is missing" in message or folder_empty
        (copy / name).write_bytes(data)
    check(copy)


@pytest.mark.parametrize(
    "name", ["notes.txt", "shaders/extra.wgsl", "plan-0.json", "UPPER", ".hidden", "a b", "weights-00009.safetensors"]
)
def test_extra_files(copy, name):
    (copy / name).write_bytes(b"")
    assert f"'{name}'" in refused(copy)


def test_extra_folders(copy):
    (copy / "more").mkdir()
    assert "'more'" in refused(copy)
    (copy / "more" / "deep").mkdir()
    (copy / "more" / "deep" / "file").write_bytes(b"")
    assert "'more/deep'" in refused(copy)


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no links here")
def test_links_are_not_followed(copy, tmp_path):
    for name in files_of(copy):
        outside = tmp_path / "outside"
        outside.write_bytes((copy / name).read_bytes())
        (copy / name).unlink()
        (copy / name).symlink_to(outside)
        assert f"'{name}' is not a regular file" in refused(copy)
        (copy / name).unlink()
        outside.rename(copy / name)
    (copy / "shaders").rename(tmp_path / "shaders")
    (copy / "shaders").symlink_to(tmp_path / "shaders", target_is_directory=True)
    assert "'shaders' is not a regular file" in refused(copy)


def test_a_file_that_becomes_a_link_or_changes_size_after_opening(copy, tmp_path):
    weights = copy / "weights-00001.safetensors"
    with Bundle(copy) as bundle:
        weights.rename(tmp_path / "moved")
        weights.symlink_to(tmp_path / "moved")
        with pytest.raises(BundleError, match="weights-00001"):
            bundle.check_all()
    weights.unlink()
    (tmp_path / "moved").rename(weights)
    with Bundle(copy) as bundle:
        weights.write_bytes(weights.read_bytes() + b"\0" * 16)
        with pytest.raises(BundleError, match="weights-00001"):
            bundle.check_all()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_no_file_and_nobody_waits_for_it(copy):
    (copy / MANIFEST).unlink()
    os.mkfifo(copy / MANIFEST)
    assert f"'{MANIFEST}' is not a regular file" in refused(copy)


def test_what_is_no_bundle(tmp_path):
    assert "there is no bundle" in refused(tmp_path / "nothing")
    assert f"'{MANIFEST}' is missing" in refused(tmp_path)
    model = tmp_path / "model.onnx"
    for content in (b"", b"PK", b"\x08\x08", b"PK\x05\x06" + bytes(18)):
        model.write_bytes(content)
        refused(model)
        assert not is_bundle(model)


# -- contents with right hashes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("2.1", "'manifest.json': format is version 2.1, and this version of shaderloom reads 3.x: compile it again"),
        ("4.0", "version 4.0, and this version of shaderloom reads 3.x: a newer version of shaderloom reads it"),
        ("1" * 5000 + ".0", "11.0, and this version of shaderloom reads 3.x: a newer version of shaderloom reads it"),
        ("2", "'2', which is no version"),
        ("2.x", "'2.x', which is no version"),
        (2, "2, which is no version"),
    ],
)
def test_versions_that_are_not_known(copy, version, told):
    change_manifest(copy, format=version)
    message = refused(copy)
    assert f"'{MANIFEST}'" in message
    assert told in message


def test_a_newer_minor_version_with_more_fields_is_read(copy):
    manifest = json.loads((copy / MANIFEST).read_bytes())
    manifest |= {"format": "3.7", "novelty": {"a": 1}}
    manifest["plans"][0]["novelty"] = 2
    write_manifest(copy, manifest)
    name = manifest["plans"][0]["file"]
    plan = json.loads((copy / name).read_bytes())
    plan["novelty"] = 1
    plan["kernels"][0]["novelty"] = plan["commands"][0]["calls"][0]["novelty"] = [1]
    (copy / name).write_text(json.dumps(plan))
    seal(copy)
    check(copy)


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/passwd", "a/../b", "shaders//x", "a/b/c", "C:x", "a\\b", ".", "", "manifest.json", "A"]
)
def test_names_that_lead_elsewhere(copy, name):
    manifest = json.loads((copy / MANIFEST).read_bytes())
    manifest["files"][name] = {"size": 0, "sha256": []}
    write_manifest(copy, manifest)
    assert "is a file that no bundle may have" in refused(copy)


def _drop(*path):
    def change(manifest):
        for name in path[:-1]:
            manifest = manifest[name]
        del manifest[path[-1]]

    return change


def _set(value, *path):
    def change(manifest):
        for name in path[:-1]:
            manifest = manifest[name]
        manifest[path[-1]] = value

    return change


def _first_weight(**fields):
    def change(manifest):
        next(iter(manifest["weights"].values()))["parts"][0].update(fields)

    return change


def _first_file(**fields):
    def change(manifest):
        next(iter(manifest["files"].values())).update(fields)

    return change


@pytest.mark.parametrize(
    "change",
    [
        *(_drop(name) for name in ("format", "files", "plans", "weights", "samples", "inputs", "dynamic", "limits")),
        _set([], "plans"),
        _set("x", "plans"),
        _set(None, "files"),
        _set({"n": [5, 9]}, "dynamic"),
        _set({"n": {"low": 5, "high": 1, "step": 1}}, "dynamic"),
        _set({"n": {"low": 5, "high": 9}}, "dynamic"),
        _set({"n": {"low": 5, "high": 9, "step": 3}}, "dynamic"),
        _set({"maxBufferSize": -1}, "limits"),
        _set({"maxBufferSize": True}, "limits"),
        _set("plan-other.json", "plans", 0, "file"),
        _set("0" * 63, "plans", 0, "key"),
        _set("0" * 63, "plans", 0, "software"),
        _set("0" * 64, "plans", 0, "software"),
        _set(None, "plans", 0, "software"),
        _set({"x": [2.0]}, "plans", 0, "shapes"),
        _set("complex", "inputs", 0, "dtype"),
        lambda manifest: manifest["plans"].append(manifest["plans"][0]),
        _set([{"plan": "0" * 64, "file": f"samples/{'0' * 64}.safetensors", "tolerance": 0.1}], "samples"),
        _first_weight(offset=8),
        _first_weight(length=1 << 40),
        _first_weight(length=0),
        _first_weight(file="weights-00007.safetensors"),
        _first_weight(file="../weights-00001.safetensors"),
        _first_file(sha256=[]),
        _first_file(sha256=["A" * 64]),
        _first_file(size=1 << 40),
        _first_file(size="5"),
    ],
)
def test_manifests_that_say_nonsense(copy, change):
    manifest = json.loads((copy / MANIFEST).read_bytes())
    change(manifest)
    write_manifest(copy, manifest)
    refused(copy)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b"1"])
def test_manifests_that_are_none(copy, content):
    (copy / MANIFEST).write_bytes(content)
    (copy / DIGEST).write_bytes(digest_line(content))
    assert f"'{MANIFEST}'" in refused(copy)


def _first_call(**fields):
    return lambda plan: plan["commands"][0]["calls"][0].update(fields)


def _first_range(**fields):
    return lambda plan: plan["commands"][0]["calls"][0]["ranges"][0].update(fields)


@pytest.mark.parametrize(
    "change",
    [
        *(_drop(name) for name in ("format", "key", "commands", "facts", "notes")),
        *(_drop(name) for name in ("kernels", "inputs", "weights", "constants", "arenas")),
        _set("0" * 64, "key"),
        _set([], "kernels"),
        _set([], "weights"),
        _set([], "inputs"),
        _set("0" * 64, "kernels", 0, "key"),
        _set("../manifest", "kernels", 0, "key"),
        _set("write", "kernels", 0, "bindings", 0, "access"),
        _set([1, 2], "kernels", 0, "workgroup"),
        _first_call(kernel="0" * 64),
        _first_call(grid=[1, 1]),
        _first_call(grid=[["//", 5, 0], 1, 1]),
        _first_call(grid=["n", 1, 1]),
        _first_call(grid=[["max", 1], 1, 1]),
        _first_call(grid=[1.5, 1, 1]),
        _first_call(grid=[-1, 1, 1]),
        _first_call(ranges=[]),
        _first_range(buffer="arena:99"),
        _first_range(buffer="nothing"),
        _first_range(offset=["-", 1, 2]),
        _set(16, "weights", 0, "bytes"),
        _set("float64", "inputs", 0, "dtype"),
        _set([{"output": "y", "source": "output:y", "size": 16}], "aliases"),
        _set([{"output": "y", "source": "weight:0", "size": 16}], "aliases"),
        _set("AAAA", "constants", 0, "data"),
        _set("?", "constants", 0, "data"),
        _set([{"name": "n", "low": 1, "high": 2}], "symbols"),
    ],
)
def test_plans_that_cannot_run(copy, change):
    name = json.loads((copy / MANIFEST).read_bytes())["plans"][0]["file"]
    plan = json.loads((copy / name).read_bytes())
    change(plan)
    (copy / name).write_text(json.dumps(plan))
    seal(copy)
    message = refused(copy)
    assert f"'{name}'" in message or "'shaders/" in message


def test_a_deep_dimension_is_refused_not_followed(copy):
    name = json.loads((copy / MANIFEST).read_bytes())["plans"][0]["file"]
    text = (copy / name).read_text()
    plan = json.loads(text)
    deep = '["+",1,' * 50_000 + "1" + "]" * 50_000
    plan["arenas"] = ["@"]
    (copy / name).write_text(json.dumps(plan).replace('"@"', deep))
    seal(copy)
    assert f"'{name}'" in refused(copy)


def test_a_shader_that_is_no_text(copy):
    name = next(name for name in files_of(copy) if name.startswith("shaders/"))
    (copy / name).write_bytes(b"\xff\xfe")
    seal(copy)
    assert f"'{name}' is not a text" in refused(copy)


# -- zips --------------------------------------------------------------------------------------------------------------


def rewrite(packed: Path, target: Path, compression: int = zipfile.ZIP_STORED) -> Path:
    """The same entries as a library writes them."""
    with zipfile.ZipFile(packed) as source, zipfile.ZipFile(target, "w") as archive:
        for name in source.namelist():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), source.read(name), compression)
    return target


def test_other_readers_of_zips_agree(folder, packed):
    with zipfile.ZipFile(packed) as archive:
        assert archive.testzip() is None
        content = {name: archive.read(name) for name in archive.namelist()}
    assert content == files_of(folder)
    assert list(content)[:2] == [MANIFEST, DIGEST]


def test_headers_that_are_not_canonical(packed, tmp_path):
    assert "not canonical" in refused(rewrite(packed, tmp_path / "plain.zip"))


def test_compressed_entries(packed, tmp_path):
    assert "compressed" in refused(rewrite(packed, tmp_path / "small.zip", zipfile.ZIP_DEFLATED))


def test_bytes_around_the_zip(packed, tmp_path):
    data = packed.read_bytes()
    for content in (data + b"\0", b"\0" + data, data[:-2] + b"\x01\x00x"):
        path = tmp_path / "other.zip"
        path.write_bytes(content)
        refused(path)


class _Zip:
    """Takes a canonical zip apart, and puts entries together in any way."""

    def __init__(self, data: bytes) -> None:
        self.entries = [
            (entry, data[entry.offset : entry.offset + entry.size])
            for entry in read_directory(memoryview(data)).values()
        ]

    def build(self, order, *, shift=0, gap=b"") -> bytes:
        out, central = io.BytesIO(), b""
        for index in order:
            entry, data = self.entries[index]
            moved = replace(entry, offset=out.tell() + 30 + len(entry.name))
            out.write(moved.local_header() + data + gap)
            central += replace(moved, offset=moved.offset - shift).central_header() if shift else moved.central_header()
        start = out.tell()
        end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, len(order), len(order), len(central), start, 0)
        return out.getvalue() + central + end


def test_entries_twice_out_of_order_with_gaps_or_overlapping(packed, tmp_path):
    parts = _Zip(packed.read_bytes())
    everything = list(range(len(parts.entries)))
    path = tmp_path / "other.zip"
    path.write_bytes(parts.build(everything))
    check(path)
    for content, told in (
        (parts.build([*everything, 3]), "twice"),
        (parts.build([1, 0, *everything[2:]]), "not in order"),
        (parts.build([*everything[:2], *everything[:1:-1]]), "not in order"),
        (parts.build(everything, gap=b"\0"), "leaves a gap"),
        (parts.build([0, *everything[1:]], shift=-1), "overlaps"),
        (parts.build(everything[:-1]), "missing"),
    ):
        path.write_bytes(content)
        assert told in refused(path)


def test_two_entries_that_share_bytes(packed, tmp_path):
    """A second central header that points at the first entry's data."""
    data = packed.read_bytes()
    entries = list(read_directory(memoryview(data)).values())
    start = entries[-1].offset + entries[-1].size
    central = b"".join(entry.central_header() for entry in [*entries[:-1], entries[-2]])
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, len(entries), len(entries), len(central), start, 0)
    path = tmp_path / "other.zip"
    path.write_bytes(data[:start] + central + end)
    assert "twice" in refused(path)


def test_zip_names_that_lead_elsewhere(tmp_path):
    for name in ("../x", "/x", "a/b/c", "X", "shaders/"):
        path = tmp_path / "other.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, b"")
        assert "not the name of a file of a bundle" in refused(path)
