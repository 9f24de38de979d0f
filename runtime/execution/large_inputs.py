"""Large inputs of the host: each run writes those to buffers of its own, beside other runs.

A write copies on the host, at some 10 GB a second.  Within the executor's lock it would end at one core, and no run
would be encoded meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ..device.device import Device
from ..memory.buffers import TENSOR, OwnedBuffer, as_bytes, grown, write
from ..memory.storage import Storage
from ..plan.caps import MemoryAccount
from ..plan.dtypes import BY_NAME, interface_dtype
from ..plan.errors import LimitError
from .ports import Feed, PortSize

#: Bytes from which an input is large: a core copies as many in 0.1 ms
LARGE = 1 << 20
#: Runs that have buffers at the same time: two that are written, each by a core, and one that is encoded
MOST_RUNS = 3

Storages = Mapping[str, Storage]


def write_array(device: Device, buffer: Any, array: np.ndarray, dtype: str) -> None:
    """Write an array as a plan's ``dtype`` to the start of a buffer: contiguous, little-endian."""
    if array.size:
        write(device, buffer, 0, as_bytes(np.ascontiguousarray(array, interface_dtype(BY_NAME[dtype]))))


class LargeInputs:
    """The buffers of one executor's large inputs, for at most :data:`MOST_RUNS` runs.  Thread-safe.

    A run has buffers until it is submitted: the queue is in order, so the next run may write while it is computed.
    Those that were given back last are taken first, so that a lone thread always binds the same.
    """

    def __init__(self, device: Device, account: MemoryAccount) -> None:
        self._device, self._account = device, account
        self._free: list[_Inputs] = []
        self._all: set[_Inputs] = set()
        self._most = MOST_RUNS
        self._closed = False
        self._returned = threading.Condition()

    @property
    def size(self) -> int:
        """Bytes of all buffers."""
        return sum(inputs.size for inputs in tuple(self._all))

    def written(self, feeds: Mapping[str, Feed], sizes: Mapping[str, PortSize]) -> AbstractContextManager[Storages]:
        """Write the large arrays among ``feeds``; give their storages for a block that submits the run.

        Waits while as many runs have buffers as may.  Where the cap on memory leaves no room beside those of other
        runs, fewer may from then on.  Raises :class:`LimitError` for one that is too large alone.
        """
        arrays = {name: feed for name in sizes if isinstance(feed := feeds[name], np.ndarray) and feed.nbytes >= LARGE}
        if not arrays:
            return _NOTHING
        while True:
            inputs = self._take()
            try:
                inputs.write(arrays, sizes)
            except LimitError:
                if not self._reduce(inputs):
                    raise
            except BaseException:
                self._give_back(inputs)
                raise
            else:
                return inputs

    def close(self) -> None:
        """Destroy the buffers, and those of runs that are not submitted yet when these give them back."""
        with self._returned:
            self._closed = True
            self._drop_free()

    def _take(self) -> _Inputs:
        with self._returned:
            self._returned.wait_for(lambda: self._free or len(self._all) < self._most)
            if self._free:
                return self._free.pop()
            inputs = _Inputs(self._device, self._account, self._give_back)
            self._all.add(inputs)
            return inputs

    def _give_back(self, inputs: _Inputs) -> None:
        with self._returned:
            self._free.append(inputs)
            if self._closed:
                self._drop_free()
            self._returned.notify()

    def _reduce(self, inputs: _Inputs) -> bool:
        """Destroy buffers that no run uses, and allow one run less; return False if there are no others."""
        with self._returned:
            others = len(self._all) - 1
            self._most = max(min(self._most, others), 1)
            self._free.append(inputs)
            self._drop_free()
            self._returned.notify_all()
        return others > 0

    def _drop_free(self) -> None:
        self._all.difference_update(self._free)
        for inputs in self._free:
            inputs.release()
        self._free.clear()


_NOTHING: AbstractContextManager[Storages] = nullcontext({})


class _Inputs(AbstractContextManager[Storages]):
    """Buffers by input, which one run has at a time."""

    def __init__(self, device: Device, account: MemoryAccount, give_back: Callable[[_Inputs], None]) -> None:
        self._device, self._account, self._give_back = device, account, give_back
        self._storages: dict[str, Storage] = {}

    @property
    def size(self) -> int:
        return sum(storage.size for storage in tuple(self._storages.values()))

    def write(self, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, PortSize]) -> None:
        for name, array in arrays.items():
            size = sizes[name]
            write_array(self._device, self._storage(name, size.padded).gpu, array, size.dtype)

    def _storage(self, name: str, needed: int) -> Storage:
        """Return the storage of an input; replace one that is too small."""
        present = self._storages.get(name)
        if present is not None:
            if present.size >= needed:
                return present
            needed = grown(needed, present.size, self._device.profile.limit("max-buffer-size"))
            self._storages.pop(name).release()
        buffer = OwnedBuffer(self._device, self._account, needed, TENSOR, f"input:{name}")
        storage = self._storages[name] = Storage.of_owned(buffer)
        return storage

    def release(self) -> None:
        for storage in self._storages.values():
            storage.release()
        self._storages.clear()

    def __enter__(self) -> Storages:
        return self._storages

    def __exit__(self, *_: object) -> None:
        self._give_back(self)
