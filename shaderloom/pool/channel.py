"""Messages between processes.  Arrays travel beside the pickled message, without a copy in either process."""

from __future__ import annotations

import pickle
import struct
import threading
from multiprocessing.connection import Connection
from typing import Any

#: Arrays of fewer bytes are part of the message: a message of its own costs more than to copy them
_SMALL = 16_384


class Channel:
    """One end of a connection.  Several threads may send; one receives."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, message: Any) -> None:
        """Send a message.  Raises OSError if the other end is gone."""
        buffers: list[pickle.PickleBuffer] = []

        def is_inside(buffer: pickle.PickleBuffer) -> bool:
            if buffer.raw().nbytes < _SMALL:
                return True
            buffers.append(buffer)
            return False

        data = pickle.dumps(message, 5, buffer_callback=is_inside)
        parts = [buffer.raw() for buffer in buffers]
        sizes = struct.pack(f"<I{len(parts)}Q", len(parts), *(part.nbytes for part in parts))
        with self._sending:
            self._connection.send_bytes(sizes + data)
            for part in parts:
                self._connection.send_bytes(part)

    def receive(self) -> Any:
        """Wait for a message.  Raises EOFError or OSError once the other end is gone."""
        data = memoryview(self._connection.recv_bytes())
        (count,) = struct.unpack_from("<I", data)
        buffers = []
        for size in struct.unpack_from(f"<{count}Q", data, 4):
            buffers.append(bytearray(size))
            self._connection.recv_bytes_into(buffers[-1])
        return pickle.loads(data[4 + 8 * count :], buffers=buffers)

    def close(self) -> None:
        self._connection.close()
