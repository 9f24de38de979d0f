"""Reads of one tensor again and again, which work that is submitted later neither changes nor delays."""

from __future__ import annotations

import numpy as np

from ..device import native
from ..memory.buffers import OwnedBuffer, StagingPool, mapped
from ..memory.storage import pinned
from ..memory.tensor import Tensor, border_bytes
from ..plan.caps import Caps, MemoryAccount
from .dispatch import BufferCopy
from .recording import Recording


class RepeatedReader:
    """Reads a tensor on a device; the memory that copies go through is kept until :meth:`close`."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self._size = border_bytes(tensor.size, tensor._dtype)
        self._pool = StagingPool(tensor.device, MemoryAccount(Caps().device_memory))

    def begin(self) -> PendingRead:
        """Submit a copy of the elements as they are behind all that was submitted, without waiting for it."""
        tensor, staging = self._tensor, self._pool.borrow(self._size)
        try:
            with pinned([tensor._storage]):
                copy = BufferCopy(tensor._storage.gpu, tensor._storage.offset, staging.gpu, 0, self._size)
                Recording((), (), (copy,)).encode(tensor.device, use_native=native.AVAILABLE).submit()
        except BaseException:
            staging.destroy()
            raise
        return PendingRead(tensor, staging, self._pool)

    def close(self) -> None:
        """Free the memory, that of reads in flight when they end."""
        self._pool.close()


class PendingRead:
    """A copy of a tensor's elements on its way to the host.  Either :meth:`numpy` or :meth:`discard` ends it."""

    def __init__(self, tensor: Tensor, staging: OwnedBuffer, pool: StagingPool) -> None:
        self._tensor = tensor
        self._staging: OwnedBuffer | None = staging
        self._pool = pool

    def numpy(self) -> np.ndarray:
        """Wait for the elements, and return them."""
        staging, self._staging = self._staging, None
        assert staging is not None, "the read has not ended"
        try:
            with mapped(self._tensor.device, staging.gpu, staging.size) as view:
                array = self._tensor._read(view)
        except BaseException:
            staging.destroy()  # it may be mapped or about to be: never lend it again
            raise
        self._pool.give_back(staging)
        return array

    def discard(self) -> None:
        """Give the elements up.  Has no effect on a read that has ended."""
        staging, self._staging = self._staging, None
        if staging is not None:
            self._pool.give_back(staging)
