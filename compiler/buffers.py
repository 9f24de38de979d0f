"""Where activations live: lifetimes, in-place sharing, arenas and offsets.

WebGPU forbids one buffer to be bound read-only and read-write in one dispatch, even at disjoint ranges; it allows
several read-write bindings of disjoint ranges.  So tensors are packed into a few *arenas* (one buffer each) such that
no call reads and writes the same arena.  Where that wastes too much, one arena holds them all, and the planner binds
what a call reads for writing too; and if that is not enough, the buffers of outputs hold tensors that die before the
output is written.  Only a tensor that takes over the memory of an operand that dies shares its range.

With static sizes tensors get offsets inside arenas: largest first, at the lowest offset where nothing overlaps in time.
With declared dynamic dimensions sizes are known only at run time: each arena then holds one tensor at a time and is as
large as the largest of its tenants.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import index as ix
from .index import Dim


@dataclass(frozen=True)
class Tensor:
    """A block of memory with its lifetime: written first in call ``first``, read last in call ``last`` (inclusive).

    ``size`` in bytes.  ``written`` and ``read`` are the calls that bind it for writing and for reading only.
    """

    size: Dim
    first: int
    last: int
    written: frozenset[int]
    read: frozenset[int]


@dataclass
class Placement:
    """``arenas``: bytes of each; ``place[i]``: (arena, offset in bytes) of tensor i.

    Arena ``-1 - n`` is the buffer of output n.
    """

    arenas: list[Dim] = field(default_factory=list)
    place: list[tuple[int, int]] = field(default_factory=list)


def assign(tensors: Sequence[Tensor], alignment: int, outputs: Sequence[Tensor] = ()) -> Placement:
    """Place all tensors; offsets are multiples of ``alignment``.  ``outputs`` have buffers of their own."""
    if any(isinstance(tensor.size, ix.Index) for tensor in (*tensors, *outputs)):
        return _assign_slots(tensors)
    return _assign_offsets(tensors, outputs, alignment)


def lower_bound(tensors: Sequence[Tensor]) -> int:
    """The largest sum of tensors that are live at one call: no plan without in-place sharing can need less."""
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


def _conflicts(tensors: Sequence[Tensor]) -> list[set[int]]:
    """Tensors that may not share an arena: one is read by a call that writes the other."""
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


def _overlap(one: Tensor, other: Tensor) -> bool:
    return one.first <= other.last and other.first <= one.last


#: Orders that are tried at the most, and comparisons of two tensors that all of them may take
_TRIES, _COMPARISONS = 64, 400_000
#: Memory over the lower bound that keeping reads and writes apart may cost
_APART = 1.15


def _assign_offsets(tensors: Sequence[Tensor], outputs: Sequence[Tensor], alignment: int) -> Placement:
    """The first of three kinds of placement that takes little more than the lower bound, or the smallest."""
    everything = [*tensors, *outputs]
    least = lower_bound(everything)
    allowed = int(_APART * least) - sum(ix.number(tensor.size) for tensor in outputs)
    free: list[set[int]] = [set() for _ in everything]
    best: Placement | None = None
    for conflicts, rooms in ((_conflicts(everything), 0), (free, 0), (free, len(outputs))):
        placement = _smallest(everything, len(tensors), alignment, conflicts, rooms)
        if best is None or _total(placement) < _total(best):
            best = placement
        if _total(best) <= allowed:
            break
    assert best is not None
    return best


def _smallest(
    everything: Sequence[Tensor], count: int, alignment: int, conflicts: Sequence[set[int]], rooms: int
) -> Placement:
    """The smallest of several greedy placements of the first ``count``, roughly the largest first.

    The rest are outputs; buffers of the first ``rooms`` of them may hold others.  Chance is seeded: plans are
    repeatable.
    """
    tensors = everything[:count]
    sizes = [-(-ix.number(tensor.size) // alignment) * alignment for tensor in tensors]
    generator = random.Random(0)
    best: Placement | None = None
    resident = sum(ix.number(tensor.size) for tensor in everything[count:])
    bound = lower_bound(everything) - resident if rooms else lower_bound(tensors)
    for attempt in range(max(min(_TRIES, _COMPARISONS // max(count, 1) ** 2), 1)):
        weights = [size * generator.uniform(0.3, 1.0) if attempt else size for size in sizes]
        order = sorted(range(count), key=lambda number: (-weights[number], tensors[number].first, number))
        placement = _place_in_order(everything, sizes, conflicts, order, rooms)
        if best is None or _total(placement) < _total(best):
            best = placement
        if _total(best) <= bound:
            break
    assert best is not None
    return best


def _total(placement: Placement) -> int:
    return sum(ix.bounds(size)[1] for size in placement.arenas)


def _place_in_order(
    everything: Sequence[Tensor],
    sizes: Sequence[int],
    conflicts: Sequence[set[int]],
    order: Sequence[int],
    rooms: int,
) -> Placement:
    """Each tensor goes where the arenas grow least, then to the lowest offset."""
    count = len(sizes)
    extents = [*sizes, *(ix.number(tensor.size) for tensor in everything[count:])]
    place: dict[int, tuple[int, int]] = {count + room: (-1 - room, 0) for room in range(rooms)}
    members: dict[int, list[int]] = {-1 - room: [count + room] for room in range(rooms)}
    peaks: list[int] = []
    for number in order:
        barred = {place[other][0] for other in conflicts[number] if other in place}
        best: tuple[int, int, int] | None = None
        for arena, tenants in members.items():
            if arena in barred:
                continue
            offset = _lowest_gap(everything, extents, place, tenants, number)
            end = offset + sizes[number]
            if arena < 0 and end > extents[count - 1 - arena]:
                continue  # the buffer of an output does not grow
            growth = max(end - peaks[arena], 0) if arena >= 0 else 0
            if best is None or (growth, offset) < (best[0], best[2]):
                best = (growth, arena, offset)
        if best is None:
            best = (sizes[number], len(peaks), 0)
            members[len(peaks)] = []
            peaks.append(0)
        _, arena, offset = best
        place[number] = (arena, offset)
        members[arena].append(number)
        if arena >= 0:
            peaks[arena] = max(peaks[arena], offset + sizes[number])
    return Placement(list(peaks), [place[number] for number in range(count)])


def _lowest_gap(
    tensors: Sequence[Tensor],
    extents: Sequence[int],
    place: dict[int, tuple[int, int]],
    tenants: list[int],
    number: int,
) -> int:
    """The lowest offset in an arena where the tensor overlaps no tenant that lives at the same time."""
    taken = sorted(
        (place[other][1], place[other][1] + extents[other])
        for other in tenants
        if _overlap(tensors[number], tensors[other])
    )
    offset = 0
    for start, end in taken:
        if offset + extents[number] <= start:
            break
        offset = max(offset, end)
    return offset


def _assign_slots(tensors: Sequence[Tensor]) -> Placement:
    """One tenant at a time; a slot whose tenants have had about the same size is preferred."""
    placement = Placement()
    free_from: list[int] = []
    place: dict[int, tuple[int, int]] = {}
    for number in sorted(range(len(tensors)), key=lambda item: (tensors[item].first, item)):
        tensor = tensors[number]
        wanted = ix.bounds(tensor.size)[1]
        best: int | None = None
        for slot, call in enumerate(free_from):
            if call > tensor.first:
                continue
            if best is None or _misfit(placement.arenas[slot], wanted) < _misfit(placement.arenas[best], wanted):
                best = slot
        if best is None:
            best = len(free_from)
            placement.arenas.append(tensor.size)
            free_from.append(0)
        placement.arenas[best] = ix.maximum(placement.arenas[best], tensor.size)
        free_from[best] = tensor.last + 1
        place[number] = (best, 0)
    placement.place = [place[number] for number in range(len(tensors))]
    return placement


def _misfit(size: Dim, wanted: int) -> int:
    return abs(ix.bounds(size)[1] - wanted)
