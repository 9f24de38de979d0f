"""Allocation of activation memory: live ranges to arenas and offsets.

WebGPU forbids one buffer to be bound read-only and read-write in one dispatch, even at disjoint ranges; it allows
several read-write bindings of disjoint ranges.  So tensors are packed into a few *arenas* (one buffer each) such that
no call reads and writes the same arena.  Where that wastes too much, one arena holds them all, and what a call reads is
bound for writing too; and if that is not enough, the buffers of outputs hold tensors that die before the
output is written, kept apart like those in arenas where that suffices.  Only a tensor that takes over the memory of an
operand that dies shares its range.

With static sizes tensors get offsets inside arenas: largest first, at the lowest offset where nothing overlaps in time.
With declared dynamic dimensions sizes are known only at run time: each arena then holds one tensor at a time and is as
large as the largest of its tenants.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...runtime.plan.record import record
from ..symbolic import polynomial as ix
from ..symbolic.polynomial import Dim

#: Bytes of an arena where no device is asked
_UNLIMITED = 1 << 62


@record(slots=False)
class LiveRange:
    """The calls during which a slot is in use, from ``first`` to ``last`` inclusive.

    ``size`` in bytes.  ``written`` and ``read`` are the calls that bind it for writing and for reading only.
    """

    size: Dim
    first: int
    last: int
    written: frozenset[int]
    read: frozenset[int]


@record
class ArenaBuffer:
    """The arena with this number."""

    number: int


@record
class OutputBuffer:
    """The buffer of the output with this number."""

    number: int


Buffer = ArenaBuffer | OutputBuffer


@dataclass
class Allocation:
    """``arenas``: bytes of each; ``locations[i]``: the buffer of slot i, and its offset there in bytes."""

    arenas: list[Dim] = field(default_factory=list)
    locations: list[tuple[Buffer, int]] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Bytes of all arenas, at most."""
        return sum(ix.bounds(size)[1] for size in self.arenas)


def allocate(
    slots: Sequence[LiveRange], alignment: int, outputs: Sequence[LiveRange] = (), most: int = _UNLIMITED
) -> Allocation:
    """Place all slots; offsets are multiples of ``alignment``.  ``outputs`` have buffers of their own.

    An arena has at most ``most`` bytes, unless a single slot has more.
    """
    if any(isinstance(slot.size, ix.Index) for slot in (*slots, *outputs)):
        return _allocate_whole_arenas(slots)
    return _allocate_offsets(slots, outputs, alignment, most)


def lower_bound(tensors: Sequence[LiveRange]) -> int:
    """Return the largest sum of slots that are live at one call: no plan without in-place sharing can need less."""
    changes: dict[int, int] = {}
    for tensor in tensors:
        size = ix.bounds(tensor.size)[1]
        changes[tensor.first] = changes.get(tensor.first, 0) + size
        changes[tensor.last + 1] = changes.get(tensor.last + 1, 0) - size
    peak = live = 0
    for call in sorted(changes):
        live += changes[call]
        peak = max(peak, live)
    return peak


def _conflicts(tensors: Sequence[LiveRange]) -> list[set[int]]:
    """Return for each slot those that may not share its arena: a call reads one and writes the other."""
    readers: dict[int, list[int]] = {}
    writers: dict[int, list[int]] = {}
    for number, tensor in enumerate(tensors):
        for call in tensor.read:
            readers.setdefault(call, []).append(number)
        for call in tensor.written:
            writers.setdefault(call, []).append(number)
    conflicts: list[set[int]] = [set() for _ in tensors]
    for call, written in writers.items():
        for one in written:
            for other in readers.get(call, ()):
                if one != other:
                    conflicts[one].add(other)
                    conflicts[other].add(one)
    return conflicts


def _alive_together(tensors: Sequence[LiveRange]) -> list[list[int]]:
    """Return for each slot the others that are live at one call or more with it: a sweep over the calls."""
    together: list[list[int]] = [[] for _ in tensors]
    alive: list[int] = []
    for number in sorted(range(len(tensors)), key=lambda item: tensors[item].first):
        first = tensors[number].first
        alive = [other for other in alive if tensors[other].last >= first]
        for other in alive:
            together[other].append(number)
        together[number] += alive
        alive.append(number)
    return together


#: Orders that are tried at the most, and comparisons of two tensors that all of them may take
_TRIES, _COMPARISONS = 64, 400_000
#: Memory over the lower bound that keeping reads and writes apart may cost
_APART = 1.15


def _allocate_offsets(
    tensors: Sequence[LiveRange], outputs: Sequence[LiveRange], alignment: int, most: int
) -> Allocation:
    """Return the first of four kinds of allocation that takes little more than the lower bound, or the smallest."""
    everything = [*tensors, *outputs]
    least = lower_bound(everything)
    allowed = int(_APART * least) - sum(ix.number(tensor.size) for tensor in outputs)
    together = _alive_together(everything)
    apart, free = _conflicts(everything), [set[int]() for _ in everything]
    best: Allocation | None = None
    for conflicts, shared_outputs in ((apart, 0), (free, 0), (apart, len(outputs)), (free, len(outputs))):
        allocation = _smallest(everything, len(tensors), alignment, together, conflicts, shared_outputs, most)
        if best is None or allocation.bytes < best.bytes:
            best = allocation
        if best.bytes <= allowed:
            break
    assert best is not None
    return best


