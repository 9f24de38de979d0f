"""Adapters of the machine: which are usable, which is best, and which one a caller names."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..plan.device_profile import DEVICE_FEATURES, WEB_LIMITS
from ..plan.errors import DeviceError
from ..plan.record import record
from .forking import note_use
from .llvm_of_triton import keep_triton_apart

#: wgpu's backend for OpenGL: it has no bounds checks (:attr:`AdapterDescription.checks_bounds`), so it comes last
OPENGL = "OpenGL"
BACKENDS = ("Vulkan", "Metal", "D3D12", OPENGL)

_RUNTIME_FOLDER = "XDG_RUNTIME_DIR"
_KINDS = {"CPU": "cpu", "DiscreteGPU": "discrete", "IntegratedGPU": "integrated"}
_PREFERENCE = ("discrete", "integrated", "unknown", "cpu")
_NO_ADAPTER_HINT = (
    "install a Vulkan driver (on Debian and Ubuntu: apt-get install mesa-vulkan-drivers) or a current GPU driver"
)


@record(slots=False)
class AdapterDescription:
    """One adapter as ``shaderloom devices`` shows it."""

    index: int
    name: str
    driver: str
    kind: str
    backend: str
    features: tuple[str, ...]
    limits: Mapping[str, int]

    @property
    def is_software(self) -> bool:
        """Whether the driver computes on the host's processor."""
        return self.kind == "cpu"

    @property
    def identity(self) -> str:
        return f"{self.name} {self.driver}".strip()

    @property
    def checks_bounds(self) -> bool:
        """Whether shaders can have bounds checks: what wgpu translates to GLSL has none, and ends no loop."""
        return self.backend != OPENGL


def describe_adapter(index: int, adapter: Any) -> AdapterDescription:
    """Return the description of a ``wgpu.GPUAdapter``."""
    info = adapter.info
    backend = info["backend_type"]
    return AdapterDescription(
        index=index,
        name=info["device"],
        # one driver may have an adapter of the same name for Vulkan; what it calls itself there names no version of GL
        driver=f"{OPENGL} {info['description']}".strip() if backend == OPENGL else info["description"],
        kind=_KINDS.get(info["adapter_type"], "unknown"),
        backend=backend,
        features=tuple(feature for feature in DEVICE_FEATURES if feature in adapter.features),
        limits={name: adapter.limits[name] for name in sorted(WEB_LIMITS) if name in adapter.limits},
    )


def enumerate_adapters() -> list[tuple[AdapterDescription, Any]]:
    """Return the usable adapters, best first; the index counts in this order."""
    import wgpu  # needs a graphics library of the system: imported when a device is wanted, not before

    note_use()
    keep_triton_apart()
    try:
        with _runtime_folder():
            adapters = wgpu.gpu.enumerate_adapters_sync()
    except Exception as error:  # wgpu raises RuntimeError and OSError of several kinds here
        raise DeviceError(f"adapters cannot be listed: {first_line(error)}", hint=_NO_ADAPTER_HINT) from error
    usable = [adapter for adapter in adapters if adapter.info["backend_type"] in BACKENDS and _has_compute(adapter)]

    def rank(adapter: Any) -> tuple[bool, int, int]:
        description = describe_adapter(0, adapter)
        is_opengl = description.backend == OPENGL
        return is_opengl, _PREFERENCE.index(description.kind), -len(description.features)

    return [(describe_adapter(index, adapter), adapter) for index, adapter in enumerate(sorted(usable, key=rank))]


@contextmanager
def _runtime_folder() -> Iterator[None]:
    """Set the folder of a user's session where there is none, without which a library of OpenGL's, which asks for
    displays, prints errors on Linux."""
    is_needed = sys.platform == "linux" and not os.environ.get(_RUNTIME_FOLDER)
    if is_needed:
        os.environ[_RUNTIME_FOLDER] = tempfile.gettempdir()
    try:
        yield
    finally:
        if is_needed:
            os.environ.pop(_RUNTIME_FOLDER, None)  # another thread may have been here


def _has_compute(adapter: Any) -> bool:
    """Return whether an adapter has compute shaders with storage buffers; OpenGL ES 3.0 has not."""
    names = ("max-compute-invocations-per-workgroup", "max-storage-buffers-per-shader-stage")
    return all(adapter.limits[name] > 0 for name in names)


def list_adapters() -> list[AdapterDescription]:
    """Return the usable adapters, best first: discrete, integrated, unknown, then software ones; OpenGL's after all
    others, in the same order."""
    return [description for description, _ in enumerate_adapters()]


def choose_adapter(
    choice: str | int | None, adapters: list[AdapterDescription], power_preference: str | None = None
) -> AdapterDescription:
    """Return the adapter that ``choice`` names: an index, or part of its name.

    None chooses the first, or an integrated one if ``power_preference`` is ``"low-power"`` and there is one; one of
    OpenGL only where there is no other.

    Raises :class:`DeviceError` if there is none.
    """
    if not adapters:
        raise DeviceError(
            "no Vulkan, Metal, Direct3D 12 or OpenGL adapter with compute shaders was found", hint=_NO_ADAPTER_HINT
        )
    if choice is None or choice == "":
        if power_preference == "low-power":
            preferred = [adapter for adapter in adapters if adapter.backend != OPENGL] or adapters
            return next((adapter for adapter in preferred if adapter.kind == "integrated"), adapters[0])
        return adapters[0]
    text = str(choice)
    if text.isdecimal():
        matching = [adapter for adapter in adapters if adapter.index == int(text)]
    else:
        matching = [adapter for adapter in adapters if text.lower() in f"{adapter.identity} {adapter.backend}".lower()]
    if not matching:
        names = "; ".join(f"{adapter.index}: {adapter.identity}" for adapter in adapters)
        raise DeviceError(f"no adapter matches '{text}'", hint=f"adapters by index: {names}")
    return matching[0]


def first_line(error: BaseException) -> str:
    """Return the informative lines of a wgpu message, on one line of at most 800 characters."""
    lines = [line.strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line and line not in ("Validation Error", "Caused by:")]
    return " / ".join(lines)[:800] or type(error).__name__
