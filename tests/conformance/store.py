"""Results on the disk, so that a run that was stopped goes on where it was: a file of lines of JSON for each device.

The first line is the fingerprint of what was tested; results of anything else are not used.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from .pool import ROOT, Record

FOLDER = ROOT / "build" / "conformance"
SOURCES = ("shaderloom", "compiler", "runtime", "templates", "tests/conformance", "tests/support")


def fingerprint() -> str:
    """Of the project's sources and of the packages that decide results."""
    from importlib.metadata import version

    digest = hashlib.sha256()
    for name in SOURCES:
        for path in sorted((ROOT / name).rglob("*")):
            if path.suffix in (".py", ".j2"):
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    for package in ("onnx", "numpy", "wgpu"):
        digest.update(f"{package} {version(package)}".encode())
    return digest.hexdigest()


class Store:
    """Results of one device and shard."""

    def __init__(self, device: str, shard: str) -> None:
        label = "".join(letter if letter.isalnum() else "-" for letter in f"{device or 'default'} {shard}".strip())
        self.path = FOLDER / f"{label}.jsonl"
        self.records: dict[str, Record] = {}
        self._head: dict[str, Any] = {"fingerprint": fingerprint(), "device": ""}

    def resume(self) -> None:
        """Read what an earlier run of the same code has found; start anew otherwise."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        parsed = [json.loads(line) for line in lines if line.endswith("}")]
        if parsed and parsed[0].get("fingerprint") == self._head["fingerprint"]:
            self.records = {record["key"]: record for record in parsed[1:]}
        else:
            self.clear()

    def clear(self) -> None:
        self.records = {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self._head) + "\n", encoding="utf-8")

    def add(self, record: Record) -> None:
        self.records[record["key"]] = record
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
