"""wgpu-native called directly: what wgpu-py does not wrap, and the hot loop without its per-call checks.

wgpu-py wraps every C function in a proxy that captures errors, at 5 microseconds a dispatch.  Errors of the three
pass commands are deferred to ``finish`` by the specification of WebGPU, which is still called through wgpu-py, so
calling these three functions bare loses no error.

Every user of this module checks :data:`AVAILABLE` (or catches :class:`MissingSymbolError`) and has another path.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import native_types

try:
    from wgpu.backends.wgpu_native import GPUShaderModule, ffi, lib
    from wgpu.backends.wgpu_native._api import libf

    _set_pipeline = lib.wgpuComputePassEncoderSetPipeline
    _set_bind_group = lib.wgpuComputePassEncoderSetBindGroup
    _dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
    _ = (libf.wgpuQueueSubmitForIndex, lib.wgpuDevicePoll, libf.wgpuBufferMapAsync, libf.wgpuCommandEncoderFinish)
    AVAILABLE = True
    native_types.install(ffi)
except (ImportError, AttributeError):
    AVAILABLE = False

#: A copy: source handle and offset, target handle and offset, bytes
PreparedCopy = tuple[Any, int, Any, int, int]

#: A prepared dispatch: pipeline handle, bind group handle, workgroups in x, y, z.
PreparedCall = tuple[Any, Any, int, int, int]


#: seconds until the device is asked again for a map that another thread may be finishing
_MAP_PATIENCE = 0.02


class MissingSymbolError(Exception):
    """The installed wgpu-native lacks a function."""


def encode(compute_pass: Any, calls: Iterable[PreparedCall]) -> None:
    """Record dispatches into a wgpu-py compute pass.  The objects behind the handles must be alive until submission."""
    _encode(compute_pass._internal, calls)


def _encode(handle: Any, calls: Iterable[PreparedCall]) -> None:
    null = ffi.NULL
    bound = None
    for pipeline, group, x, y, z in calls:
        if pipeline is not bound:
            _set_pipeline(handle, pipeline)
            bound = pipeline
        _set_bind_group(handle, 0, group, 0, null)
        _dispatch(handle, x, y, z)


def record(
    device: Any, before: Iterable[PreparedCopy], calls: Sequence[PreparedCall], after: Iterable[PreparedCopy]
) -> Any:
    """Record a command buffer: copies, one compute pass, copies.  Pass it to :func:`submit_recorded`.

    Raises wgpu's errors for invalid commands: ``finish`` reports what the commands before have deferred.
    """
    encoder = libf.wgpuDeviceCreateCommandEncoder(device._internal, ffi.NULL)
    try:
        for copy in before:
            libf.wgpuCommandEncoderCopyBufferToBuffer(encoder, *copy)
        if calls:
            compute_pass = lib.wgpuCommandEncoderBeginComputePass(encoder, ffi.NULL)
            try:
                _encode(compute_pass, calls)
                lib.wgpuComputePassEncoderEnd(compute_pass)
            finally:
                lib.wgpuComputePassEncoderRelease(compute_pass)
        for copy in after:
            libf.wgpuCommandEncoderCopyBufferToBuffer(encoder, *copy)
        return libf.wgpuCommandEncoderFinish(encoder, ffi.NULL)
    finally:
        lib.wgpuCommandEncoderRelease(encoder)


def create_trusted_module(device: Any, wgsl: str) -> Any:
    """Create a shader module without run-time bounds checks and loop bounding.

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


#: Seconds for which a thread asks a GPU again and again before it sleeps: waking up takes up to 0.1 ms
SPIN_SECONDS = 0.002


def is_idle(device: Any) -> bool:
    """Return whether the device has finished everything submitted so far; run the callbacks that are due.

    wgpu-native returns a Rust ``bool`` where its header declares a word of 32 bits: only the lowest byte is
    significant.
    """
    return bool(int(lib.wgpuDevicePoll(device._internal, False, ffi.NULL)) & 0xFF)


