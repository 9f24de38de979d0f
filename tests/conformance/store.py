"""Results on the disk, so that a run that was stopped goes on where it was: a file of lines of JSON for each device.

The first line says what was tested: the fingerprint of the sources, the date, the packages.  The device's name follows.
A run does not go on with results of other sources, but a page may show them beside its own.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from importlib.metadata import version
from pathlib import Path

from .pool import ROOT, Record

FOLDER = ROOT / "build" / "conformance"
SOURCES = ("shaderloom", "compiler", "runtime", "templates", "tests/support")
#: Of the modules beside this one, those that decide results
MODULES = ("cases.py", "running.py", "models.py", "worker.py")
PACKAGES = ("onnx", "onnxruntime", "numpy", "wgpu")


def fingerprint() -> str:
    """Of the project's sources and of the packages that decide results."""
    digest = hashlib.sha256()
    paths = [path for name in SOURCES for path in (ROOT / name).rglob("*") if path.suffix in (".py", ".j2")]
    paths += [Path(__file__).with_name(name) for name in MODULES]
    for path in sorted(paths, key=lambda path: path.as_posix()):  # paths compare otherwise in other Pythons
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    for package in PACKAGES:
        digest.update(f"{package} {version(package)}".encode())
    return digest.hexdigest()


class Store:
    """Results of one device, by key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, Record] = {}
        self.head: Record = {}

    @staticmethod
    def of_device(device: str) -> Store:
        label = "".join(letter if letter.isalnum() else "-" for letter in device or "default")
        return Store(FOLDER / f"{label}.jsonl")

    @property
    def device(self) -> str:
        name: str = self.head.get("device", "")
        return name

    def read(self) -> None:
        """What a run has left; nothing if there was none.  A last line that was cut off is ignored."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        for record in [json.loads(line) for line in lines if line.endswith("}")]:
            if "key" in record:
                self.records[record["key"]] = record
            else:
                self.head |= record

    def begin(self, *, resume: bool) -> None:
        """Be ready to add results: after those of an earlier run of the same sources if ``resume``, else anew.

        Models that could not be had are tried again.
        """
        current = fingerprint()
        if resume:
            self.read()
            self.records = {key: record for key, record in self.records.items() if record["kind"] != "missing"}
        if self.head.get("fingerprint") == current:
            return
        self.records = {}
        packages = {package: version(package) for package in PACKAGES}
        self.head = {"fingerprint": current, "date": datetime.date.today().isoformat(), "packages": packages}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.head) + "\n", encoding="utf-8")

    def add(self, record: Record) -> None:
        self.records[record["key"]] = record
        self._append(record)

    def name_device(self, name: str) -> None:
        if name and name != self.device:
            self.head["device"] = name
            self._append({"device": name})

    def _append(self, record: Record) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
