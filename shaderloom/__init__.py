"""Shaderloom: a graph compiler that turns ONNX models into fused WGSL compute shaders and runs them on any GPU.

    import shaderloom

    session = shaderloom.InferenceSession("model.onnx")
    (result,) = session.run(None, {"input": array})

Names are loaded when they are first used, so that importing this package costs nothing and a program that never
compiles never loads the compiler.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .binding import IOBinding, OrtValue
    from .bundle_session import load_bundle
    from .compiler.ops.registry import register as register_operator
    from .options import ExecutionMode, GraphOptimizationLevel, RunOptions, SessionOptions
    from .providers import get_available_providers, get_device
    from .runtime.caps import Caps
    from .runtime.device import Device, list_adapters, open_device
    from .runtime.errors import (
        BundleError,
        ClosedError,
        DeviceError,
        DeviceLost,
        InputError,
        InternalError,
        LimitError,
        ModelError,
        Origin,
        ShaderloomError,
        ShapeError,
        UnsupportedError,
    )
    from .runtime.tensor import Tensor
    from .session import InferenceSession

__version__ = "0.1.0"

#: public name -> module, or module:attribute where the name differs
_HOMES = {
    "InferenceSession": "session",
    "SessionOptions": "options",
    "RunOptions": "options",
    "GraphOptimizationLevel": "options",
    "ExecutionMode": "options",
    "IOBinding": "binding",
    "OrtValue": "binding",
    "get_available_providers": "providers",
    "get_device": "providers",
    "load_bundle": "bundle_session",
    "Tensor": "runtime.tensor",
    "Caps": "runtime.caps",
    "Device": "runtime.device",
    "list_adapters": "runtime.device",
    "open_device": "runtime.device",
    "register_operator": "compiler.ops.registry:register",
    "BundleError": "runtime.errors",
    "ClosedError": "runtime.errors",
    "DeviceError": "runtime.errors",
    "DeviceLost": "runtime.errors",
    "InputError": "runtime.errors",
    "InternalError": "runtime.errors",
    "LimitError": "runtime.errors",
    "ModelError": "runtime.errors",
    "Origin": "runtime.errors",
    "ShaderloomError": "runtime.errors",
    "ShapeError": "runtime.errors",
    "UnsupportedError": "runtime.errors",
}

__all__ = [
    "InferenceSession",
    "SessionOptions",
    "RunOptions",
    "GraphOptimizationLevel",
    "ExecutionMode",
    "IOBinding",
    "OrtValue",
    "get_available_providers",
    "get_device",
    "load_bundle",
    "Tensor",
    "Caps",
    "Device",
    "list_adapters",
    "open_device",
    "register_operator",
    "ShaderloomError",
    "Origin",
    "ModelError",
    "BundleError",
    "UnsupportedError",
    "ShapeError",
    "InputError",
    "LimitError",
    "DeviceError",
    "DeviceLost",
    "ClosedError",
    "InternalError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