def wait(
    device: Any, submission: int | None = None, *, spin: bool = False, done: Callable[[], object] = lambda: False
) -> None:
    """Block until the device has finished a submission, or all of them, and run the callbacks that are due.

    With ``spin`` the thread asks for a short while before it sleeps, until nothing is left to do or ``done`` says so.
    """
    if not AVAILABLE:
        raise MissingSymbolError("wgpuDevicePoll")
    if spin:
        end = time.perf_counter() + SPIN_SECONDS
        while time.perf_counter() < end:
            if is_idle(device) or done():
                return
    index = ffi.NULL if submission is None else ffi.new("WGPUSubmissionIndex *", submission)
    lib.wgpuDevicePoll(device._internal, True, index)


def submit(queue: Any, command_buffers: Sequence[Any]) -> int:
    """Submit command buffers of wgpu-py, and return a number to wait for.  Raises wgpu's errors."""
    return _submit(queue, [buffer._internal for buffer in command_buffers])


def submit_recorded(queue: Any, recorded: Any) -> int:
    """Submit a command buffer of :func:`record`, and return a number to wait for.  Raises wgpu's errors."""
    return _submit(queue, [recorded])


def release_recorded(recorded: Any) -> None:
    """Release a command buffer of :func:`record`."""
    lib.wgpuCommandBufferRelease(recorded)


def _submit(queue: Any, handles: Sequence[Any]) -> int:
    return int(libf.wgpuQueueSubmitForIndex(queue._internal, len(handles), ffi.new("WGPUCommandBuffer[]", handles)))


#: callbacks that wgpu-native may still call
_callbacks: set[Any] = set()


def map_read(device: Any, buffer: Any, size: int, submission: int | None, *, spin: bool = False) -> None:
    """Map the first ``size`` bytes of a buffer once a submission has finished (None: all), until :func:`unmap`.

    wgpu-native calls back inside :func:`wait`.  An interrupt from the keyboard would be raised in a callback written in
    Python, swallowed there, and the caller would wait for ever.  So the callback is a built-in function, which executes
    no bytecode.  It takes the first of four arguments: 64-bit calling conventions leave the others to the caller.

    Raises RuntimeError if the buffer cannot be mapped.
    """
    if not AVAILABLE:
        raise MissingSymbolError("wgpuBufferMapAsync")
    finished: queue.SimpleQueue[int] = queue.SimpleQueue()
    callback = ffi.callback("void(int)", finished.put)
    info = ffi.new("WGPUBufferMapCallbackInfo *")
    info.mode = lib.WGPUCallbackMode_AllowProcessEvents
    info.callback = ffi.cast("WGPUBufferMapCallback", callback)
    _callbacks.add(callback)  # an interrupt below leaves it there: it is called when the buffer goes
    libf.wgpuBufferMapAsync(buffer._internal, lib.WGPUMapMode_Read, 0, size, info[0])
    wait(device, submission, spin=spin, done=finished.qsize)
    while True:
        try:
            status = finished.get(timeout=_MAP_PATIENCE)  # another thread may be inside the callback
            break
        except queue.Empty:
            wait(device)
    _callbacks.discard(callback)
    if status != lib.WGPUMapAsyncStatus_Success:
        raise RuntimeError(f"the buffer was not mapped (status {status})")


def mapped(buffer: Any, size: int) -> memoryview:
    """Return the first ``size`` bytes of a mapped buffer; the process ends if the buffer was destroyed."""
    address = libf.wgpuBufferGetMappedRange(buffer._internal, 0, size)
    return memoryview(ffi.buffer(address, size)).toreadonly()


def unmap(buffer: Any) -> None:
    """End a :func:`map_read`; views of :func:`mapped` must not be used any more."""
    libf.wgpuBufferUnmap(buffer._internal)


def timestamp_period(queue: Any) -> float:
    """Return the nanoseconds per tick of timestamp queries."""
    if not AVAILABLE or not hasattr(lib, "wgpuQueueGetTimestampPeriod"):
        raise MissingSymbolError("wgpuQueueGetTimestampPeriod")
    return float(lib.wgpuQueueGetTimestampPeriod(queue._internal))
