"""The manifest of a bundle.

It is checked while it is read: a :class:`Manifest` names only files that it lists, parts of weights lie inside their
files, and every plan has one file.  Fields that a newer minor version added are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..plan.declared_port import DeclaredPort
from ..plan.dtypes import BY_NAME
from ..plan.format import FORMAT, check_format
from ..plan.json_reader import Reader
from ..plan.size_range import SizeRange
from .format import (
    CHUNK,
    DIGEST,
    MANIFEST,
    canonical_json,
    is_file_name,
    own_feature,
    own_limit,
    plan_file,
    sample_file,
    web_feature,
    web_limit,
)


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Size of a file and sha256 of each of its chunks, in hex."""

    size: int
    chunks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A range of a file that holds a weight, or a piece of one.  All numbers are multiples of 16."""

    file: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """``shapes`` has the inputs that must be fed: numbers, or names of dynamic dimensions.

    ``software`` is the key of the same plan with kernels for adapters that compute on the CPU, its own where it suits
    them; None if there is none.
    """

    key: str
    file: str
    shapes: Mapping[str, tuple[int | str, ...]]
    software: str | None = None

    def for_software(self) -> PlanRecord:
        """Return the plan to use on an adapter that computes on the CPU."""
        if self.software is None:
            return self
        return PlanRecord(self.software, plan_file(self.software), self.shapes)


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """Inputs and expected outputs of the plan with key ``plan``."""

    plan: str
    file: str
    tolerance: float


@dataclass(frozen=True)
class Manifest:
    """``features`` and ``limits`` have the names of :mod:`.device_profile`; the file has WebGPU's.

    ``decisions`` counts the configurations of kernels that have others by where they came from: ``analytic`` (a cost
    model), ``shipped`` or ``tuned`` (measured).
    """

    producer: Mapping[str, str]
    target: str
    model: Mapping[str, Any]
    nodes: int
    inputs: tuple[DeclaredPort, ...]
    overridable: tuple[DeclaredPort, ...]
    outputs: tuple[DeclaredPort, ...]
    dynamic: Mapping[str, SizeRange]
    features: tuple[str, ...]
    limits: Mapping[str, int]
    plans: tuple[PlanRecord, ...]
    weights: Mapping[str, tuple[Part, ...]]
    samples: tuple[SampleRecord, ...]
    files: Mapping[str, FileRecord] = field(repr=False)
    decisions: Mapping[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the content of ``manifest.json``."""
        return canonical_json(
            {
                "format": FORMAT,
                "producer": dict(self.producer),
                "target": self.target,
                "model": dict(self.model),
                "nodes": self.nodes,
                "inputs": [_port_json(port) for port in self.inputs],
                "overridable": [_port_json(port) for port in self.overridable],
                "outputs": [_port_json(port) for port in self.outputs],
                "dynamic": {name: sizes._asdict() for name, sizes in self.dynamic.items()},
                "features": sorted(web_feature(name) for name in self.features),
                "limits": {web_limit(name): value for name, value in self.limits.items()},
                "plans": [
                    {
                        "key": plan.key,
                        "file": plan.file,
                        "shapes": {name: list(dims) for name, dims in plan.shapes.items()},
                        **({"software": plan.software} if plan.software is not None else {}),
                    }
                    for plan in self.plans
                ],
                "weights": {
                    key: {
                        "bytes": sum(part.length for part in parts),
                        "parts": [{"file": part.file, "offset": part.offset, "length": part.length} for part in parts],
                    }
                    for key, parts in self.weights.items()
                },
                "samples": [
                    {"plan": sample.plan, "file": sample.file, "tolerance": sample.tolerance} for sample in self.samples
                ],
                "decisions": dict(self.decisions),
                "files": {
                    name: {"size": record.size, "sha256": list(record.chunks)} for name, record in self.files.items()
                },
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Read ``manifest.json``.  Raises :class:`ValueError` if it is not a manifest of this version."""
        try:
            content = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it is not JSON: {error}") from None
        root = Reader(content, "")
        check_format(root.get("format").value)
        files = root.mapping("files", _read_file)
        manifest = cls(
            producer=root.mapping("producer", Reader.text),
            target=root.get("target").text(),
            model=root.get("model").object(),
            nodes=root.get("nodes").number(),
            inputs=root.sequence("inputs", _read_port),
            overridable=root.sequence("overridable", _read_port),
            outputs=root.sequence("outputs", _read_port),
            dynamic=root.mapping("dynamic", _read_range),
            features=tuple(own_feature(name) for name in root.sequence("features", Reader.text)),
            limits={own_limit(name): value for name, value in root.mapping("limits", Reader.number).items()},
            plans=root.sequence("plans", _read_plan),
            weights=root.mapping("weights", lambda item: item.sequence("parts", _read_part)),
            samples=root.sequence("samples", _read_sample),
            files=files,
            decisions=root.mapping("decisions", Reader.number),
        )
        _check(manifest)
        return manifest


def _port_json(port: DeclaredPort) -> dict[str, Any]:
    return {"name": port.name, "dtype": port.dtype, "dims": None if port.dims is None else list(port.dims)}


def _read_port(item: Reader) -> DeclaredPort:
    dtype, dims = item.get("dtype"), item.get("dims")
    if dtype.value is not None and dtype.text() not in BY_NAME:
        raise ValueError(f"{dtype.location} is no element type")
    sizes = None if dims.value is None else tuple(_read_dim(dim, unknown=True) for dim in dims.items())
    return DeclaredPort(item.get("name").text(), dtype.value, sizes)


def _read_dim(item: Reader, *, unknown: bool = False) -> Any:
    if isinstance(item.value, str) or (unknown and item.value is None):
        return item.value
    return item.number()


def _read_range(item: Reader) -> SizeRange:
    low, high, step = (item.get(name).number() for name in SizeRange._fields)
    if not 0 <= low <= high or step < 1 or (high - low) % step:
        raise ValueError(f"{item.location} is no range")
    return SizeRange(low, high, step)


def _read_plan(item: Reader) -> PlanRecord:
    key = item.get("key").key()
    if item.get("file").text() != plan_file(key):
        raise ValueError(f"{item.location}.file is not '{plan_file(key)}'")
    shapes = item.mapping("shapes", lambda dims: tuple(map(_read_dim, dims.items())))
    software = item.get("software").key() if "software" in item.object() else None
    return PlanRecord(key, plan_file(key), shapes, software)


def _read_part(item: Reader) -> Part:
    part = Part(item.get("file").text(), item.get("offset").number(), item.get("length").number())
    if part.offset % 16 or part.length % 16 or not part.length:
        raise ValueError(f"{item.location} is not made of whole blocks of 16 bytes")
    return part


def _read_sample(item: Reader) -> SampleRecord:
    key, tolerance = item.get("plan").key(), item.get("tolerance").value
    if item.get("file").text() != sample_file(key):
        raise ValueError(f"{item.location}.file is not '{sample_file(key)}'")
    if type(tolerance) not in (int, float) or not 0 <= tolerance < 1:
        raise ValueError(f"{item.location}.tolerance is not between 0 and 1")
    return SampleRecord(key, sample_file(key), float(tolerance))


def _read_file(item: Reader) -> FileRecord:
    size = item.get("size").number()
    chunks = item.sequence("sha256", Reader.key)
    if len(chunks) != -(-size // CHUNK):
        raise ValueError(f"{item.location} has {len(chunks)} hashes for {size:,} bytes")
    return FileRecord(size, chunks)


def _check(manifest: Manifest) -> None:
    """Raise :class:`ValueError` if fields contradict each other."""
    for name in manifest.files:
        if not is_file_name(name) or name in (MANIFEST, DIGEST):
            raise ValueError(f"it lists a file '{name}', which no bundle may have")
    if not manifest.plans:
        raise ValueError("it has no plan")
    keys = [plan.key for plan in manifest.plans]
    if len(set(keys)) != len(keys):
        raise ValueError("it lists a plan twice")
    plans = (*manifest.plans, *(plan.for_software() for plan in manifest.plans))
    for name in (*(plan.file for plan in plans), *(sample.file for sample in manifest.samples)):
        if name not in manifest.files:
            raise ValueError(f"it does not list '{name}'")
    ports = {port.name for port in (*manifest.inputs, *manifest.overridable)}
    for plan in manifest.plans:
        if not set(plan.shapes) <= ports:
            raise ValueError(f"plan '{plan.key}' has an input that it does not list")
        for dim in {dim for dims in plan.shapes.values() for dim in dims if isinstance(dim, str)}:
            if dim not in manifest.dynamic:
                raise ValueError(f"plan '{plan.key}' has a dimension '{dim}' whose range it does not say")
    if not {sample.plan for sample in manifest.samples} <= set(keys):
        raise ValueError("it has a sample without a plan")
    for key, parts in manifest.weights.items():
        for part in parts:
            if part.file not in manifest.files or part.offset + part.length > manifest.files[part.file].size:
                raise ValueError(f"weight '{key}' lies outside the files that it lists")
