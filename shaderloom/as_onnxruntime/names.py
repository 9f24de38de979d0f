"""The names of onnxruntime's module, and what is said of those that are absent."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ..api import real_onnxruntime
from ..api.binding import IOBinding, OrtValue
from ..api.options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from ..api.providers import get_device
from ..model.header import NodeArg
from ..runtime.plan.errors import UnsupportedError
from ..runtime.plan.manual import manual_page
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

#: Packages beside the runtime that a wheel of onnxruntime has: they read and write files of models
_TOOLS = ("datasets", "quantization", "tools", "transformers")
#: ... and the one that runs models
_BACKEND = "backend"


class AbsentNameError(UnsupportedError, AttributeError):
    """The program uses a name of onnxruntime's that this package does not have."""

    @property
    def remedy(self) -> str:  # type: ignore[override]  # a constant of the other classes
        """The page with the names that there are."""
        return f"{manual_page('guide/onnxruntime-api.md')} lists what there is"


class AbsentModuleError(UnsupportedError, ModuleNotFoundError):
    """The program imports a tool of onnxruntime's that this package does not have."""

    remedy = "pip install onnxruntime: its tools serve beside this package"


def absent(module: str, name: str) -> AttributeError:
    """Return the error for a name that ``module`` does not have."""
    if name.startswith("__"):
        return AttributeError(f"module '{module}' has no attribute '{name}'")
    return AbsentNameError(f"'{module}.{name}' is not among the names of onnxruntime that shaderloom has")


class _ToolFinder(MetaPathFinder, Loader):
    """Finds the tools of onnxruntime: those of the real package, which see that package, where it is installed."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        package, _, module = name.partition(".")
        is_tool = package == real_onnxruntime.NAME and module.partition(".")[0] in (*_TOOLS, _BACKEND)
        return ModuleSpec(name, self) if is_tool else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module of the real package.  Raises :class:`AbsentModuleError` where there is none."""
        reason = f"'{spec.name}' is not among the modules of onnxruntime that shaderloom has"
        module = spec.name.partition(".")[2]
        if module.partition(".")[0] == _BACKEND:
            raise AbsentModuleError(reason, hint="shaderloom.backend has the interface of onnx's backends")
        if not real_onnxruntime.is_installed():
            raise AbsentModuleError(reason)
        tool = real_onnxruntime.import_beside(module)
        spec.loader_state = tool.__spec__
        return tool

    def exec_module(self, module: ModuleType) -> None:
        """Give the module, which has run, its own specification back."""
        assert module.__spec__ is not None, "the import system has set that of find_spec"
        module.__spec__ = module.__spec__.loader_state


def find_tools() -> None:
    """Let imports of onnxruntime's tools give those of the real package, or raise :class:`AbsentModuleError`."""
    if not any(isinstance(finder, _ToolFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ToolFinder())  # before the finder of files, which would load a module of a tool again
