"""wgpu-native called directly: what wgpu-py does not wrap, and the hot loop without its per-call checks.

wgpu-py wraps every C function in a proxy that captures errors, at 5 microseconds a dispatch.  Errors of the three
pass commands are deferred to ``finish`` by the specification of WebGPU, which is still called through wgpu-py, so
calling these three functions bare loses no error.

Every user of this module checks :data:`AVAILABLE` (or catches :class:`MissingSymbolError`) and has another path.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import native_table, native_types
from .waiting import Finished, wait_in_line

try:
    native_table.import_bindings()
    from wgpu.backends.wgpu_native import GPUBindGroup, GPUShaderModule, _api, ffi, lib
    from wgpu.backends.wgpu_native._api import libf

    _set_pipeline = lib.wgpuComputePassEncoderSetPipeline
    _set_bind_group = lib.wgpuComputePassEncoderSetBindGroup
    _dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
    _ = (libf.wgpuQueueOnSubmittedWorkDone, lib.wgpuDevicePoll, libf.wgpuBufferMapAsync, libf.wgpuCommandEncoderFinish)
    AVAILABLE = True
    native_types.install(ffi)
except (ImportError, AttributeError):
    AVAILABLE = False

#: A copy: source handle and offset, target handle and offset, bytes
PreparedCopy = tuple[Any, int, Any, int, int]

#: A prepared dispatch: pipeline handle, bind group handle, workgroups in x, y, z, and the dynamic offset if it has one.
PreparedCall = tuple[Any, Any, int, int, int, int | None]


class MissingSymbolError(Exception):
    """The installed wgpu-native lacks a function."""


#: Held by every call that may use OpenGL, once :func:`take_turns` was called
_turn: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
_turns_lock = threading.Lock()


def take_turns() -> None:
    """Let the calls of wgpu-native take turns from now on, in the whole process, those of wgpu-py included.

    For OpenGL, whose context wgpu gives to one thread at a time: it ends the process when another one has waited for a
    second, and a software driver keeps the context while it computes.  Objects that the garbage collector releases on
    any thread wait for it, too.
    """
    global _turn
    with _turns_lock:
        if not AVAILABLE or not isinstance(_turn, contextlib.nullcontext):
            return
        turn = threading.RLock()  # the collector may release an object in the middle of a call
        for name, function in tuple(vars(libf).items()):
            if name.startswith("wgpu"):
                setattr(libf, name, _in_turn(turn, function))
        for kind in vars(_api).values():
            if isinstance(kind, type) and "_release_function" in vars(kind):
                kind._release_function = _in_turn(turn, kind._release_function)  # type: ignore[attr-defined]
        _turn = turn


def _in_turn(turn: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        with turn:
            return function(*arguments)

    return call


def encode(compute_pass: Any, calls: Iterable[PreparedCall]) -> None:
    """Record dispatches into a wgpu-py compute pass.  The objects behind the handles must be alive until submission."""
    _encode(compute_pass._internal, calls)


def _encode(handle: Any, calls: Iterable[PreparedCall]) -> None:
    null = ffi.NULL
    bound = None
    offset = ffi.new("uint32_t *")
    for pipeline, group, x, y, z, start in calls:
        if pipeline is not bound:
            _set_pipeline(handle, pipeline)
            bound = pipeline
        if start is None:
            _set_bind_group(handle, 0, group, 0, null)
        else:
            offset[0] = start
            _set_bind_group(handle, 0, group, 1, offset)
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


def write_buffer(queue: Any, buffer: Any, offset: int, data: memoryview) -> None:
    """Write bytes, not none and a multiple of 4, into a buffer at ``offset``.  Raises wgpu's errors."""
    with ffi.from_buffer(data) as address:  # cffi crashes where the garbage collector has to release it
        libf.wgpuQueueWriteBuffer(queue._internal, buffer._internal, offset, address, len(data))


def create_bind_group(device: Any, layout: Any, ranges: Sequence[tuple[Any, int, int]]) -> Any:
    """Bind ranges of buffers, each with its offset and size in bytes, in the order of the bindings.

    Raises wgpu's errors for ranges that are not valid.
    """
    entries = ffi.new("WGPUBindGroupEntry[]", len(ranges))
    for index, (buffer, offset, size) in enumerate(ranges):
        entry = entries[index]
        entry.binding, entry.buffer, entry.offset, entry.size = index, buffer._internal, offset, size
    descriptor = ffi.new("WGPUBindGroupDescriptor *")
    descriptor.layout, descriptor.entryCount, descriptor.entries = layout._internal, len(ranges), entries
    return GPUBindGroup("", libf.wgpuDeviceCreateBindGroup(device._internal, descriptor), device)


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


