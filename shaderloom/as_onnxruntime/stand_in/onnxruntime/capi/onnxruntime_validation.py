"""The name and the version of the package."""

from __future__ import annotations

from shaderloom.as_onnxruntime.names import get_version_string

package_name, cuda_version = "onnxruntime", None
version = get_version_string()


def get_package_name_and_version_info() -> tuple[str, str, None]:
    """Return the name, the version, and None: no version of CUDA belongs to it."""
    return package_name, version, cuda_version


def check_distro_info() -> None:
    """Do nothing: any system with a driver for WebGPU's kinds of adapters will do."""
