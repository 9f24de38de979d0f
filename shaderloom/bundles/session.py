"""Sessions of shader bundles: plans and weights come from the bundle, everything else works as for a model.

Nothing here imports the compiler, onnx, jinja2 or networkx.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..execution.plan_bound import DEFAULT_PLANS
from ..model.compiled import CompiledPlan, Progress, ignore_progress
from ..model.feeds import ShapeKey, shape_key
from ..model.header import ModelHeader
from ..runtime.bundle.manifest import Manifest, PlanRecord
from ..runtime.bundle.reader import Bundle
from ..runtime.device.device import Device
from ..runtime.device.opening import open_device
from ..runtime.plan.caps import Caps
from ..runtime.plan.device_profile import DeviceProfile
from ..runtime.plan.errors import BundleError, DeviceError, InputError, LimitError
from ..runtime.plan.model_metadata import ModelMetadata
from ..runtime.plan.plan import Kernel
from ..session.session import InferenceSession


def load_bundle(path: str | os.PathLike[str], **options: Any) -> BundleSession:
    """Open a shader bundle, a folder or a zip, as a session.

    ``options`` are ``device``, ``caps``, ``plans``, ``use_native``, ``preferred_output_location`` and ``progress`` of
    :class:`InferenceSession`.  The session has its methods, and ``shape_keys`` lists the shapes that the bundle was
    compiled for; other shapes are an :class:`InputError`.  Shaders of a bundle keep their bounds checks unless
    ``trust=True``: say so only of a bundle that you made, or whose maker may run code on this machine.

    Raises :class:`BundleError` for a damaged bundle, :class:`DeviceError` or :class:`LimitError` if the device lacks
    what the bundle needs.
    """
    return BundleSession(path, **options)


class BundleSession(InferenceSession):
    """Runs a bundle, with the run, report and close behaviour of :class:`InferenceSession`.

    A run with shapes that the bundle was not compiled for raises :class:`InputError`, which lists the available shapes.
    Shaders keep their bounds checks unless ``trust`` says that they come from a trusted source.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        device: str | int | Device | Any = None,
        caps: Caps | None = None,
        plans: int = DEFAULT_PLANS,
        use_native: bool | None = None,
        preferred_output_location: str | Mapping[str, str] | None = None,
        progress: Progress | None = None,
        trust: bool = False,
    ) -> None:
        self.bundle = Bundle(path)
        try:
            opened = open_device(device)
            check_device(self.bundle.manifest, opened)
            source = BundlePlans(self.bundle, caps or Caps(), progress, trust=trust)
            self._open(
                source,
                opened,
                plans=plans,
                checked=None if trust else True,
                use_native=use_native,
                preferred_output_location=preferred_output_location,
            )
        except BaseException:
            self.bundle.close()
            raise

    @property
    def shape_keys(self) -> list[ShapeKey]:
        """The shapes that the bundle was compiled for."""
        return [_shape_key(self.bundle.manifest, record) for record in self.bundle.manifest.plans]


class BundlePlans:
    """The plans of a bundle as the plan source of a session."""

    def __init__(self, bundle: Bundle, caps: Caps, progress: Progress | None = None, *, trust: bool = False) -> None:
        self.header = model_header(bundle.manifest)
        self.dynamic = bundle.manifest.dynamic
        self.caps = caps
        self.sources = bundle.read_source
        self.progress = progress or ignore_progress
        self._bundle = bundle
        self._trust = trust
        self._records = {_shape_key(bundle.manifest, record): record for record in bundle.manifest.plans}

    def key(self, shapes: Mapping[str, Sequence[int]]) -> ShapeKey:
        """Return the key of the plan for these input shapes: a bundle has plans for whole ranges alone."""
        return shape_key(self.header, shapes, self.dynamic)

    def default_shapes(self) -> dict[str, tuple[int, ...]] | None:
        """Return the input shapes of the bundle's first plan if they are all static, else None."""
        shapes: dict[str, tuple[int, ...]] = {}
        for name, dims in self._bundle.manifest.plans[0].shapes.items():
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
        """Load the bundle's plan for this key; raise :class:`InputError` if the bundle has none."""
        start = time.perf_counter()
        record = self._records.get(key)
        if record is None:
            compiled_for = "; ".join(map(str, self._records))
            raise InputError(f"the bundle was not compiled for {key}", hint=f"it was for {compiled_for}")
        if profile.is_software:
            if record.software is None:
                raise DeviceError(
                    f"the bundle's plan was compiled for GPUs, and {profile.adapter} computes on the CPU: "
                    "its driver may end long loops early",
                    hint="compile it again with --software, or open it on a GPU",
                )
            record = record.for_software()
        plan = self._bundle.plan(record)
        return CompiledPlan(plan, True, (time.perf_counter() - start) * 1e3, self._trust, BundleError)

    def as_model(self) -> None:
        """Return None: a bundle contains only plans."""
        return None

    def close(self) -> None:
        self._bundle.close()


def check_device(manifest: Manifest, device: Device) -> None:
    """Raise an error that names the feature or limit that the bundle needs and the device lacks."""
    profile = device.profile
    missing = sorted(set(manifest.features) - profile.features)
    if missing:
        raise DeviceError(f"the bundle needs the features {', '.join(missing)}, which {device.name} lacks")
    for name, needed in manifest.limits.items():
        present = profile.limits.get(name)
        if present is None:
            raise LimitError(f"the bundle needs '{name}', which is no known limit")
        if present > needed if name.startswith("min-") else present < needed:
            bound = "at most" if name.startswith("min-") else "at least"
            raise LimitError(f"the bundle needs {name} of {bound} {needed:,}; {device.name} has {present:,}")


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


def _shape_key(manifest: Manifest, record: PlanRecord) -> ShapeKey:
    """Build the shape key of a plan, its inputs in the model's order, which JSON does not preserve."""
    ports = (*manifest.inputs, *manifest.overridable)
    return ShapeKey(tuple((port.name, record.shapes[port.name]) for port in ports if port.name in record.shapes))
