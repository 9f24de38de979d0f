"""The plan that ``inspect`` shows, from a model or a bundle, with the facts that identify it.

``facts`` are JSON values that are the same in every run: name, kind, digest, shapes, device profile, options, versions.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..plans.describe import describe_plan
from ..plans.placement import Placement, of_plan
from ..runtime.bundle.files import is_bundle
from ..runtime.plan.device_profile import DeviceProfile
from ..runtime.plan.errors import InputError
from ..runtime.plan.plan import Plan
from ..runtime.plan.record import record
from ..runtime.plan.size_range import SizeRange
from ..version import __version__

if TYPE_CHECKING:
    from ..model.model import Model

Shapes = Mapping[str, tuple[int, ...]]


@record(slots=False)
class InspectedPlan:
    """A plan to inspect.  ``profile`` is its device profile; ``placements`` are the model's nodes (bundle: none)."""

    plan: Plan
    profile: DeviceProfile
    facts: dict[str, Any]
    placements: tuple[Placement, ...] = ()

    def describe(self) -> dict[str, Any]:
        """Return the plan with its shaders' texts, and the placement of its nodes, as JSON values."""
        nodes = {"placements": [asdict(row) for row in self.placements]} if self.placements else {}
        return {"subject": self.facts, **describe_plan(self.plan, text=True), **nodes}


def inspect_model(model: Model, shapes: Shapes, profile: DeviceProfile) -> InspectedPlan:
    """Compile a model, or load its plan from the disk cache, for inspection."""
    key = model.key(shapes)
    if model.calibration is not None and model.calibration.is_due:
        model.calibrate_on_host(shapes, profile)
    plan = model.compile(key, shapes, profile).plan
    placements = of_plan(model.imported, plan)
    return InspectedPlan(plan, profile, model_facts(model, key.to_json(), plan, profile), tuple(placements))


def model_facts(model: Model, shape_key: Mapping[str, Any], plan: Plan, profile: DeviceProfile) -> dict[str, Any]:
    """Return the facts that identify a plan of a model."""
    return {
        "kind": "model",
        "name": model.file.path.name if model.file.path else "model",
        "sha256": model.file.digest(),
        "shape_key": dict(shape_key),
        "plan_key": plan.key,
        "options": model.options.stated,
        "dynamic": model.sizes.describe(),
        "profile": profile.to_json(),
        "versions": _versions("onnx", "wgpu", "numpy"),
    }


def size_rows(dynamic: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the ranges and points of sizes with plans of their own, and why other ranges have none, as label and text.

    ``dynamic`` is from :func:`model_facts`, empty for a bundle.
    """
    rows = [
        (f"{kind} with plans of their own (dynamic {dynamic['mode']})", "; ".join(dynamic[kind]))
        for kind in ("ranges", "points")
        if dynamic.get(kind)
    ]
    return [*rows, *((f"no plan for {sizes}", reason) for sizes, reason in dynamic.get("refused", {}).items())]


def inspect_bundle(path: Path, shapes: Shapes, kind: str = "unknown") -> InspectedPlan:
    """Select one of a bundle's plans: that for ``shapes``, or the first, with the choices for an adapter of this
    ``kind``.

    Of a program it is the stage of the most calls.  Raises :class:`InputError` if there is none.
    """
    from ..runtime.bundle.manifest import PlanRecord
    from ..runtime.bundle.program import ProgramRecord, StageStep
    from ..runtime.bundle.reader import Bundle

    with Bundle(path) as bundle:
        manifest = bundle.manifest
        wanted = {name: tuple(shape) for name, shape in shapes.items()}
        records: list[PlanRecord | ProgramRecord] = [*manifest.plans, *manifest.programs]
        for record in records:
            if all(_fits(record.shapes.get(name), shape, manifest.dynamic) for name, shape in wanted.items()):
                break
        else:
            listed = "; ".join(
                ", ".join(f"{name}={'x'.join(map(str, dims))}" for name, dims in each.items())
                for each in manifest.shapes
            )
            raise InputError("the bundle has no plan for these shapes", hint=f"it has {listed}")
        profile = DeviceProfile(kind, manifest.target, frozenset(manifest.features), dict(manifest.limits))
        stages: list[PlanRecord | StageStep] = [record] if isinstance(record, PlanRecord) else [*record.stages]
        keys = [(stage.software if profile.is_software else None) or stage.key for stage in stages]
        plan = max(map(bundle.plan, keys), key=lambda each: len(each.calls))
        facts = {
            "kind": "bundle",
            "name": path.name,
            "sha256": hashlib.sha256(manifest.to_bytes()).hexdigest(),
            "shape_key": {name: list(dims) for name, dims in record.shapes.items()},
            "plan_key": plan.key,
            "options": {},
            "profile": profile.to_json(),
            "versions": dict(manifest.producer),
        }
        return InspectedPlan(plan, profile, facts)


def read_description(path: Path) -> dict[str, Any]:
    """Read a description that ``inspect --json`` wrote.  Raises :class:`InputError` if the file is something else."""
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror or error}", hint="check the path") from error
    except ValueError as error:
        raise InputError(f"cannot read '{path}': {error}", hint="it must be what inspect --json prints") from error
    needed = {"kernels", "call_list"}
    if not isinstance(description, dict) or not needed <= description.keys():
        raise InputError(f"'{path}' is not the description of a plan", hint="it must be what inspect --json prints")
    return description


def looks_like_bundle(path: Path) -> bool:
    return is_bundle(path)


def _fits(dims: Sequence[int | str] | None, shape: tuple[int, ...], dynamic: Mapping[str, SizeRange]) -> bool:
    if dims is None or len(dims) != len(shape):
        return False
    return all(dynamic[dim].allows(size) if isinstance(dim, str) else dim == size for dim, size in zip(dims, shape))


def _versions(*packages: str) -> dict[str, str]:
    versions = {"shaderloom": __version__}
    for package in packages:
        versions[package] = importlib.metadata.version(package)
    return versions
