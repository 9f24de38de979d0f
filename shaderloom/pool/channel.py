"""Messages between two processes.  Large arrays lie beside the pickled message, in memory that both share.

Where a message comes without such memory they follow it through the connection, which copies them several times.
"""

from __future__ import annotations

import pickle
import struct
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from .shared_memory import SharedMemory

#: Arrays of fewer bytes are part of the message: to place them apart costs more than to copy them
SMALL = 16_384
#: Number of the memory that goes with a message, whether arrays lie there, the end of them, and their number
_HEAD = struct.Struct("<i?QI")
_NO_SLOT = -1


class Received(NamedTuple):
    """A message, the number of the memory that came with it, and the end of what lies there."""

    message: Any
    slot: int
    end: int


class Channel:
    """One end of a connection.  Several threads may send; one receives.

    ``memories`` are those of both ends, by their numbers, or none.  A sender hands one over with its message and leaves
    it alone until it comes back.  Arrays that are received are read-only views of it; with ``copies`` their own memory.
    """

    def __init__(
        self, connection: Connection[Any, Any], memories: Sequence[SharedMemory] = (), *, copies: bool = False
    ) -> None:
        self._connection = connection
        self._memories, self._copies = memories, copies
        self._sending = threading.Lock()

    def send(self, message: Any, slot: int = _NO_SLOT, begin: int = 0) -> None:
        """Send a message, with its large arrays in memory ``slot`` from ``begin`` on, in the order of the message.

        Raises OSError if the other end is gone, and what pickling raises before anything is sent.
        """
        buffers: list[pickle.PickleBuffer] = []

        def is_inside(buffer: pickle.PickleBuffer) -> bool:
            if buffer.raw().nbytes < SMALL:
                return True
            buffers.append(buffer)
            return False

        data = pickle.dumps(message, 5, buffer_callback=is_inside)
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
        return Received(pickle.loads(data[_HEAD.size + 16 * count :], buffers=buffers), slot, end)

    def close(self) -> None:
        self._connection.close()

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
    """Return offset and bytes of each buffer, and the end of all: elements are aligned, equal arrays have no gaps."""
    ranges = []
    for buffer in buffers:
        view = memoryview(buffer)
        begin = (begin + view.itemsize - 1) // view.itemsize * view.itemsize
        ranges.append((begin, view.nbytes))
        begin += view.nbytes
    return ranges, begin