def is_idle(device: Any) -> bool:
    """Return whether the device has finished everything submitted so far; run the callbacks that are due.

    wgpu-native returns a Rust ``bool`` where its header declares a word of 32 bits: only the lowest byte is
    significant.
    """
    with _turn:
        return bool(int(lib.wgpuDevicePoll(device._internal, False, ffi.NULL)) & 0xFF)


def wait(device: Any, *, spin: bool = False) -> None:
    """Block until the device has finished everything submitted so far, and run the callbacks that are due.

    With ``spin`` a thread that waits alone asks all the time at first.
    """
    if not AVAILABLE:
        raise MissingSymbolError("wgpuQueueOnSubmittedWorkDone")
    finished, callback = _listen()
    info = ffi.new("WGPUQueueWorkDoneCallbackInfo *")
    info.mode = lib.WGPUCallbackMode_AllowProcessEvents
    info.callback = ffi.cast("WGPUQueueWorkDoneCallback", callback)
    libf.wgpuQueueOnSubmittedWorkDone(device.queue._internal, info[0])
    _wait_for(device, finished, spin)
    _callbacks.discard(callback)


def _listen() -> tuple[Finished, Any]:
    """Return a queue and a callback of wgpu-native that puts the status there, its first argument.

    wgpu-native calls back while the device is asked.  An interrupt from the keyboard would be raised in a callback
    written in Python, swallowed there, and the caller would wait for ever.  So the callback is a built-in function,
    which executes no bytecode.  It takes the first of four arguments: 64-bit calling conventions leave the others to
    the caller.  The caller takes it from :data:`_callbacks` once it was called; one that an interrupt leaves is called
    later, or when its object goes.
    """
    finished: Finished = queue.SimpleQueue()
    callback = ffi.callback("void(int)", finished.put)
    _callbacks.add(callback)
    return finished, callback


def _wait_for(device: Any, finished: Finished, spin: bool) -> int:
    """Return the status of a callback.

    No signal reaches a thread that waits inside wgpu-native, so it is asked.  Nor would the process end behind an
    interrupt, because the queue waits for its work when it goes; so it stays then.
    """
    try:
        return wait_in_line(device, finished, lambda: is_idle(device), spin=spin)
    except BaseException:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(device.queue))
        raise


def submit(queue: Any, command_buffers: Sequence[Any]) -> None:
    """Submit command buffers of wgpu-py.  Raises wgpu's errors."""
    _submit(queue, [buffer._internal for buffer in command_buffers])


def submit_recorded(queue: Any, recorded: Any) -> None:
    """Submit a command buffer of :func:`record`.  Raises wgpu's errors."""
    _submit(queue, [recorded])


def release_recorded(recorded: Any) -> None:
    """Release a command buffer of :func:`record`."""
    with _turn:
        lib.wgpuCommandBufferRelease(recorded)


def _submit(queue: Any, handles: Sequence[Any]) -> None:
    libf.wgpuQueueSubmit(queue._internal, len(handles), ffi.new("WGPUCommandBuffer[]", handles))


#: callbacks that wgpu-native may still call
_callbacks: set[Any] = set()


def map_read(device: Any, buffer: Any, size: int, *, spin: bool = False) -> None:
    """Map the first ``size`` bytes of a buffer once the work that uses it has finished, until :func:`unmap`.

    Raises RuntimeError if the buffer cannot be mapped.
    """
    MapRequest(device, buffer, size).wait(spin=spin)


class MapRequest:
    """A request to map the first ``size`` bytes of a buffer for reading, which :meth:`wait` must end."""

    def __init__(self, device: Any, buffer: Any, size: int) -> None:
        if not AVAILABLE:
            raise MissingSymbolError("wgpuBufferMapAsync")
        self._device = device
        self._finished, self._callback = _listen()
        info = ffi.new("WGPUBufferMapCallbackInfo *")
        info.mode = lib.WGPUCallbackMode_AllowProcessEvents
        info.callback = ffi.cast("WGPUBufferMapCallback", self._callback)
        libf.wgpuBufferMapAsync(buffer._internal, lib.WGPUMapMode_Read, 0, size, info[0])

    @property
    def is_done(self) -> bool:
        """Whether :meth:`wait` returns at once; the device is asked."""
        is_idle(self._device)
        return bool(self._finished.qsize())

    def wait(self, *, spin: bool = False) -> None:
        """Wait until the buffer is mapped; raise RuntimeError if it cannot be."""
        status = _wait_for(self._device, self._finished, spin)
        _callbacks.discard(self._callback)
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
