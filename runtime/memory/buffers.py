"""Owned device buffers: accounted, grown in steps, padded uploads, and pooled staging buffers for reading back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..device import native
from ..device.device import Device
from ..device.forking import is_forked
from ..plan.caps import MemoryAccount
from ..plan.errors import LimitError

# Buffer usages of the WebGPU specification.
MAP_READ = 0x0001
COPY_SRC = 0x0004
COPY_DST = 0x0008
UNIFORM = 0x0040
STORAGE = 0x0080
QUERY_RESOLVE = 0x0200

TENSOR = STORAGE | COPY_SRC | COPY_DST

UPLOAD_CHUNK = 16 << 20  #: bytes of one write
_STAGED_BYTES = 2 * UPLOAD_CHUNK  #: bytes that writes may hold in wgpu's own staging memory


class OwnedBuffer:
    """A buffer that this object alone destroys.  ``size`` is a multiple of 16 and counted in the account."""

    def __init__(self, device: Device, account: MemoryAccount, size: int, usage: int, label: str) -> None:
        size = max((size + 15) // 16 * 16, 16)
        account.reserve(size, f"'{label}'")
        try:
            self.gpu = device.create_buffer(size, usage, label)
        except BaseException:
            account.release(size)
            raise
        self.size = size
        self.usage = usage
        self.label = label
        self._account = account

    def destroy(self) -> None:
        """Destroy the buffer.  The caller must not submit work that uses the buffer afterwards."""
        if self.gpu is not None:
            if not is_forked():
                self.gpu.destroy()
            self.gpu = None
            self._account.release(self.size)

    def forget(self) -> None:
        """Stop counting the memory and leave it to wgpu, which frees it with the last reference to the buffer."""
        if self.gpu is not None:
            self.gpu = None
            self._account.release(self.size)


def grown(needed: int, present: int, limit: int) -> int:
    """Return the size for a buffer that must grow to ``needed``: 1.5 times as large, within the device's limit."""
    return max(needed, min(present + present // 2, limit))


def as_bytes(array: np.ndarray) -> memoryview:
    """Return the bytes of a C-contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def write(device: Device, buffer: Any, offset: int, data: Any) -> None:
    """Write bytes at ``offset`` (a multiple of 4); up to three bytes after the end are zeroed to fill the last word."""
    view = memoryview(data).cast("B")
    whole = len(view) // 4 * 4
    with device.guarded("writing to a buffer"):
        if whole:
            _write(device, buffer, offset, view[:whole])
        if whole < len(view):
            _write(device, buffer, offset + whole, memoryview(bytes(view[whole:]).ljust(4, b"\0")))


def _write(device: Device, buffer: Any, offset: int, view: memoryview) -> None:
    if native.AVAILABLE:
        native.write_buffer(device.queue, buffer, offset, view)
    else:
        device.queue.write_buffer(buffer, offset, view)


class Uploads:
    """Writes of much data: the bytes of few chunks are in wgpu's own staging memory at once, whatever their buffers."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._staged = 0  #: bytes written since the device was waited for

    def write(self, buffer: Any, data: Any, offset: int = 0) -> Iterator[int]:
        """Write ``data`` at ``offset`` (a multiple of 4) of a buffer in chunks; yields the bytes of each."""
        view = memoryview(data).cast("B")
        for start in range(0, len(view), UPLOAD_CHUNK):
            chunk = view[start : start + UPLOAD_CHUNK]
            if self._staged + len(chunk) > _STAGED_BYTES:
                self._device.submit([], "uploading weights")
                self._device.wait()
                self._staged = 0
            write(self._device, buffer, offset + start, chunk)
            self._staged += len(chunk)
            yield len(chunk)


#: Bytes of a staging buffer that is made ahead: outputs of more may stay on the device
_MOST_RESERVED = 1 << 20


class StagingPool:
    """MAP_READ buffers that runs borrow, so that a warm run creates none.  Thread-safe."""

    def __init__(self, device: Device, account: MemoryAccount) -> None:
        self._device = device
        self._account = account
        self._free: list[OwnedBuffer] = []
        self._lock = threading.Lock()
        self._closed = False

    def borrow(self, size: int) -> OwnedBuffer:
        """Return a buffer of at least ``size`` bytes: the smallest free one that fits, else a new one."""
        with self._lock:
            fitting = [buffer for buffer in self._free if buffer.size >= size]
            if fitting:
                best = min(fitting, key=lambda buffer: buffer.size)
                self._free.remove(best)
                return best
            if self._free:  # too small for what runs now: make room
                self._free.pop().destroy()
        return OwnedBuffer(self._device, self._account, size, MAP_READ | COPY_DST, "staging")

    def reserve(self, size: int) -> None:
        """Make a buffer of ``size`` bytes for a run to come, unless one is there: a driver's first one takes long.

        It is not made if it is large, or if there is no room; none that is free makes room for it, as plans need those.
        """
        if 0 < size <= _MOST_RESERVED and not self._free:
            with contextlib.suppress(LimitError):  # the run may leave its outputs on the device
                self.give_back(self.borrow(size))

    def give_back(self, buffer: OwnedBuffer) -> None:
        with self._lock:
            if self._closed:  # its run was in flight then
                buffer.destroy()
            else:
                self._free.append(buffer)

    def close(self) -> None:
        """Destroy the free buffers, and the borrowed ones when they come back."""
        with self._lock:
            self._closed = True
            for buffer in self._free:
                buffer.destroy()
            self._free.clear()


class mapped:
    """The first ``size`` bytes of a buffer in a block, once the work that uses it has finished, for reading.

    The device is not destroyed meanwhile.  No generator, whose cost every run would pay.
    """

    __slots__ = ("_buffer", "_device", "_size")

    def __init__(self, device: Device, buffer: Any, size: int) -> None:
        self._device = device
        self._buffer = buffer
        self._size = size

    def __enter__(self) -> memoryview:
        device, buffer, size = self._device, self._buffer, self._size
        with device.guarded("mapping a result"):
            if native.AVAILABLE:
                native.map_read(device.gpu, buffer, size, spin=device.busy_waits)
            else:
                buffer.map_async("READ_NOSYNC", 0, size).sync_wait()
            return read_range(device, buffer, size)

    def __exit__(self, *_: object) -> None:
        self._device.end_reading()
        with self._device.guarded("unmapping a result"):
            if native.AVAILABLE:
                native.unmap(self._buffer)
            else:
                self._buffer.unmap()


def read_range(device: Device, buffer: Any, size: int) -> memoryview:
    """Return the first ``size`` bytes of a mapped buffer, for reading until ``device.end_reading()``."""
    device.begin_reading()
    try:
        if native.AVAILABLE:
            return native.mapped(buffer, size)
        view: memoryview = buffer.read_mapped(0, size, copy=False)
        return view
    except BaseException:
        device.end_reading()
        raise
