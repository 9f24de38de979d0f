"""The plans and programs of a bundle, as the plan source of a session."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from ..execution.plan_source import BatchPlan
from ..model.compiled import CompiledPlan, Progress, ignore_progress
from ..model.feeds import ShapeKey, shape_key
from ..model.header import ModelHeader
from ..runtime.bundle.manifest import Manifest, PlanRecord
from ..runtime.bundle.program import ProgramRecord, StageStep
from ..runtime.bundle.reader import Bundle
from ..runtime.plan.caps import Caps
from ..runtime.plan.device_profile import DeviceProfile
from ..runtime.plan.errors import BundleError, DeviceError, InputError, NotKnownError
from ..runtime.plan.model_metadata import ModelMetadata
from ..runtime.plan.plan import Kernel


class BundlePlans:
    """The plans of a bundle as the plan source of a session."""

    def __init__(self, bundle: Bundle, caps: Caps, progress: Progress | None = None, *, trust: bool = False) -> None:
        self.header = model_header(bundle.manifest)
        self.dynamic = bundle.manifest.dynamic
        self.caps = caps
        self.sources = bundle.read_source
        self.weight_files = bundle.identity  # its models may have weights in common
        self.progress = progress or ignore_progress
        self._bundle = bundle
        self._trust = trust
        manifest = bundle.manifest
        self._records = {shape_key_of(manifest, record.shapes): record for record in manifest.plans}
        self._programs = {shape_key_of(manifest, record.shapes): record for record in manifest.programs}

    def key(self, shapes: Mapping[str, Sequence[int]]) -> ShapeKey:
        """Return the key of the plan for these input shapes: a bundle has plans for whole ranges alone."""
        return shape_key(self.header, shapes, self.dynamic)

    def default_shapes(self) -> dict[str, tuple[int, ...]] | None:
        """Return the input shapes of the bundle's first plan or program if they are all static, else None."""
        shapes: dict[str, tuple[int, ...]] = {}
        for name, dims in self._bundle.manifest.shapes[0].items():
            shapes[name] = tuple(dim for dim in dims if isinstance(dim, int))
            if len(shapes[name]) != len(dims):
                return None
        return shapes

    def compile(
        self,
        key: ShapeKey,
        shapes: Mapping[str, tuple[int, ...]],
        profile: DeviceProfile,
        on_kernel: Callable[[Kernel], None] | None = None,
    ) -> CompiledPlan:
        """Load the bundle's plan for this key.

        Raises :class:`NotKnownError` if it has a program for it, and :class:`InputError` if it has neither.
        """
        if key in self._programs:
            raise NotKnownError("the bundle has a program of several steps for these shapes")
        record = self._records.get(key)
        if record is None:
            raise self._unknown(key)
        return self.load(record, profile)

    def program(self, shapes: Mapping[str, Sequence[int]]) -> ProgramRecord:
        """Return the program for input shapes; raise :class:`InputError` if the bundle has none."""
        key = self.key(shapes)
        if key not in self._programs:
            raise self._unknown(key)
        return self._programs[key]

    def _unknown(self, key: ShapeKey) -> InputError:
        compiled_for = "; ".join(map(str, (*self._records, *self._programs)))
        return InputError(f"the bundle was not compiled for {key}", hint=f"it was for {compiled_for}")

    def load(self, record: PlanRecord | StageStep, profile: DeviceProfile) -> CompiledPlan:
        """Load the plan of a record for a device, or the one for adapters that compute on the CPU.

        Raises :class:`DeviceError` if there is none.
        """
        start = time.perf_counter()
        key: str | None = record.key
        if profile.is_software:
            key = record.software
        if key is None:
            raise DeviceError(
                f"the bundle's plan was compiled for GPUs, and {profile.adapter} computes on the CPU: "
                "its driver may end long loops early",
                hint="compile it again with --software, or open it on a GPU",
            )
        plan = self._bundle.plan(key)
        return CompiledPlan(plan, True, (time.perf_counter() - start) * 1e3, self._trust, BundleError)

    def as_model(self) -> None:
        """Return None: a bundle contains only plans."""
        return None

    def batch_plans(self) -> Sequence[BatchPlan]:
        """Return the plans that the bundle's maker has proven to compute rows independently."""
        return [BatchPlan(each.shapes, each.rows) for each in self._records.values() if each.rows is not None]

    def close(self) -> None:
        self._bundle.close()


def model_header(manifest: Manifest) -> ModelHeader:
    """Build the model header from the manifest."""
    metadata = {name: value for name, value in manifest.model.items() if name in ModelMetadata.__dataclass_fields__}
    return ModelHeader(
        inputs=manifest.inputs,
        overridable=manifest.overridable,
        outputs=manifest.outputs,
        metadata=ModelMetadata(**metadata),
        nodes=manifest.nodes,
        files={},
    )


def shape_key_of(manifest: Manifest, shapes: Mapping[str, tuple[int | str, ...]]) -> ShapeKey:
    """Build the shape key of a plan or program, its inputs in the model's order, which JSON does not preserve."""
    ports = (*manifest.inputs, *manifest.overridable)
    return ShapeKey(tuple((port.name, shapes[port.name]) for port in ports if port.name in shapes))
