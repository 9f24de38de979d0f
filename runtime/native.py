"""wgpu-native called directly: what wgpu-py does not wrap, and the hot loop without its per-call checks.

wgpu-py wraps every C function in a proxy that captures errors, at 5 microseconds a dispatch.  Errors of the three
pass commands are deferred to ``finish`` by the specification of WebGPU, which is still called through wgpu-py, so
calling these three functions bare loses no error.

Every user of this module checks :data:`AVAILABLE` (or catches :class:`MissingSymbolError`) and has another path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from . import native_types

try:
    from wgpu.backends.wgpu_native import GPUShaderModule, ffi, lib
    from wgpu.backends.wgpu_native._api import libf

    _set_pipeline = lib.wgpuComputePassEncoderSetPipeline
    _set_bind_group = lib.wgpuComputePassEncoderSetBindGroup
    _dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
    AVAILABLE = True
    native_types.install(ffi)
except (ImportError, AttributeError):
    AVAILABLE = False

#: A prepared dispatch: pipeline handle, bind group handle, workgroups in x, y, z.
PreparedCall = tuple[Any, Any, int, int, int]


class MissingSymbolError(Exception):
    """The installed wgpu-native lacks a function."""


def encode(compute_pass: Any, calls: Iterable[PreparedCall]) -> None:
    """Record dispatches into a wgpu-py compute pass.  The objects behind the handles must be alive until submission."""
    handle = compute_pass._internal
    null = ffi.NULL
    bound = None
    for pipeline, group, x, y, z in calls:
        if pipeline is not bound:
            _set_pipeline(handle, pipeline)
            bound = pipeline
        _set_bind_group(handle, 0, group, 0, null)
        _dispatch(handle, x, y, z)


def create_trusted_module(device: Any, wgsl: str) -> Any:
    """A shader module without run-time bounds checks and loop bounding.

    Only for WGSL that this process has just generated: an access out of bounds is undefined behaviour.  Raises
    :class:`MissingSymbolError` where wgpu-native has no such function, and wgpu's errors for invalid WGSL.
    """
    if not AVAILABLE or not hasattr(libf, "wgpuDeviceCreateShaderModuleTrusted"):
        raise MissingSymbolError("wgpuDeviceCreateShaderModuleTrusted")
    encoded = wgsl.encode()
    text = ffi.new("char[]", encoded)
    source = ffi.new("WGPUShaderSourceWGSL *")
    source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
    source.code.data = text
    source.code.length = len(encoded)
    descriptor = ffi.new("WGPUShaderModuleDescriptor *")
    descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
    handle = libf.wgpuDeviceCreateShaderModuleTrusted(device._internal, descriptor, 0)
    return GPUShaderModule("", handle, device)


def wait(device: Any, submission: int | None = None) -> None:
    """Block until the device has finished a submission, or all of them, and run the callbacks that are due."""
    if not AVAILABLE:
        raise MissingSymbolError("wgpuDevicePoll")
    index = ffi.NULL if submission is None else ffi.new("WGPUSubmissionIndex *", submission)
    lib.wgpuDevicePoll(device._internal, True, index)


def submit(queue: Any, command_buffers: Sequence[Any]) -> int:
    """Submit, and give a number to wait for.  Raises wgpu's errors."""
    if not AVAILABLE or not hasattr(libf, "wgpuQueueSubmitForIndex"):
        raise MissingSymbolError("wgpuQueueSubmitForIndex")
    handles = ffi.new("WGPUCommandBuffer[]", [buffer._internal for buffer in command_buffers])
    return int(libf.wgpuQueueSubmitForIndex(queue._internal, len(command_buffers), handles))


def timestamp_period(queue: Any) -> float:
    """Nanoseconds per tick of timestamp queries."""
    if not AVAILABLE or not hasattr(lib, "wgpuQueueGetTimestampPeriod"):
        raise MissingSymbolError("wgpuQueueGetTimestampPeriod")
    return float(lib.wgpuQueueGetTimestampPeriod(queue._internal))