def _smallest(
    everything: Sequence[LiveRange],
    count: int,
    alignment: int,
    together: Sequence[Sequence[int]],
    conflicts: Sequence[set[int]],
    shared_outputs: int,
    most: int,
) -> Allocation:
    """Return the smallest of several greedy allocations of the first ``count`` slots, roughly the largest first.

    The rest are outputs; buffers of the first ``shared_outputs`` of them may hold other tensors.  Chance is seeded:
    plans are repeatable.
    """
    tensors = everything[:count]
    sizes = [-(-ix.number(tensor.size) // alignment) * alignment for tensor in tensors]
    extents = [*sizes, *(ix.number(tensor.size) for tensor in everything[count:])]
    generator = random.Random(0)
    best: Allocation | None = None
    total = sum(sizes) + 1
    bound = lower_bound(everything) - sum(extents[count:]) if shared_outputs else lower_bound(tensors)
    for attempt in range(max(min(_TRIES, _COMPARISONS // max(count, 1) ** 2), 1)):
        weights = [size * generator.uniform(0.3, 1.0) if attempt else size for size in sizes]
        order = sorted(range(count), key=lambda number: (-weights[number], tensors[number].first, number))
        allocation = _place_in_order(extents, together, conflicts, order, shared_outputs, total, most)
        if allocation is not None:
            best, total = allocation, allocation.bytes
        if total <= bound:
            break
    assert best is not None
    return best


def _place_in_order(
    extents: Sequence[int],
    together: Sequence[Sequence[int]],
    conflicts: Sequence[set[int]],
    order: Sequence[int],
    shared_outputs: int,
    limit: int,
    most: int,
) -> Allocation | None:
    """Put each slot where the arenas grow least, then at the lowest offset; None once they take ``limit`` bytes.

    No arena grows beyond ``most`` bytes.
    Buffers are numbered: those of the first ``shared_outputs`` outputs, which do not grow, then the arenas.
    """
    count = len(order)
    place: list[tuple[int, int] | None] = [None] * len(extents)
    place[count : count + shared_outputs] = [(buffer, 0) for buffer in range(shared_outputs)]
    peaks: list[int] = list(extents[count : count + shared_outputs])
    total = 0
    for number in order:
        extent = extents[number]
        barred = {spot[0] for other in conflicts[number] if (spot := place[other]) is not None}
        taken: dict[int, list[tuple[int, int]]] = {}
        for other in together[number]:
            if (spot := place[other]) is not None:
                taken.setdefault(spot[0], []).append((spot[1], spot[1] + extents[other]))
        best: tuple[int, int, int] | None = None
        for buffer in range(len(peaks)):
            if buffer in barred:
                continue
            offset = _lowest_gap(taken[buffer], extent) if buffer in taken else 0
            growth = max(offset + extent - peaks[buffer], 0)
            if growth and (buffer < shared_outputs or offset + extent > most):
                continue
            if best is None or (growth, offset) < (best[0], best[2]):
                best = (growth, buffer, offset)
        if best is None:
            best = (extent, len(peaks), 0)
            peaks.append(0)
        growth, buffer, offset = best
        total += growth
        if total >= limit:
            return None
        place[number] = (buffer, offset)
        peaks[buffer] += growth
    buffers: list[Buffer] = [
        *map(OutputBuffer, range(shared_outputs)),
        *map(ArenaBuffer, range(len(peaks) - shared_outputs)),
    ]
    return Allocation(
        list(peaks[shared_outputs:]), [(buffers[spot[0]], spot[1]) for spot in place[:count] if spot is not None]
    )


def _lowest_gap(taken: list[tuple[int, int]], extent: int) -> int:
    """Return the lowest offset where ``extent`` bytes overlap none of the ranges that are taken."""
    taken.sort()
    offset = 0
    for start, end in taken:
        if offset + extent <= start:
            break
        offset = max(offset, end)
    return offset


def _allocate_whole_arenas(tensors: Sequence[LiveRange]) -> Allocation:
    """Give each arena one slot at a time; prefer an arena whose slots have had about the same size."""
    allocation = Allocation()
    free_from: list[int] = []
    place: dict[int, int] = {}
    for number in sorted(range(len(tensors)), key=lambda item: (tensors[item].first, item)):
        tensor = tensors[number]
        wanted = ix.bounds(tensor.size)[1]
        best: int | None = None
        for arena, call in enumerate(free_from):
            if call > tensor.first:
                continue
            if best is None or _misfit(allocation.arenas[arena], wanted) < _misfit(allocation.arenas[best], wanted):
                best = arena
        if best is None:
            best = len(free_from)
            allocation.arenas.append(tensor.size)
            free_from.append(0)
        allocation.arenas[best] = ix.maximum(allocation.arenas[best], tensor.size)
        free_from[best] = tensor.last + 1
        place[number] = best
    allocation.locations = [(ArenaBuffer(place[number]), 0) for number in range(len(tensors))]
    return allocation


def _misfit(size: Dim, wanted: int) -> int:
    return abs(ix.bounds(size)[1] - wanted)
