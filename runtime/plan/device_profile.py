"""Device profiles: features, limits and identity, the only data about a device that the compiler reads."""

from __future__ import annotations

from dataclasses import asdict, field
from typing import Any

from .record import record

#: WebGPU's default limits: what every browser and every adapter grants
WEB_LIMITS: dict[str, int] = {
    "max-bind-groups": 4,
    "max-buffer-size": 256 << 20,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroup-size-y": 256,
    "max-compute-workgroup-size-z": 64,
    "max-compute-workgroup-storage-size": 16384,
    "max-compute-workgroups-per-dimension": 65535,
    "max-storage-buffer-binding-size": 128 << 20,
    "max-storage-buffers-per-shader-stage": 8,
    "max-uniform-buffer-binding-size": 65536,
    "min-storage-buffer-offset-alignment": 256,
    "min-uniform-buffer-offset-alignment": 256,
}

#: Features that kernels can make use of
DEVICE_FEATURES = ("shader-f16", "subgroup", "timestamp-query", "shader-int64")
#: Products of four signed bytes a word, added up: WGSL's ``dot4I8Packed``
BYTE_PRODUCTS = "packed_4x8_integer_dot_product"
#: Features of the language that kernels can make use of, which no device is asked for; wgpu-native has them
LANGUAGE_FEATURES = (BYTE_PRODUCTS,)


@record(slots=False)
class DeviceProfile:
    """Features and limits that a plan is compiled for.

    ``kind`` is ``"cpu"`` for software drivers, ``"discrete"``, ``"integrated"`` or ``"unknown"``.  ``driver``
    identifies the adapter and driver version for the tuning database.
    """

    kind: str = "unknown"
    driver: str = "web"
    features: frozenset[str] = frozenset()
    limits: dict[str, int] = field(default_factory=lambda: dict(WEB_LIMITS))
    #: threads of a subgroup, measured on software drivers where it does not vary; 0: not known
    subgroup_size: int = 0
    #: name of the adapter; "" for profiles of no adapter in particular.  ``driver`` begins with it
    adapter: str = ""

    def limit(self, name: str) -> int:
        return self.limits[name]

    @property
    def is_software(self) -> bool:
        """Whether the driver computes on the host's processor."""
        return self.kind == "cpu"

    @property
    def storage_alignment(self) -> int:
        """Bytes to which offsets of storage bindings are aligned."""
        return self.limits["min-storage-buffer-offset-alignment"]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "features": sorted(self.features), "limits": dict(sorted(self.limits.items()))}


#: The least device: default limits, no features.  What tests compile for, and the ``web`` target of bundles.
WEB = DeviceProfile()
