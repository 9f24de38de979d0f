"""A scan of tensors on the device for elements that are not finite, submitted behind the run that wrote them.

A run is *suspicious* if an output is not finite in a way that is not allowed, and every input is a number or minus
infinity, as in masks.  A small kernel looks at each tensor, inputs only where an output calls for it, and another one
adds the run to a tally on the device.  The tally is read without waiting, at most every :data:`INTERVAL` seconds.
"""

from __future__ import annotations

import hashlib
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..device import native
from ..device.device import Device, PipelineHolder
from ..memory.buffers import COPY_DST, MAP_READ, STORAGE, TENSOR, as_bytes, mapped, read_range, write
from ..memory.storage import pinned
from ..memory.tensor import Tensor
from ..plan.caps import Caps
from ..plan.plan import Binding, Kernel, KernelCall
from ..plan.record import record
from .dispatch import BufferCopy, Dispatch
from .recording import Recording, Replay

#: Numbers in a ``Part`` of the kernel
_NUMBERS = 11
#: What an element may be, as bits of a kind
INFINITE, MINUS_INFINITE, NOT_A_NUMBER = 1, 2, 4
ANY_KIND = INFINITE | MINUS_INFINITE | NOT_A_NUMBER
#: Kinds of elements that an ordinary input does not have
EXTRAORDINARY = INFINITE | NOT_A_NUMBER
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
_THREADS, _QUADS_PER_THREAD, _GROUPS = 64, 8, 1024

_SCAN = f"""
struct Part {{
    first: u32, words: u32, last: u32, slot: u32, allowed: u32, low: u32, high: u32, is_input: u32,
    quad: u32, quads: u32, is_wide: u32
}}
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> quads: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> part: Part;
@group(0) @binding(3) var<storage, read_write> flags: array<atomic<u32>>;
fn kind(bits: u32, exponent: u32, sign: u32) -> u32 {{
    if (bits & exponent) != exponent {{ return 0u; }}
    if (bits & ~(exponent | sign)) != 0u {{ return {NOT_A_NUMBER}u; }}
    return select({INFINITE}u, {MINUS_INFINITE}u, (bits & sign) != 0u);
}}
fn kinds(word: u32, low: u32, high: u32, is_wide: bool) -> u32 {{
    if is_wide {{ return kind(word, high, 0x80000000u); }}
    return kind(word & 0xffff0000u, high, 0x80000000u) | kind(word & 0xffffu, low, 0x8000u);
}}
@compute @workgroup_size({_THREADS}) fn main(
    @builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>
) {{
    let is_input = part.is_input != 0u;
    if is_input && atomicLoad(&flags[0]) == 0u {{ return; }}
    let low = part.low;
    let high = part.high;
    let is_wide = part.is_wide != 0u;
    let end = part.quad + part.quads;
    let stride = groups.x * {_THREADS}u;
    // an exponent of ones carries into the place of the sign
    let exponents = vec4(low | high);
    let carry = vec4(exponents & ~(exponents << vec4(1u)));
    var carried = vec4(0u);
    for (var i = part.quad + id.x; i < end; i += stride) {{ carried |= (quads[i] & exponents) + carry; }}
    var seen = 0u;
    if any((carried & ~exponents & (exponents << vec4(1u))) != vec4(0u)) {{
        for (var i = part.quad + id.x; i < end; i += stride) {{
            let quad = quads[i];
            seen |= kinds(quad.x, low, high, is_wide) | kinds(quad.y, low, high, is_wide);
            seen |= kinds(quad.z, low, high, is_wide) | kinds(quad.w, low, high, is_wide);
        }}
    }}
    // the words before and behind the quads
    let before = select(part.words, 4u * part.quad - part.first, part.quads != 0u);
    let position = select(id.x + 4u * part.quads, id.x, id.x < before);
    if position < part.words && id.x < 8u {{
        let word = x[part.first + position];
        seen |= kinds(select(word, word & part.last, position + 1u == part.words), low, high, is_wide);
    }}
    if seen != 0u {{
        atomicOr(&flags[1u + part.slot], seen);
        if !is_input && (seen & ~part.allowed) != 0u {{ atomicOr(&flags[0], 1u); }}
    }}
}}
"""

