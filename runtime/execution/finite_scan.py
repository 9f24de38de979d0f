"""A scan of tensors on the device for elements that are not finite, submitted behind the run that wrote them.

A run is *suspicious* if an output is not finite in a way that is not allowed, and every input is a number or minus
infinity, as in masks.  Small kernels look at the tensors, at inputs only where an output calls for it, and the last one
adds the run to a tally on the device (:mod:`.scan_kernels`).  As each waits for the one before, a run has few: one
where its outputs are small.  The tally is read without waiting, at most every :data:`INTERVAL` seconds.
"""

from __future__ import annotations

import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ..device import native
from ..device.device import Device
from ..memory.buffers import COPY_DST, MAP_READ, STORAGE, TENSOR, as_bytes, mapped, read_range, write
from ..memory.storage import pinned
from ..memory.tensor import Tensor
from ..plan.caps import Caps
from ..plan.plan import Kernel, KernelCall
from ..plan.record import record
from .dispatch import BufferCopy, Dispatch
from .recording import Recording, Replay
from .scan_kernels import OTHER_BUFFERS, PART_BYTES, SCAN_THREADS, judge_kernel, scan_kernel

#: Bits of the exponents of the elements in a word: of the lower half and of the upper one, or of the whole
_EXPONENTS = {
    "float16": (0x7C00, 0x7C000000),
    "bfloat16": (0x7F80, 0x7F800000),
    "float32": (0x7F800000, 0x7F800000),
}
#: Seconds between two readings of the tally
INTERVAL = 0.05
#: Combinations of tensors whose bind groups are kept
_MOST_PREPARED = 16
#: Words of a tensor for a thread of a scan, and the most workgroups of a tensor
_WORDS_PER_THREAD, _GROUPS = 32, 1024
#: Words of outputs, and of an input, that a judge may look at, and the most tensors of a kernel
_JUDGED_OUTPUTS, _JUDGED_INPUT, _TENSORS = 1 << 14, 1 << 22, 16


@record
class ScannedTensor:
    """A tensor to look at: ``slot`` numbers the outputs, then the inputs; ``allowed`` are kinds of an output."""

    slot: int
    tensor: Tensor
    allowed: int = 0


@record
class Suspicion:
    """Suspicious runs since the last one that was reported: the number of the ``first``, and kinds by output slot."""

    runs: int
    first: int
    kinds: tuple[int, ...]


@record
class _Part:
    """A range of a buffer with the numbers that the kernel's ``Part`` has."""

    range: tuple[Any, int, int]
    numbers: tuple[int, ...]
    words: int


def can_scan(value: Any) -> bool:
    """Return whether a value is a tensor on the device that may hold elements that are not finite."""
    # attributes, not properties: it is asked for every tensor of every run
    is_there = isinstance(value, Tensor) and value._host is None and 0 not in value._shape
    return is_there and value._dtype.name in _EXPONENTS


