"""Shaderloom: a graph compiler that turns ONNX models into fused WGSL compute shaders and runs them on any GPU.

    import shaderloom

    session = shaderloom.InferenceSession("model.onnx")
    (result,) = session.run(None, {"input": array})

Names are loaded when they are first used, so that importing this package costs nothing and a program that never
compiles never loads the compiler.
"""

from __future__ import annotations

import importlib

from .version import __version__ as __version__

TYPE_CHECKING = False  # to import typing takes ten times as long as this module: too long without an answer to Ctrl-C
if TYPE_CHECKING:
    from typing import Any

    from .api.async_run import AsyncRun
    from .api.binding import IOBinding, OrtValue
    from .api.options import ExecutionMode, GraphOptimizationLevel, RunOptions, SessionOptions
    from .api.providers import get_available_providers, get_device
    from .api.values import InputValue, OutputValue, Session, SupportsArray, SupportsDLPack
    from .as_onnxruntime import install_as_onnxruntime
    from .bundles.session import load_bundle
    from .compiler.ops.registry import register as register_operator
    from .generate.generator import Generator
    from .model.header import NodeArg
    from .notices import ShaderloomWarning, SoftwareAdapterWarning
    from .pool.pool import Pool
    from .runtime.device.adapters import list_adapters
    from .runtime.device.device import Device
    from .runtime.device.opening import open_device
    from .runtime.memory.tensor import Tensor
    from .runtime.plan.caps import Caps
    from .runtime.plan.errors import (
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
    from .session.session import InferenceSession
    from .torch.from_torch import from_torch

#: public name -> module, or module:attribute where the name differs
_HOMES = {
    "InferenceSession": "session.session",
    "SessionOptions": "api.options",
    "RunOptions": "api.options",
    "GraphOptimizationLevel": "api.options",
    "ExecutionMode": "api.options",
    "IOBinding": "api.binding",
    "OrtValue": "api.binding",
    "AsyncRun": "api.async_run",
    "NodeArg": "model.header",
    "InputValue": "api.values",
    "OutputValue": "api.values",
    "Session": "api.values",
    "SupportsArray": "api.values",
    "SupportsDLPack": "api.values",
    "get_available_providers": "api.providers",
    "get_device": "api.providers",
    "install_as_onnxruntime": "as_onnxruntime",
    "load_bundle": "bundles.session",
    "from_torch": "torch.from_torch",
    "Generator": "generate.generator",
    "Pool": "pool.pool",
    "Tensor": "runtime.memory.tensor",
    "Caps": "runtime.plan.caps",
    "Device": "runtime.device.device",
    "list_adapters": "runtime.device.adapters",
    "open_device": "runtime.device.opening",
    "register_operator": "compiler.ops.registry:register",
    "ShaderloomWarning": "notices",
    "SoftwareAdapterWarning": "notices",
    "BundleError": "runtime.plan.errors",
    "ClosedError": "runtime.plan.errors",
    "DeviceError": "runtime.plan.errors",
    "DeviceLost": "runtime.plan.errors",
    "InputError": "runtime.plan.errors",
    "InternalError": "runtime.plan.errors",
    "LimitError": "runtime.plan.errors",
    "ModelError": "runtime.plan.errors",
    "Origin": "runtime.plan.errors",
    "ShaderloomError": "runtime.plan.errors",
    "ShapeError": "runtime.plan.errors",
    "UnsupportedError": "runtime.plan.errors",
}

__all__ = [
    "InferenceSession",
    "SessionOptions",
    "RunOptions",
    "GraphOptimizationLevel",
    "ExecutionMode",
    "IOBinding",
    "OrtValue",
    "AsyncRun",
    "NodeArg",
    "InputValue",
    "OutputValue",
    "Session",
    "SupportsArray",
    "SupportsDLPack",
    "get_available_providers",
    "get_device",
    "install_as_onnxruntime",
    "load_bundle",
    "from_torch",
    "Generator",
    "Pool",
    "Tensor",
    "Caps",
    "Device",
    "list_adapters",
    "open_device",
    "register_operator",
    "ShaderloomWarning",
    "SoftwareAdapterWarning",
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
    from .runtime.plan.garbage import RareCollections

    module, _, attribute = _HOMES[name].partition(":")
    with RareCollections():
        value = getattr(importlib.import_module(f"{__name__}.{module}"), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
