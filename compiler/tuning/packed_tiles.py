"""Tiles of products with packed weights for few rows: which threads share the terms of which columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from ...runtime.plan.record import record
from ..ops.internal.packed_weights import MOST_ROWS
from ..symbolic.lanes import LANES
from ..target import Target, ThreadCosts, WorkgroupCosts
from .gemm_tiles import Problem, range_cost

#: Rows up to which rounding the activations costs less than it saves
_INTEGER_ROWS = 2
#: Threads whose loads keep a multiprocessor busy
_BUSY_THREADS = 1536
#: Loads of 16 bytes that threads of a multiprocessor may have in flight before units are in flight together
_FEW_LOADS = 4096
#: Loads of a unit of 4 bits; threads with more have registers for one vector of columns
_SMALL_UNIT = 2
#: Where threads share nothing: what a row's activations cost a thread, in the cost of the words of a vector of columns
_ACTIVATIONS = 0.3
#: Of more rows than a thread holds: microseconds besides the products, and multiply-adds of a multiprocessor in one
_START, _PRODUCTS = 4.0, 90_000
#: Tiles (columns, parts, unroll) besides the rule's
_OTHERS = ((1, 128, 4), (1, 64, 1), (1, 128, 2), (1, 128, 1), (1, 256, 1), (2, 64, 1), (2, 32, 2), (1, 32, 2))


@record
class PackedTile:
    """``parts`` threads share the terms of ``columns`` vectors of four columns, of all products, in ``rows`` rows.

    A workgroup has ``across`` such teams.  A thread reads ``depth`` units of terms for one scale, or has ``unroll``
    units in flight.

    ``integers``: the activations of a unit are rounded to integers of 16 bits, whose bytes are multiplied by the codes.
    """

    rows: int
    columns: int
    across: int
    parts: int
    depth: int = 1
    unroll: int = 1
    integers: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= MOST_ROWS or not 1 <= self.columns <= 8:
            raise ValueError(f"a thread cannot hold {self.rows} rows of {self.columns} vectors")
        if self.parts & (self.parts - 1) or not 1 <= self.across * self.parts <= 256:
            raise ValueError(f"a workgroup of {self.across} by {self.parts} threads")
        if self.depth < 1 or self.unroll < 1 or self.depth > 1 < self.unroll:
            raise ValueError(f"{self} has no steps, or loops that are in flight together")

    @property
    def vectors(self) -> int:
        """Vectors of results of a team."""
        return self.rows * self.columns

    @property
    def threads(self) -> int:
        return self.across * self.parts

    @property
    def sums(self) -> int:
        """Threads that add the parts of a vector, each an equal share, before one adds what they have."""
        return 1 << (self.parts.bit_length() // 2)

    @property
    def workgroup_bytes(self) -> int:
        """Memory for the parts of the results, and of a sum for each row."""
        return 0 if self.parts == 1 else 16 * (self.vectors + self.rows) * self.across * (self.parts + self.sums)


def takes_groups(problem: Problem, target: Target, other: float) -> bool:
    """Return whether groups of rows that read the weight once each take less than ``other`` microseconds.

    Activations are what takes them time: each thread loads those of its terms for all rows, for four columns.
    """
    costs = target.costs
    if not isinstance(costs, WorkgroupCosts):
        return False
    rate = _PRODUCTS * costs.multiprocessors
    return range_cost(problem, lambda each: _START + each.m * each.n * each.k / rate) < other


def ranked(
    problem: Problem,
    units: int,
    depth: int,
    target: Target,
    products: int = 1,
    *,
    unit_loads: int = _SMALL_UNIT,
    integers: bool = False,
) -> list[PackedTile]:
    """Return the tiles for ``products`` of one activation that the device's limits allow, best first; never empty.

    A row of the weight has ``units`` that a thread decodes at once, for which it loads ``unit_loads`` times 16 bytes of
    words and activations; ``depth`` neighbours of them share a scale.  Rows are computed in groups of like sizes.  With
    ``integers`` tiles may round the activations; that is worth it up to two rows.
    """
    groups = max(ceil(problem.m / MOST_ROWS), 1)
    rows, vectors = max(ceil(problem.m / groups), 1), products * ceil(problem.n / LANES)
    if target.uses_workgroup_memory:
        tiles = list(_workgroup_tiles(rows, groups * vectors, units, unit_loads, products, target))
        if groups > 1:
            tiles += [replace(tiles[0], rows=ceil(rows / 2), columns=2), replace(tiles[0], columns=2)]
    else:
        tiles = _thread_tiles(rows, vectors, depth, target)
    shared = (replace(tile, columns=products * max(tile.columns // products, 1)) for tile in tiles)
    fitting = [tile for tile in dict.fromkeys(shared) if _fits(tile, vectors, target)]
    if integers and rows <= _INTEGER_ROWS:
        fitting = [*(replace(tile, integers=True) for tile in fitting), *fitting]
    return fitting or [PackedTile(rows, products, 64, 1)]


def _workgroup_tiles(
    rows: int, vectors: int, units: int, unit_loads: int, products: int, target: Target
) -> Iterator[PackedTile]:
    """Yield tiles for GPUs: measured on an H200 (docs/performance.md).

    Large matrices fill the device with one subgroup a team; smaller ones need more threads, each with fewer steps.  A
    thread of one row has up to four units in flight, where those of all threads are few.
    """
    costs = target.costs
    assert isinstance(costs, WorkgroupCosts)
    busy, is_small = _BUSY_THREADS * costs.multiprocessors, unit_loads <= _SMALL_UNIT
    if is_small and vectors // 2 * 32 * 2 > busy and rows <= 2:
        yield PackedTile(rows, 2, 1, 32, unroll=2 if rows == 1 else 1)
    most = 64 if rows > 2 else 128 if rows > 1 else 256
    parts = 32
    while parts < min(most, 128, units) and (vectors * parts < busy or not is_small):
        parts *= 2
    unroll = 1
    if rows == products == 1 and vectors * parts * unit_loads <= _FEW_LOADS * costs.multiprocessors:
        while unroll < 4 and units % (2 * unroll * parts) == 0:
            unroll *= 2
    if unroll == 1 and parts < min(most, units) and vectors * parts < busy:
        parts *= 2
    yield PackedTile(rows, 1, 1, parts, unroll=unroll)
    for columns, other, unroll in _OTHERS:
        if other <= most:
            yield PackedTile(rows, columns, 1, other, unroll=unroll)


def _thread_tiles(rows: int, vectors: int, depth: int, target: Target) -> list[PackedTile]:
    """Return tiles for software drivers, where threads share nothing.

    More columns share the loads of activations; fewer make more workgroups, of which each core gets as many.  Threads
    with more than four vectors take too long to compile to be preferred.
    """
    costs = target.costs
    assert isinstance(costs, ThreadCosts)

    def cost(columns: int) -> tuple[bool, float]:
        turns = ceil(ceil(vectors / (columns * target.group_threads)) / costs.cores)
        return columns > 4, turns * (columns + _ACTIVATIONS * rows)

    columns = sorted((4, 2, 1, 8), key=cost)
    return [PackedTile(rows, each, target.group_threads, 1, depth=depth) for each in columns if rows * each <= 16]


def _fits(tile: PackedTile, vectors: int, target: Target) -> bool:
    most = min(target.limit("max-compute-invocations-per-workgroup"), target.max_workgroup_threads)
    groups = ceil(vectors / (tile.columns * tile.across))
    return (
        tile.threads <= most
        and tile.workgroup_bytes <= target.limit("max-compute-workgroup-storage-size")
        and groups <= target.limit("max-compute-workgroups-per-dimension")
    )
