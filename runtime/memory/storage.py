"""Device memory behind tensors: who frees it, and when.

A :class:`Storage` is a range of a device buffer.  It is *released* once, by ``dispose`` or when its tensor is
collected; what is encoded at that moment keeps it by a *pin*.  wgpu ends the process when work is submitted that uses a
destroyed buffer, so memory is destroyed only when no pin is left; after submission the device keeps what it needs.

Memory that a caller gave is never destroyed here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..device.device import Device
from ..plan.errors import ClosedError, DeviceError
from .buffers import OwnedBuffer


class Storage:
    """A range of a device buffer: ``size`` bytes from ``offset``.

    ``owned`` None: the buffer belongs to the caller, who may destroy it at any time.  ``recycle`` is called instead of
    destroying an owned buffer; it must not raise.
    """

    __slots__ = ("_owned", "_pins", "_recycle", "_released", "exported", "gpu", "offset", "size")

    def __init__(
        self,
        gpu: Any,
        offset: int,
        size: int,
        owned: OwnedBuffer | None = None,
        recycle: Callable[[OwnedBuffer], None] | None = None,
    ) -> None:
        self.gpu = gpu
        self.offset = offset
        self.size = size
        self.exported = False  #: whether the caller has seen the buffer and may hold it
        self._owned = owned
        self._recycle = recycle
        self._pins = 0
        self._released = False

    @classmethod
    def of_owned(cls, buffer: OwnedBuffer, recycle: Callable[[OwnedBuffer], None] | None = None) -> Storage:
        return cls(buffer.gpu, 0, buffer.size, buffer, recycle)

    @property
    def borrowed(self) -> bool:
        return self._owned is None

    @property
    def released(self) -> bool:
        return self._released

    def pin(self) -> None:
        """Keep the memory alive until :meth:`unpin`.  Raises :class:`ClosedError` if it was released."""
        pin_all((self,))

    def unpin(self) -> None:
        unpin_all((self,))

    def release(self, *, collected: bool = False) -> None:
        """Free the memory as soon as no pin is left.  Releasing twice is fine.

        ``collected``: by the garbage collector.  A buffer that the caller may still hold is then left to wgpu, which
        frees it with its last reference.
        """
        with _LOCK:
            is_last = not self._released and not self._pins
            self._released = True
        if is_last:
            self._free(collected)

    def _free(self, collected: bool) -> None:
        owned, self._owned = self._owned, None
        self.gpu = None
        if owned is None:
            return
        if self.exported:
            if collected:
                owned.forget()
            else:
                owned.destroy()
        elif self._recycle is not None:
            self._recycle(owned)
        else:
            owned.destroy()

    def check_alive(self, device: Device) -> None:
        """Raise :class:`ClosedError` if the caller has destroyed its buffer.  Only borrowed memory is asked."""
        if self.borrowed:
            try:
                device.probe(self.gpu)
            except DeviceError as error:
                if "destroyed" in str(error):
                    raise ClosedError(
                        "the buffer of the tensor was destroyed by its owner", hint="make another"
                    ) from error
                raise


#: Guards the pins of all storages, as a run pins a hundred at once.  The collection of a tensor releases its storage,
#: in any thread and inside any block with this lock; memory is freed outside of it, as that may wait for other locks.
_LOCK = threading.RLock()


def pin_all(storages: Sequence[Storage]) -> None:
    """Pin all storages, or none and raise :class:`ClosedError` if one was released."""
    with _LOCK:
        for storage in storages:
            if storage._released:
                raise ClosedError("the tensor was disposed", hint="make another")
        for storage in storages:
            storage._pins += 1


def unpin_all(storages: Sequence[Storage]) -> None:
    """Unpin storages; free those that were released meanwhile."""
    unused = []
    with _LOCK:
        for storage in storages:
            storage._pins -= 1
            if storage._released and not storage._pins:
                unused.append(storage)
    for storage in unused:
        storage._free(collected=False)


class pinned:
    """Keep several storages for the time of a block; no generator, whose cost every run would pay."""

    __slots__ = ("_storages",)

    def __init__(self, storages: Sequence[Storage]) -> None:
        self._storages = storages

    def __enter__(self) -> None:
        pin_all(self._storages)

    def __exit__(self, *_: object) -> None:
        unpin_all(self._storages)


def _is_finalised(buffer: OwnedBuffer) -> bool:
    """Return whether wgpu has released the buffer already.

    The cyclic garbage collector finalises all objects of a cycle at once, in any order: a tensor in a cycle returns its
    buffer here, and the buffer's own finaliser runs, too.
    """
    return buffer.gpu is None or getattr(buffer.gpu, "_internal", buffer.gpu) is None


class OutputPool:
    """Buffers for outputs that stay on the device.  A disposed output's buffer serves a later run.

    Where sizes change from run to run, ``limit`` is that of a buffer: sizes are rounded up then, by at most a quarter,
    so that outputs of similar sizes share buffers.  The queue runs in order, so a buffer may be written again before
    earlier work that reads it has finished.  Buffers go back from any thread, also while a collection runs: the lists
    are changed by single operations only.
    """

    #: Free buffers of one output; as many as the latter where sizes change and all but the former have at most so many
    #: bytes together
    FREE, MOST_FREE, FREE_BYTES = 2, 32, 16 << 20

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._free: dict[str, list[OwnedBuffer]] = {}
        self._closed = False

    def take(self, name: str, size: int, make: Callable[[int], OwnedBuffer]) -> Storage:
        """Return storage of at least ``size`` bytes for an output: a released buffer if one fits, else a new one."""
        if self._limit is not None:
            size = max(size, min(rounded_up(size), self._limit // 16 * 16))
        free = self._free.setdefault(name, [])
        for buffer in reversed(tuple(free)):
            if buffer.size == size:
                try:
                    free.remove(buffer)
                except ValueError:  # another thread was faster
                    continue
                if not _is_finalised(buffer):
                    return self._storage(name, buffer)
                buffer.destroy()
        self._shrink(free, 0 if self._limit is None else self.MOST_FREE - 1)
        return self._storage(name, make(size))

    def _storage(self, name: str, buffer: OwnedBuffer) -> Storage:
        return Storage.of_owned(buffer, lambda back: self._give_back(name, back))

    def _give_back(self, name: str, buffer: OwnedBuffer) -> None:
        free = self._free.get(name)
        if self._closed or free is None:
            buffer.destroy()  # one that comes back just while the pool closes goes with the last reference
            return
        free.append(buffer)
        self._shrink(free, self.FREE if self._limit is None else self.MOST_FREE)

    def _shrink(self, free: list[OwnedBuffer], most: int) -> None:
        """Destroy the buffers that were free first, beyond ``most`` and beyond what all may take."""
        while len(free) > most or (
            self._limit is not None
            and len(free) > self.FREE
            and sum(buffer.size for buffer in tuple(free)) > self.FREE_BYTES
        ):
            try:
                free.pop(0).destroy()
            except IndexError:  # another thread was faster
                break

    def close(self) -> None:
        """Destroy the free buffers; those in use go when their tensors do."""
        self._closed = True
        for free in self._free.values():
            self._shrink(free, 0)


def rounded_up(size: int) -> int:
    """Return the least of 64, 128, 192, 256, 320, ..., 512, 640, ... that is ``size`` or more: four to each power."""
    step = max(1 << (size - 1).bit_length(), 512) // 8
    return -(-size // step) * step
