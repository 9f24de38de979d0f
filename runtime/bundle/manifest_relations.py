"""The relations between the fields of a manifest.

``runtime/web/shaderloom/manifest_relations.js`` has the same checks in the same order, by the same rules;
``tests/runtime/bundle/test_both_readers.py`` compares them.  Structures were checked before (:mod:`.structure`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .format import CHUNK, DIGEST, MANIFEST, is_file_name, plan_file, sample_file
from .program_relations import check_programs
from .shape_relations import Path, check_range, check_shapes
from .structure import Refusal, in_order


def check_manifest(manifest: Any) -> None:
    """Raise :class:`Refusal` for the first relation that does not hold."""
    files = manifest["files"]
    for name in in_order(files):
        path = ("files", name)
        if not is_file_name(name) or name in (MANIFEST, DIGEST):
            raise Refusal("file name", "is a file that no bundle may have", *path)
        if len(files[name]["sha256"]) != -(-files[name]["size"] // CHUNK):
            raise Refusal("hashes", "has another number of hashes than chunks", *path)
    _unique([*manifest["inputs"], *manifest["overridable"]], "inputs")
    _unique(manifest["outputs"], "outputs")
    for name in in_order(manifest["dynamic"]):
        check_range(manifest["dynamic"][name], ("dynamic", name))
    check_programs(manifest, _check_plans(manifest))
    _check_samples(manifest)
    _check_weights(manifest)


def check_further(manifest: Any, own: Any) -> None:
    """Check that the files of a further model's manifest are those of the bundle's ``own``; raise :class:`Refusal`."""
    for name in in_order(manifest["files"]):
        record, listed = manifest["files"][name], own["files"].get(name)
        if listed is None or any(record[field] != listed[field] for field in ("size", "sha256")):
            raise Refusal("further file", f"is listed otherwise in '{MANIFEST}'", "files", name)


def _unique(ports: Iterable[Any], field: str) -> None:
    names = [port["name"] for port in ports]
    if len(set(names)) != len(names):
        raise Refusal("names", "has a name twice", field)


def _check_plans(manifest: Any) -> set[str]:
    """Check the plans that are no stages, and return their keys."""
    seen: set[str] = set()
    for index, record in enumerate(manifest["plans"]):
        path: Path = ("plans", index)
        keys = {record["key"], record.get("software", record["key"])}
        if keys & seen:
            raise Refusal("plan twice", "is listed twice", *path)
        seen |= keys
        if record["file"] != plan_file(record["key"]):
            raise Refusal("plan file", f"is not '{plan_file(record['key'])}'", *path, "file")
        for key in (record["key"], record.get("software", record["key"])):
            if plan_file(key) not in manifest["files"]:
                raise Refusal("listed", f"needs '{plan_file(key)}', which is not listed", *path)
        check_shapes(manifest, record["shapes"], path)
        if "rows" in record:
            _check_rows(manifest, record, (*path, "rows"))
    return seen


def _check_rows(manifest: Any, record: Any, path: Path) -> None:
    """Check that axes of rows are those of inputs of the plan, and of all outputs of the model."""
    ranks = {name: len(dims) for name, dims in record["shapes"].items()}
    outputs = {port["name"]: 32 if port["dims"] is None else len(port["dims"]) for port in manifest["outputs"]}
    rows = record["rows"]
    for field, allowed in (("inputs", ranks), ("outputs", outputs)):
        for name in in_order(rows[field]):
            if rows[field][name] >= allowed.get(name, 0):
                raise Refusal("rows", "is no axis of the plan", *path, field, name)
    if not rows["inputs"] or len(rows["outputs"]) < len(outputs):
        raise Refusal("rows", "has no axis of an input, or not of every output", *path)


def _check_samples(manifest: Any) -> None:
    keys = {record["key"] for record in (*manifest["plans"], *manifest.get("programs", ()))}
    for index, sample in enumerate(manifest["samples"]):
        path: Path = ("samples", index)
        if sample["plan"] not in keys:
            raise Refusal("sample plan", "is a sample without a plan", *path)
        if sample["file"] != sample_file(sample["plan"]):
            raise Refusal("sample file", f"is not '{sample_file(sample['plan'])}'", *path, "file")
        if sample["file"] not in manifest["files"]:
            raise Refusal("listed", f"needs '{sample['file']}', which is not listed", *path)
        if not 0 <= sample["tolerance"] < 1:
            raise Refusal("tolerance", "is not between 0 and 1", *path, "tolerance")


def _check_weights(manifest: Any) -> None:
    """Check that weights are made of ranges of listed files, none of which belongs to two."""
    used: dict[str, list[tuple[int, int]]] = {}
    for key in in_order(manifest["weights"]):
        weight, total = manifest["weights"][key], 0
        for index, part in enumerate(weight["parts"]):
            path: Path = ("weights", key, "parts", index)
            if part["file"] not in manifest["files"]:
                raise Refusal("listed", f"needs '{part['file']}', which is not listed", *path)
            if part["offset"] % 16 or part["length"] % 16 or not part["length"]:
                raise Refusal("blocks", "is not made of whole blocks of 16 bytes", *path)
            if part["offset"] + part["length"] > manifest["files"][part["file"]]["size"]:
                raise Refusal("inside", "lies outside its file", *path)
            total += part["length"]
            used.setdefault(part["file"], []).append((part["offset"], part["length"]))
        if total != weight["bytes"]:
            raise Refusal("weight bytes", "has another size than its parts", "weights", key)
    for file in in_order(used):
        end = 0
        for offset, length in sorted(used[file]):
            if offset < end:
                raise Refusal("overlap", "has bytes that belong to two weights", "files", file)
            end = offset + length
