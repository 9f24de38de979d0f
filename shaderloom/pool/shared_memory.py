"""Memory that two processes share: large arrays are written once, and read where they lie."""

from __future__ import annotations

import mmap
import os
from multiprocessing import reduction
from typing import Any

import numpy as np

#: Sizes are multiples of this, so that a buffer seldom grows
_STEP = 1 << 20


class SharedMemory:
    """Bytes of two processes, one of which owns them at a time: it writes, and lets the other know.

    It is a file without a name, which ends with the processes, and has the pages that were written alone.  A process
    that is spawned gets it with its arguments.
    """

    def __init__(self) -> None:
        self._file = os.memfd_create("shaderloom-pool")
        self._size = 0
        self._mapped: mmap.mmap | None = None

    def __getstate__(self) -> Any:
        return reduction.DupFd(self._file)

    def __setstate__(self, file: Any) -> None:
        self._file = file.detach()
        self._size = 0
        self._mapped = None

    def __del__(self) -> None:
        os.close(self._file)

    def bytes(self, size: int) -> np.ndarray:
        """Return the bytes, ``size`` of them or more; what was taken before stays valid.

        Raises OSError where the system has none.
        """
        if self._mapped is None or self._size < size:
            size = (size + _STEP - 1) // _STEP * _STEP
            if os.fstat(self._file).st_size < size:
                os.ftruncate(self._file, size)
            self._mapped = mmap.mmap(self._file, size)
            self._size = size
        return np.frombuffer(self._mapped, np.uint8)


def shared_memories(count: int) -> list[SharedMemory]:
    """Return so many, or none where the system does not know files without a name."""
    return [SharedMemory() for _ in range(count)] if hasattr(os, "memfd_create") else []