class FiniteScan:
    """Scans of the runs of one session on one device.  Not thread-safe.  ``slots``: numbers of outputs and inputs.

    Its few small buffers are never destroyed: a submission may name them when the session is closed.
    """

    def __init__(self, device: Device, slots: tuple[int, int]) -> None:
        self._device = device
        self._outputs = slots[0]
        self._size = sum(slots) + 1
        self._tally_bytes = 4 * (3 + self._outputs)
        self._flags = device.create_buffer(4 * self._size, STORAGE | COPY_DST, "flags of scans")
        self._tally = device.create_buffer(self._tally_bytes, TENSOR, "tally of scans")
        self._staging = device.create_buffer(self._tally_bytes, MAP_READ | COPY_DST, "tally of scans")
        self._most = min(device.profile.limit("max-storage-buffers-per-shader-stage") - OTHER_BUFFERS, _TENSORS)
        self._replay = Replay(device, use_native=native.AVAILABLE)
        self._prepared: OrderedDict[tuple[Any, ...], tuple[list[Dispatch], list[Any]]] = OrderedDict()
        self._reading: native.MapRequest | None = None
        self._unread = 0  #: runs that no reading covers
        self._last = time.perf_counter()  #: when a reading was begun or asked for

    @property
    def is_pending(self) -> bool:
        """Whether runs were submitted that no report covers yet."""
        return bool(self._unread) or self._reading is not None

    def submit(self, outputs: Sequence[ScannedTensor], inputs: Sequence[ScannedTensor]) -> None:
        """Scan the outputs of a run that was submitted, and inputs that it has not overwritten."""
        storages = [each.tensor._storage for each in (*outputs, *inputs)]
        with pinned(storages):
            dispatches = self.dispatches(outputs, inputs)
            self._replay.submit(Recording((), (dispatches,), ()), [storage.gpu for storage in storages])
        self.count()

    def count(self) -> None:
        """Count a run that was submitted with the :meth:`dispatches` behind it."""
        self._unread += 1

    def poll(self) -> Suspicion | None:
        """Return what a reading in flight has found, if it has ended; begin another one where that is due."""
        if not self.is_pending or time.perf_counter() - self._last < INTERVAL:
            return None
        if self._reading is not None:
            self._last = time.perf_counter()
            return self._finish(self._reading) if self._reading.is_done else None
        if not native.AVAILABLE:
            return self.look()
        self._reading = self._begin()
        return None

    def look(self) -> Suspicion | None:
        """Wait for all runs so far and return the suspicious ones that were not reported."""
        earlier = None if self._reading is None else self._finish(self._reading)
        if not self._unread:
            return earlier
        if native.AVAILABLE:
            return self._finish(self._begin()) or earlier
        self._copy_tally()
        with mapped(self._device, self._staging, self._tally_bytes) as view:
            return self._report(view) or earlier

    def _copy_tally(self) -> None:
        copy = BufferCopy(self._tally, 0, self._staging, 0, self._tally_bytes)
        Recording((), (), (copy,)).encode(self._device, use_native=native.AVAILABLE).submit()
        self._unread, self._last = 0, time.perf_counter()

    def _begin(self) -> native.MapRequest:
        self._copy_tally()
        with self._device.guarded("reading the tally of scans"):
            return native.MapRequest(self._device.gpu, self._staging, self._tally_bytes)

    def _finish(self, reading: native.MapRequest) -> Suspicion | None:
        """Wait for a reading and return what it has found."""
        self._reading = None
        device = self._device
        with device.guarded("reading the tally of scans"):
            reading.wait(spin=device.busy_waits)
        view = read_range(device, self._staging, self._tally_bytes)
        try:
            return self._report(view)
        finally:
            device.end_reading()
            native.unmap(self._staging)

    def _report(self, view: memoryview) -> Suspicion | None:
        """Return the suspicious runs of a tally, and clear it on the device."""
        _, runs, first, *kinds = np.frombuffer(view, np.uint32, self._tally_bytes // 4).tolist()
        if not runs:
            return None
        write(self._device, self._tally, 4, as_bytes(np.zeros(2 + self._outputs, np.uint32)))
        return Suspicion(runs, first, tuple(kinds))

    # -- dispatches ----------------------------------------------------------------------------------------------------

    def dispatches(self, outputs: Sequence[ScannedTensor], inputs: Sequence[ScannedTensor]) -> list[Dispatch]:
        """Return the dispatches that scan these tensors: the same list for the same memory, while it lives."""
        scanned = [*outputs, *inputs]
        storages = [each.tensor._storage for each in scanned]
        key = tuple(
            (each.slot, storage.gpu.uid, storage.offset, each.tensor.size, each.tensor._dtype.name, each.allowed)
            for each, storage in zip(scanned, storages)
        )
        prepared = self._prepared.get(key)
        if prepared is not None:
            self._prepared.move_to_end(key)
            return prepared[0]
        waves = self._waves(
            [part for each in outputs for part in self._parts(each)],
            [part for each in inputs for part in self._parts(each)],
        )
        alignment = self._device.profile.storage_alignment
        stride = -(-self._most * PART_BYTES // alignment) * alignment
        table = np.zeros((len(waves), stride // 4), np.uint32)
        for row, wave in enumerate(waves):
            numbers = [number for part in wave for number in part.numbers]
            table[row, : len(numbers)] = numbers
        buffer = self._device.create_buffer(table.nbytes, STORAGE | COPY_DST, "parts of a scan")
        write(self._device, buffer, 0, as_bytes(table))
        flags, tally = (self._flags, 0, 4 * self._size), (self._tally, 0, self._tally_bytes)
        dispatches = []
        for row, wave in enumerate(waves):
            judges = row == len(waves) - 1
            words = max((part.words for part in wave), default=0)
            groups = min(-(-words // (SCAN_THREADS * _WORDS_PER_THREAD)), _GROUPS)
            kernel = (judge_kernel if judges else scan_kernel)(len(wave))
            grid = (1, 1, 1) if judges else (groups, len(wave), 1)
            ranges = [part.range for part in wave]
            ranges += [(buffer, row * stride, max(len(wave), 1) * PART_BYTES), flags, *([tally] if judges else [])]
            dispatches.append(self._dispatch(kernel, ranges, grid))
        watched = [weakref.ref(storage.gpu, lambda _: self._prepared.pop(key, None)) for storage in storages]
        self._prepared[key] = dispatches, watched
        if len(self._prepared) > _MOST_PREPARED:
            self._prepared.popitem(last=False)
        return dispatches

    def _waves(self, outputs: list[_Part], inputs: list[_Part]) -> list[list[_Part]]:
        """Divide parts among kernels of few tensors: outputs, inputs that wait for these, and what the judge looks at.

        Large inputs wait for all outputs, of which the judge has none then.
        """
        judged: list[_Part] = []
        if len(inputs) <= self._most and all(part.words <= _JUDGED_INPUT for part in inputs):
            outputs = sorted(outputs, key=lambda part: part.words)
            small = sum(words <= _JUDGED_OUTPUTS for words in accumulate(part.words for part in outputs))
            small = min(small, self._most - len(inputs))
            judged, outputs, inputs = [*inputs, *outputs[:small]], outputs[small:], []
        runs = [
            parts[first : first + self._most]
            for parts in (outputs, inputs)
            for first in range(0, len(parts), self._most)
        ]
        return [*runs, judged]

    def _parts(self, scanned: ScannedTensor) -> Iterator[_Part]:
        """Yield the words of a tensor in ranges that the device can bind."""
        profile, tensor = self._device.profile, scanned.tensor
        storage, dtype = tensor._storage, tensor._dtype
        low, high = _EXPONENTS[dtype.name]
        end = storage.offset + (tensor.nbytes + 3) // 4 * 4
        last = 0xFFFF if tensor.nbytes % 4 else 0xFFFFFFFF
        begin = storage.offset
        while begin < end:
            start = begin // profile.storage_alignment * profile.storage_alignment
            stop = min(end, start + profile.limit("max-storage-buffer-binding-size") // 4 * 4)
            first, words = (begin - start) // 4, (stop - begin) // 4
            mask = last if stop == end else 0xFFFFFFFF
            is_input = int(scanned.slot >= self._outputs)
            numbers = (
                first,
                words,
                mask,
                scanned.slot,
                scanned.allowed,
                low,
                high,
                is_input,
                dtype.bits == 32,
            )
            yield _Part((storage.gpu, start, stop - start), numbers, words)
            begin = stop

    def _dispatch(self, kernel: Kernel, ranges: Sequence[tuple[Any, int, int]], grid: tuple[int, int, int]) -> Dispatch:
        device = self._device
        holder = device.pipeline(kernel, checked=device.keeps_checks, max_wgsl_bytes=Caps().wgsl_bytes)
        with device.guarded("binding the tensors of a scan"):
            group = device.bind_group(holder.pipeline.layout, ranges)
        return Dispatch(KernelCall("", (), grid, (), kernel.template), holder, group, grid)
