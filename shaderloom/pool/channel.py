"""Messages between two processes.  Large arrays lie beside the pickled message, in memory that both share.

Where a message comes without such memory they follow it through the connection, which copies them several times.
Arrays of equal dtypes and shapes can be sent as a stack: one array, for which nothing is pickled but its place.
"""

from __future__ import annotations

import pickle
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from .copies import stack_into
from .shared_memory import SharedMemory

#: Arrays of fewer bytes are part of the message: to place them apart costs more than to copy them
SMALL = 16_384
#: Number of the memory that goes with a message, whether arrays lie there, the end of them, and their number
_HEAD = struct.Struct("<i?QI")
_NO_SLOT = -1
#: Arrays in shared memory begin at multiples of so many bytes
_ALIGNMENT = 64


class Received(NamedTuple):
    """A message, its stacks, the number of the memory that came with it, and the end of what lies there."""

    message: Any
    stacks: list[np.ndarray]
    slot: int
    end: int


class _Place(NamedTuple):
    """Where an array lies in shared memory."""

    begin: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def array(self, shared: np.ndarray) -> np.ndarray:
        return np.ndarray(self.shape, self.dtype, shared, self.begin)


class Channel:
    """One end of a connection.  Several threads may send; one receives.

    ``memories`` are those of both ends, by their numbers, or none.  A sender hands one over with its message and leaves
    it alone until it comes back.  Arrays that are received are read-only views of it; with ``copies`` those of messages
    have their own memory, and stacks alone are views.
    """

    def __init__(
        self, connection: Connection[Any, Any], memories: Sequence[SharedMemory] = (), *, copies: bool = False
    ) -> None:
        self._connection = connection
        self._memories, self._copies = memories, copies
        self._sending = threading.Lock()

    def send(
        self, message: Any, slot: int = _NO_SLOT, begin: int = 0, stacks: Sequence[Sequence[np.ndarray]] = ()
    ) -> None:
        """Send a message and stacks, with large arrays in memory ``slot`` from ``begin`` on.

        The arrays of a stack have one dtype, without objects, and one shape; they arrive as ``[arrays, *shape]``.
        Raises OSError if the other end is gone, and what pickling raises before anything is sent.
        """
        arrays: list[np.ndarray | _Place] = []
        for stack in stacks:
            array, begin = self._stacked(stack, slot, begin)
            arrays.append(array)
        buffers: list[pickle.PickleBuffer] = []

        def is_inside(buffer: pickle.PickleBuffer) -> bool:
            if buffer.raw().nbytes < SMALL:
                return True
            buffers.append(buffer)
            return False

        data = pickle.dumps((message, arrays), 5, buffer_callback=is_inside)
        ranges, end = _ranges(buffers, begin)
        is_shared = bool(buffers and slot != _NO_SLOT and self._memories) and self._place(buffers, ranges, slot, end)
        head = _HEAD.pack(slot, is_shared, end if is_shared else begin, len(buffers))
        numbers = struct.pack(f"<{2 * len(ranges)}Q", *(number for pair in ranges for number in pair))
        with self._sending:
            self._connection.send_bytes(b"".join((head, numbers, data)))
            for buffer in () if is_shared else buffers:
                self._connection.send_bytes(buffer.raw())

    def receive(self) -> Received:
        """Wait for a message.  Raises EOFError or OSError once the other end is gone."""
        data = memoryview(self._connection.recv_bytes())
        slot, is_shared, end, count = _HEAD.unpack_from(data)
        numbers = struct.unpack_from(f"<{2 * count}Q", data, _HEAD.size)
        buffers: list[Any] = []
        shared = memoryview(self._memories[slot].bytes(end)).toreadonly() if is_shared else None
        for start, size in zip(numbers[::2], numbers[1::2]):
            if shared is None:
                buffers.append(bytearray(size))
                self._connection.recv_bytes_into(buffers[-1])
            else:
                view = shared[start : start + size]
                buffers.append(np.frombuffer(view, np.uint8).copy() if self._copies else view)
        message, arrays = pickle.loads(data[_HEAD.size + 16 * count :], buffers=buffers)
        stacks = [self._placed(each, slot, end) if isinstance(each, _Place) else each for each in arrays]
        return Received(message, stacks, slot, end)

    def close(self) -> None:
        self._connection.close()

    def _placed(self, place: _Place, slot: int, end: int) -> np.ndarray:
        array = place.array(self._memories[slot].bytes(end))
        array.flags.writeable = False
        return array

    def _stacked(self, arrays: Sequence[np.ndarray], slot: int, begin: int) -> tuple[np.ndarray | _Place, int]:
        """Join arrays along a new first axis, in shared memory where they are large and it has room.

        Return the result, or its place, and the end of what lies in the memory.
        """
        first, count = arrays[0], len(arrays)
        place = _Place(_aligned(begin), first.dtype, (count, *first.shape))
        end = place.begin + count * first.nbytes
        memory = None
        if count * first.nbytes >= SMALL and slot != _NO_SLOT and self._memories:
            with suppress(OSError):
                memory = self._memories[slot].bytes(end)
        if memory is None and count == 1:
            return first[np.newaxis], begin
        stack = np.empty(place.shape, place.dtype) if memory is None else place.array(memory)
        stack_into(stack, arrays)
        return (stack, begin) if memory is None else (place, end)

    def _place(
        self, buffers: Sequence[pickle.PickleBuffer], ranges: Sequence[tuple[int, int]], slot: int, end: int
    ) -> bool:
        """Write buffers into a shared memory; return False if the system has none left."""
        try:
            shared = self._memories[slot].bytes(end)
        except OSError:
            return False
        for buffer, (start, size) in zip(buffers, ranges):
            shared[start : start + size] = np.frombuffer(buffer.raw(), np.uint8)  # other threads run meanwhile
        return True


def _ranges(buffers: Sequence[pickle.PickleBuffer], begin: int) -> tuple[list[tuple[int, int]], int]:
    """Return offset and bytes of each buffer, and the end of all."""
    ranges = []
    for buffer in buffers:
        begin, size = _aligned(begin), buffer.raw().nbytes
        ranges.append((begin, size))
        begin += size
    return ranges, begin


def _aligned(begin: int) -> int:
    return (begin + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
