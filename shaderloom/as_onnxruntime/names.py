"""The names of onnxruntime's module, and what is said of those that are absent."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

from ..api.binding import IOBinding, OrtValue
from ..api.options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from ..api.providers import get_device
from ..model.header import NodeArg
from ..runtime.plan.errors import UnsupportedError
from ..runtime.plan.model_metadata import ModelMetadata
from .functions import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_ep_devices,
    get_version_string,
    has_collective_ops,
    preload_dlls,
    print_debug_info,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
)
from .session import ProgramSession as InferenceSession

#: onnxruntime's other name of the class
SessionIOBinding = IOBinding

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "print_debug_info",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

_PAGE = "docs/guide/onnxruntime-api.md lists what there is"

#: Packages beside the runtime that a wheel of onnxruntime has
_TOOLS = ("backend", "datasets", "quantization", "tools", "transformers")


class AbsentNameError(UnsupportedError, AttributeError):
    """The program uses a name of onnxruntime's that this package does not have."""

    remedy = _PAGE


class AbsentModuleError(UnsupportedError, ModuleNotFoundError):
    """The program imports a tool of onnxruntime's that this package does not have."""

    remedy = "run this program without shaderloom.as_onnxruntime: the tool belongs to the real onnxruntime"


def absent(module: str, name: str) -> AttributeError:
    """Return the error for a name that ``module`` does not have."""
    if name.startswith("__"):
        return AttributeError(f"module '{module}' has no attribute '{name}'")
    return AbsentNameError(f"'{module}.{name}' is not among the names of onnxruntime that shaderloom has")


class _ToolFinder(MetaPathFinder, Loader):
    """Finds the tools of onnxruntime, to say on import that they are absent."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        package, _, module = name.partition(".")
        return ModuleSpec(name, self) if package == "onnxruntime" and module in _TOOLS else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None: Python makes the module."""

    def exec_module(self, module: ModuleType) -> NoReturn:
        """Raise :class:`AbsentModuleError`."""
        raise AbsentModuleError(f"'{module.__name__}' is not among the modules of onnxruntime that shaderloom has")


def refuse_tools() -> None:
    """Let imports of onnxruntime's tools raise :class:`AbsentModuleError`."""
    if not any(isinstance(finder, _ToolFinder) for finder in sys.meta_path):
        sys.meta_path.append(_ToolFinder())
