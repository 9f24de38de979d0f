"""Functions of onnxruntime's module."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from .. import notices
from ..api import providers
from ..api.real_onnxruntime import real_onnxruntime
from ..version import __version__ as own_version
from .policy import ALL_PROVIDERS, ORT_NAMES

#: The version whose names this package follows, where onnxruntime is not installed
_FOLLOWED = "1.32.0"

#: Distributions that hold onnxruntime
_DISTRIBUTIONS = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino")


def get_version_string() -> str:
    """Return the version of onnxruntime that is installed, else the one whose names this package follows."""
    for name in _DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return _FOLLOWED


def get_build_info() -> str:
    """Return in words what this is."""
    return f"Shaderloom {own_version} under the name of onnxruntime {get_version_string()}"


def get_available_providers() -> list[str]:
    """Return onnxruntime's names of the providers that this machine has, in order of preference."""
    return [ORT_NAMES[name] for name in providers.get_available_providers()]


def get_all_providers() -> list[str]:
    """Return the names of all providers that onnxruntime knows."""
    return list(ALL_PROVIDERS)


def get_ep_devices() -> list[Any]:
    """Return []: libraries of further providers are not loaded."""
    return []


def has_collective_ops() -> bool:
    """Return False: there are no operators across several processes."""
    return False


def set_default_logger_severity(severity: int) -> None:
    """Set the severity of sessions that set none: above 2 (a warning) their warnings are silent."""
    notices.set_default_severity(severity)


def set_default_logger_verbosity(verbosity: int) -> None:
    """Do nothing: the logger ``shaderloom`` has no levels below its own."""


def enable_telemetry_events() -> None:
    """Do nothing: nothing is collected."""


def disable_telemetry_events() -> None:
    """Do nothing: nothing is collected."""


def set_seed(seed: int) -> None:
    """Seed operators of random numbers, which the cpu provider runs."""
    if "onnxruntime" in providers.cpu_packages():
        real_onnxruntime().C.set_seed(seed)


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """Do nothing: no library of CUDA or of MSVC is needed."""


def print_debug_info() -> None:
    """Print what this is, and the adapters of this machine."""
    from ..runtime.device.adapters import list_adapters

    print(get_build_info())
    for adapter in list_adapters():
        print(adapter)
