"""The manifest of a bundle.

It is checked before it is read (:mod:`.structure`, :mod:`.manifest_relations`): a :class:`Manifest` names only files
that it lists, parts of weights lie inside their files, and every plan has one file.  Fields that a newer minor version
added are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from ..plan.batch_ports import BatchPorts
from ..plan.declared_port import DeclaredPort
from ..plan.format import FORMAT
from ..plan.record import record
from ..plan.size_range import SizeRange
from .format import canonical_json, own_feature, own_limit, plan_file, web_feature, web_limit
from .manifest_relations import check_further, check_manifest
from .program import ProgramRecord
from .structure import read


@record
class FileRecord:
    """Size of a file and sha256 of each of its chunks, in hex."""

    size: int
    chunks: tuple[str, ...]


@record
class Part:
    """A range of a file that holds a weight, or a piece of one.  All numbers are multiples of 16."""

    file: str
    offset: int
    length: int


@record
class PlanRecord:
    """``shapes`` has the inputs that must be fed: numbers, or names of dynamic dimensions.

    ``software`` is the key of the same plan with kernels for adapters that compute on the CPU, its own where it suits
    them; None if there is none.  ``rows``: the compiler has proven that rows of a batch along these axes are
    independent; a bundle's reader believes it.
    """

    key: str
    file: str
    shapes: Mapping[str, tuple[int | str, ...]]
    software: str | None = None
    rows: BatchPorts | None = None

    def for_software(self) -> PlanRecord:
        """Return the plan to use on an adapter that computes on the CPU."""
        if self.software is None:
            return self
        return PlanRecord(self.software, plan_file(self.software), self.shapes, rows=self.rows)


@record
class SampleRecord:
    """Inputs and expected outputs of the plan with key ``plan``."""

    plan: str
    file: str
    tolerance: float


@record(slots=False)
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
    programs: tuple[ProgramRecord, ...] = ()
    content: Any = field(default=None, repr=False, compare=False)  #: the JSON value that it was read from

    @property
    def plan_keys(self) -> list[str]:
        """The keys of all plans, those of stages and for adapters that compute on the CPU too, each once."""
        pairs = [(plan.key, plan.software) for plan in self.plans]
        pairs += [(stage.key, stage.software) for program in self.programs for stage in program.stages]
        return list(dict.fromkeys(key for pair in pairs for key in pair if key is not None))

    @property
    def shapes(self) -> list[Mapping[str, tuple[int | str, ...]]]:
        """The shapes of the plans that are no stages, and of the programs behind them."""
        return [*(plan.shapes for plan in self.plans), *(program.shapes for program in self.programs)]

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
                        **({"rows": _rows_json(plan.rows)} if plan.rows is not None else {}),
                    }
                    for plan in self.plans
                ],
                **({"programs": [program.to_json() for program in self.programs]} if self.programs else {}),
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
    def from_bytes(cls, data: bytes, own: Manifest | None = None) -> Manifest:
        """Read ``manifest.json``, or the manifest of a further model in the bundle with the manifest ``own``.

        Raises :class:`ValueError` if it is not a manifest of this version.
        """
        root = read(data, "manifest")
        check_manifest(root)
        if own is not None:
            check_further(root, own.content)
        return cls(
            producer=root["producer"],
            target=root["target"],
            model=root["model"],
            nodes=root["nodes"],
            inputs=_ports(root["inputs"]),
            overridable=_ports(root["overridable"]),
            outputs=_ports(root["outputs"]),
            dynamic={
                name: SizeRange(item["low"], item["high"], item["step"]) for name, item in root["dynamic"].items()
            },
            features=tuple(map(own_feature, root["features"])),
            limits={own_limit(name): value for name, value in root["limits"].items()},
            plans=tuple(map(_plan, root["plans"])),
            programs=tuple(map(ProgramRecord.from_json, root.get("programs", ()))),
            weights={key: tuple(map(_part, item["parts"])) for key, item in root["weights"].items()},
            samples=tuple(map(_sample, root["samples"])),
            files={name: _file(item) for name, item in root["files"].items()},
            decisions=root["decisions"],
            content=root,
        )


def _port_json(port: DeclaredPort) -> dict[str, Any]:
    return {"name": port.name, "dtype": port.dtype, "dims": None if port.dims is None else list(port.dims)}


def _ports(items: Sequence[Any]) -> tuple[DeclaredPort, ...]:
    return tuple(
        DeclaredPort(item["name"], item["dtype"], None if item["dims"] is None else tuple(item["dims"]))
        for item in items
    )


def _plan(item: Any) -> PlanRecord:
    shapes = {name: tuple(dims) for name, dims in item["shapes"].items()}
    rows = item.get("rows")
    ports = None if rows is None else BatchPorts(rows["inputs"], rows["outputs"])
    return PlanRecord(item["key"], item["file"], shapes, item.get("software"), ports)


def _rows_json(rows: BatchPorts) -> dict[str, Any]:
    return {"inputs": dict(rows.inputs), "outputs": dict(rows.outputs)}


def _part(item: Any) -> Part:
    return Part(item["file"], item["offset"], item["length"])


def _sample(item: Any) -> SampleRecord:
    return SampleRecord(item["plan"], item["file"], float(item["tolerance"]))


def _file(item: Any) -> FileRecord:
    return FileRecord(item["size"], tuple(item["sha256"]))