_TALLY = f"""
@group(0) @binding(0) var<storage, read_write> flags: array<u32>;
@group(0) @binding(1) var<storage, read_write> tally: array<u32>;
@compute @workgroup_size(1) fn main() {{
    let outputs = arrayLength(&tally) - 3u;
    var ordinary = true;
    for (var i = 1u + outputs; i < arrayLength(&flags); i++) {{
        ordinary = ordinary && (flags[i] & {EXTRAORDINARY}u) == 0u;
    }}
    tally[0] += 1u;
    if flags[0] != 0u && ordinary {{
        if tally[1] == 0u {{ tally[2] = tally[0]; }}
        tally[1] += 1u;
        for (var i = 0u; i < outputs; i++) {{ tally[3u + i] |= flags[1u + i]; }}
    }}
    for (var i = 0u; i < arrayLength(&flags); i++) {{ flags[i] = 0u; }}
}}
"""


def _kernel(name: str, wgsl: str, threads: int, *bindings: Binding) -> Kernel:
    return Kernel(hashlib.sha256(wgsl.encode()).hexdigest(), name, wgsl, (threads, 1, 1), bindings)


_SCAN_KERNEL = _kernel(
    "finite scan",
    _SCAN,
    _THREADS,
    Binding("x", "read", "u32"),
    Binding("quads", "read", "vec4<u32>"),
    Binding("part", "read", "Part"),
    Binding("flags", "read_write", "atomic<u32>"),
)
_TALLY_KERNEL = _kernel(
    "finite tally", _TALLY, 1, Binding("flags", "read_write", "u32"), Binding("tally", "read_write", "u32")
)


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
    groups: int


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
        self._scan, self._count = (
            device.pipeline(kernel, checked=device.keeps_checks, max_wgsl_bytes=Caps().wgsl_bytes)
            for kernel in (_SCAN_KERNEL, _TALLY_KERNEL)
        )
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
        stride = max(self._device.profile.storage_alignment, 64)  # powers of two
        parts = [part for each in scanned for part in self._parts(each)]
        table = np.zeros((len(parts), stride // 4), np.uint32)
        table[:, :_NUMBERS] = [part.numbers for part in parts]
        buffer = self._device.create_buffer(table.nbytes, STORAGE | COPY_DST, "parts of a scan")
        write(self._device, buffer, 0, as_bytes(table))
        flags = (self._flags, 0, 4 * self._size)
        dispatches = [
            self._dispatch(
                self._scan,
                (
                    part.range,
                    part.range if part.range[2] >= 16 else (buffer, 0, 16),
                    (buffer, index * stride, 4 * _NUMBERS),
                    flags,
                ),
                part.groups,
            )
            for index, part in enumerate(parts)
        ]
        dispatches.append(self._dispatch(self._count, (flags, (self._tally, 0, self._tally_bytes)), 1))
        watched = [weakref.ref(storage.gpu, lambda _: self._prepared.pop(key, None)) for storage in storages]
        self._prepared[key] = dispatches, watched
        if len(self._prepared) > _MOST_PREPARED:
            self._prepared.popitem(last=False)
        return dispatches

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
            quad = -(-first // 4)
            quads = max((first + words - 1) // 4 - quad, 0)  # the last word may have a half too many
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
                quad,
                quads,
                dtype.bits == 32,
            )
            groups = min(-(-quads // (_THREADS * _QUADS_PER_THREAD)) or 1, _GROUPS)
            yield _Part((storage.gpu, start, stop - start), numbers, groups)
            begin = stop

    def _dispatch(self, holder: PipelineHolder, ranges: Sequence[tuple[Any, int, int]], groups: int) -> Dispatch:
        with self._device.guarded("binding the tensors of a scan"):
            group = self._device.bind_group(holder.pipeline.layout, ranges)
        call = KernelCall("", (), (groups, 1, 1), (), "finite scan")
        return Dispatch(call, holder, group, (groups, 1, 1))
