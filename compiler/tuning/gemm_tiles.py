"""Tile configurations: legality, and which one a device profile runs best.

A kernel family describes its work as a :class:`Problem`; :func:`ranked` gives the configurations of its templates from
best to worst.  Today an analytic model of the two kinds of devices orders them; measured times can take its place
without a change to the kernels, which hold no numbers of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from ...runtime.plan.device_profile import DeviceProfile
from ..symbolic.lanes import LANES


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """``rows`` times ``columns`` vectors of four results a thread, nothing shared.

    ``across`` neighbouring threads of a workgroup lie along the columns and ``down`` along the rows.
    """

    rows: int
    columns: int
    across: int
    down: int

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= 32 or not 1 <= self.columns <= 16:
            raise ValueError(f"a thread cannot hold {self.rows} rows of {self.columns} vectors")
        if self.rows * self.columns > 64:
            raise ValueError(f"{self.rows * self.columns} accumulators are too many")
        if not 1 <= self.across * self.down <= 256:
            raise ValueError(f"a workgroup of {self.across} by {self.down} threads")

    @property
    def threads(self) -> int:
        return self.across * self.down


@dataclass(frozen=True, slots=True)
class SubgroupTile:
    """A workgroup is one subgroup of ``subgroup`` threads with ``rows`` rows each and ``columns`` vectors in common.

    The threads load the elements of the second factor once between them and broadcast them.
    """

    rows: int
    columns: int
    subgroup: int

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= 16 or not 1 <= self.columns <= 16 or self.rows * self.columns > 64:
            raise ValueError(f"a thread cannot hold {self.rows} rows of {self.columns} vectors")
        if self.subgroup not in (4, 8, 16, 32, 64, 128):
            raise ValueError(f"a subgroup of {self.subgroup} threads")


@dataclass(frozen=True, slots=True)
class SharedTile:
    """A workgroup computes ``block_m`` times ``block_n`` results from tiles in workgroup memory, ``block_k`` deep.

    A thread computes ``rows`` times ``columns`` vectors of four.  Where the results are too few for a GPU, ``parts``
    threads share the terms of each; the first adds their sums in order, through the memory of B's tile.  ``padding``
    elements follow each column of A's tile, so that threads that store neighbouring terms meet different memory banks.
    """

    block_m: int
    block_n: int
    block_k: int
    rows: int
    columns: int
    parts: int = 1
    padding: int = 0

    def __post_init__(self) -> None:
        if self.block_m % self.rows or self.block_n % (self.columns * LANES) or self.block_k % LANES:
            raise ValueError(f"{self} does not divide into threads")
        if not 32 <= self.threads <= 256:
            raise ValueError(f"{self} has {self.threads} threads")
        if self.parts > 1 and (self.block_k % self.parts or self.block_k < self.block_m):
            raise ValueError(f"the tiles of {self} do not divide into parts, or hold no partial sums")
        if self.padding % LANES:
            raise ValueError(f"columns of {self} do not begin at whole vectors")
        for loads in (self.block_m * self.block_k, self.block_n * self.block_k):  # also when loads of A are scalars
            if loads % (LANES * self.threads):
                raise ValueError(f"the {self.threads} threads of {self} do not share {loads} loads evenly")

    @property
    def across(self) -> int:
        """Threads along the columns."""
        return self.block_n // (self.columns * LANES)

    @property
    def part_threads(self) -> int:
        """Threads that cover the results once."""
        return self.across * (self.block_m // self.rows)

    @property
    def threads(self) -> int:
        return self.part_threads * self.parts

    @property
    def workgroup_bytes(self) -> int:
        return 4 * self.block_k * (self.column_a + self.block_n)

    @property
    def column_a(self) -> int:
        """Elements from one column of A's tile to the next."""
        return self.block_m + self.padding


#: Rows of a :class:`SplitTile` at the most
SPLIT_ROWS = 8


@dataclass(frozen=True, slots=True)
class SplitTile:
    """Few rows, or many terms: ``parts`` threads share the terms of each vector of four columns in ``rows`` rows.

    A workgroup has ``across`` such vectors.
    """

    rows: int
    across: int
    parts: int

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= SPLIT_ROWS:
            raise ValueError(f"{self.rows} rows are too many for one thread")
        if self.parts & (self.parts - 1) or not 1 <= self.across * self.parts <= 1024:
            raise ValueError(f"a workgroup of {self.across} by {self.parts} threads")

    @property
    def threads(self) -> int:
        return self.across * self.parts

    @property
    def workgroup_bytes(self) -> int:
        return 16 * self.rows * self.threads


@dataclass(frozen=True, slots=True)
class ElementTile:
    """One thread computes ``lanes`` neighbouring results by itself: the general fallback."""

    lanes: int
    workgroup: int = 64

    def __post_init__(self) -> None:
        if self.lanes not in (1, LANES) or not 1 <= self.workgroup <= 256:
            raise ValueError(f"{self.lanes} lanes, {self.workgroup} threads")


@dataclass(frozen=True, slots=True)
class Problem:
    """``batch`` products of an ``m`` by ``k`` with a ``k`` by ``n`` matrix.

    Sizes of dynamic dimensions are their upper bounds.
    """

    m: int
    n: int
    k: int
    batch: int = 1


Tile = RegisterTile | SubgroupTile | SharedTile | SplitTile


# -- software drivers --------------------------------------------------------------------------------------------------

#: Costs of lavapipe in nanoseconds for a subgroup of eight threads (docs/performance.md): a vector load, which goes
#: lane by lane, one multiply-add of vectors, and starting a thread
_CPU_LOAD, _CPU_MULTIPLY, _CPU_START = 120.0, 7.0, 2000.0
CPU_SUBGROUP = 8
CPU_CORES = 2
#: A larger body must save its compile time, in nanoseconds for each accumulator, within so many runs
_CPU_COMPILE, CPU_RUNS = 20e6, 300
_CPU_ACCUMULATORS = 32


def _cpu_cost(problem: Problem, tile: RegisterTile) -> float:
    """Nanoseconds of some runs and of compiling once."""
    vectors = ceil(problem.n / LANES)
    across, down = ceil(ceil(vectors / tile.columns) / tile.across), ceil(ceil(problem.m / tile.rows) / tile.down)
    subgroups = problem.batch * across * down * ceil(tile.threads / CPU_SUBGROUP)
    loads = tile.rows / LANES + tile.columns
    step = loads * _CPU_LOAD + tile.rows * tile.columns * _CPU_MULTIPLY
    run = subgroups * (step * problem.k + _CPU_START) / CPU_CORES
    return CPU_RUNS * run + _CPU_COMPILE * tile.rows * tile.columns


def _register_tiles(problem: Problem, subgroup: int) -> Iterator[RegisterTile]:
    vectors = ceil(problem.n / LANES)
    for rows in (1, 2, 4, 7, 8, 14, 16):
        if rows > problem.m and rows > 1:
            continue
        for columns in (1, 2, 3, 4):
            if columns > vectors or rows * columns > _CPU_ACCUMULATORS:
                continue
            across = 1
            while across < subgroup and across * columns < vectors:
                across *= 2
            for threads in (subgroup, 8 * subgroup):  # more only where the grid would have too many workgroups
                yield RegisterTile(rows, columns, across, max(threads // across, 1))


@dataclass(frozen=True, slots=True)
class _BroadcastCosts:
    """The same of tiles that share loads by broadcasts, in nanoseconds for a subgroup (see docs/performance.md)."""

    load: float
    multiply: float
    compile_load: float = 10e6
    compile_multiply: float = 15e6


#: Threads of a subgroup -> costs: lavapipe has eight (AVX2), SwiftShader four (SSE)
_BROADCAST_COSTS = {8: _BroadcastCosts(101.0, 4.0), 4: _BroadcastCosts(84.0, 7.4, 10e6, 6e6)}
_SUBGROUP_ACCUMULATORS = 64  #: compiling more takes LLVM many seconds


def _subgroup_cost(problem: Problem, tile: SubgroupTile) -> float:
    """Nanoseconds of some runs and of compiling once."""
    costs = _BROADCAST_COSTS.get(tile.subgroup, _BROADCAST_COSTS[CPU_SUBGROUP])
    vectors = ceil(problem.n / LANES)
    subgroups = problem.batch * ceil(vectors / tile.columns) * ceil(problem.m / (tile.rows * tile.subgroup))
    loads = tile.rows + ceil(LANES * tile.columns / tile.subgroup)
    multiplies = tile.rows * tile.columns
    step = loads * costs.load + LANES * multiplies * costs.multiply
    run = subgroups * (step * problem.k / LANES + _CPU_START) / min(CPU_CORES, subgroups)
    return CPU_RUNS * run + costs.compile_load * loads + costs.compile_multiply * multiplies


def _subgroup_tiles(problem: Problem, subgroup: int) -> Iterator[SubgroupTile]:
    vectors = ceil(problem.n / LANES)
    for rows in (1, 2, 3, 4, 5, 6, 7, 8):
        for columns in (1, 2, 3, 4, 6, 8, 12, 16):
            useful = columns <= vectors and (rows == 1 or rows * subgroup < 2 * problem.m)
            if useful and rows * columns <= _SUBGROUP_ACCUMULATORS:
                yield SubgroupTile(rows, columns, subgroup)


# -- GPUs --------------------------------------------------------------------------------------------------------------

#: Workgroups on a multiprocessor, and below for each tile the microseconds of _MEASURED_STEPS steps along k when so
#: many share every multiprocessor; measured on an H200 (docs/performance.md)
_SHARING = (1, 2, 3, 4, 8)
_MEASURED_STEPS = 1536
GPU_MULTIPROCESSORS = 132  #: of a large GPU
SHARED_TILES: dict[SharedTile, tuple[float, ...]] = {
    SharedTile(16, 64, 32, 4, 1, 2, 4): (25.2, 42.4, 56.2, 72.6, 142.1),
    SharedTile(32, 32, 32, 4, 1, 2, 4): (24.7, 41.3, 55.9, 72.4, 138.6),
    SharedTile(32, 32, 16, 4, 1, 1, 4): (38.0, 39.8, 57.1, 70.4, 132.1),
    SharedTile(32, 64, 32, 8, 1, 2, 4): (35.5, 58.0, 78.1, 149.4, 224.6),
    SharedTile(32, 64, 32, 8, 2, 2, 4): (52.2, 57.9, 88.6, 113.0, 211.1),
    SharedTile(32, 64, 16, 4, 1, 1, 4): (40.8, 65.1, 89.6, 119.0, 231.8),
    SharedTile(32, 128, 32, 8, 2, 2, 4): (57.0, 94.0, 182.7, 185.0, 355.0),
    SharedTile(64, 32, 16, 4, 1, 1, 4): (41.1, 69.7, 96.1, 124.2, 240.8),
    SharedTile(64, 64, 16, 8, 2, 1, 4): (84.9, 91.5, 150.7, 165.6, 327.0),
    SharedTile(64, 64, 16, 4, 2, 1, 4): (63.1, 107.8, 153.0, 195.9, 378.4),
    SharedTile(64, 64, 64, 8, 2, 4, 4): (61.4, 115.9, 171.3, 228.6, 447.5),
    SharedTile(64, 128, 16, 8, 2, 1, 4): (91.3, 165.1, 228.6, 438.6, 652.4),
    SharedTile(128, 128, 16, 8, 2, 1, 4): (160.8, 295.8, 443.6, 579.3, 1135.6),
    SharedTile(128, 128, 16, 8, 2): (167.6, 303.1, 591.0, 595.6, 1172.9),
}


def _gpu_cost(problem: Problem, tile: SharedTile) -> float:
    """Microseconds of a product: of the multiprocessor that has the most workgroups."""
    workgroups = problem.batch * ceil(problem.m / tile.block_m) * ceil(problem.n / tile.block_n)
    steps = (ceil(problem.k / tile.block_k) + 1) * tile.block_k  # the first tiles are waited for
    return _sharing_time(SHARED_TILES[tile], ceil(workgroups / GPU_MULTIPROCESSORS)) * steps / _MEASURED_STEPS


def _sharing_time(times: tuple[float, ...], sharing: int) -> float:
    """What ``sharing`` workgroups of a multiprocessor take, between the numbers that were measured and beyond."""
    if sharing >= _SHARING[-1]:
        return times[-1] * sharing / _SHARING[-1]
    upper = next(place for place, number in enumerate(_SHARING) if number >= sharing)
    if upper == 0:
        return times[0]
    low, high = _SHARING[upper - 1], _SHARING[upper]
    return times[upper - 1] + (times[upper] - times[upper - 1]) * (sharing - low) / (high - low)


# -- ranking -----------------------------------------------------------------------------------------------------------


def ranked(problem: Problem, profile: DeviceProfile) -> list[Tile]:
    """Configurations for ``problem`` that the profile's limits allow, best first; never empty."""
    if profile.kind == "cpu":
        costs: dict[Tile, float] = {tile: _cpu_cost(problem, tile) for tile in _register_tiles(problem, CPU_SUBGROUP)}
        if profile.subgroup_size:
            subgroup_tiles = _subgroup_tiles(problem, profile.subgroup_size)
            costs.update((tile, _subgroup_cost(problem, tile)) for tile in subgroup_tiles)
        tiles: list[Tile] = sorted(costs, key=lambda tile: (costs[tile], repr(tile)))
    else:
        tiles = _gpu_tiles(problem, profile)
    return [tile for tile in tiles if _fits_grid(problem, tile, profile)] or tiles[:1]


def _gpu_tiles(problem: Problem, profile: DeviceProfile) -> list[Tile]:
    if problem.m <= 8:
        return split_tiles(problem, profile)
    shared = sorted(_shared_tiles(profile), key=lambda tile: _gpu_cost(problem, tile))
    return [*shared] or [RegisterTile(4, 1, 8, 8)]


def _shared_tiles(profile: DeviceProfile) -> list[SharedTile]:
    memory = profile.limit("max-compute-workgroup-storage-size")
    return [tile for tile in SHARED_TILES if tile.workgroup_bytes <= memory]


#: Workgroups and threads of one that keep a GPU's memory busy (1x4096x4096: docs/performance.md)
_SPLIT_WORKGROUPS, _SPLIT_THREADS = 128, 512


def split_tiles(problem: Problem, profile: DeviceProfile) -> list[Tile]:
    """The rule's tile, then every other one with as many threads at most."""
    best = _split_tile(problem, profile)
    memory = profile.limit("max-compute-workgroup-storage-size")
    most = profile.limit("max-compute-invocations-per-workgroup")
    others = [
        SplitTile(best.rows, across, parts)
        for across in (8, 4, 16, 32, 2)
        for parts in (64, 32, 16, 8, 128, 4)
        if 64 <= across * parts <= min(_SPLIT_THREADS, most) and problem.k >= 16 * parts
    ]
    return [best, *(tile for tile in others if tile != best and tile.workgroup_bytes <= memory)]


def _split_tile(problem: Problem, profile: DeviceProfile) -> SplitTile:
    """Two workgroups a multiprocessor, if the columns give so many; every thread has a few terms."""
    memory = profile.limit("max-compute-workgroup-storage-size")
    most = min(_SPLIT_THREADS, profile.limit("max-compute-invocations-per-workgroup"))
    rows, vectors = min(max(problem.m, 1), SPLIT_ROWS), ceil(problem.n / LANES)
    tile = SplitTile(rows, 8, 1)
    for across in (8, 4, 2):
        parts = 1
        while 2 * parts * across <= most and problem.k >= 32 * parts:
            if SplitTile(rows, across, parts * 2).workgroup_bytes > memory:
                break
            parts *= 2
        if across == 8 or across * parts >= 64:  # less than two subgroups would be idle lanes
            tile = SplitTile(rows, across, parts)
        if problem.batch * ceil(vectors / across) >= _SPLIT_WORKGROUPS:
            break
    return tile


#: Into how many parts the terms of a product may be split among workgroups; microseconds of the second pass, and of a
#: byte that it moves
SPLITS = (2, 4, 8)
_SPLIT_PASS, _SPLIT_BYTE = 4.5, 0.5e-6
_SPLIT_GAIN = 0.9  #: what must be left of the time
_SPLIT_LEAST = 32  #: least extent of a part


def split_parts(problem: Problem, extent: int, profile: DeviceProfile) -> int:
    """Into how many parts the terms of a product are worth splitting (1: none); they divide ``extent``."""
    if profile.kind == "cpu" or problem.m <= 8:
        return 1
    tiles = _shared_tiles(profile)

    def cost(parts: int) -> float:
        part = replace(problem, batch=problem.batch * parts, k=problem.k // parts)
        time = min((_gpu_cost(part, tile) for tile in tiles), default=0.0)
        moved = 8.0 * parts * problem.batch * problem.m * problem.n
        return time if parts == 1 else time + _SPLIT_PASS + moved * _SPLIT_BYTE

    possible = possible_parts(problem, extent, profile)
    best = min(possible, key=lambda parts: (cost(parts), parts), default=1)
    return best if cost(best) < _SPLIT_GAIN * cost(1) else 1


def possible_parts(problem: Problem, extent: int, profile: DeviceProfile) -> list[int]:
    """Numbers of parts, more than one, into which a kernel for the profile's device may split ``extent``."""
    if profile.kind == "cpu" or problem.m <= 8:
        return []
    return [parts for parts in SPLITS if extent % (LANES * parts) == 0 and extent // parts >= _SPLIT_LEAST]


def _fits_grid(problem: Problem, tile: Tile, profile: DeviceProfile) -> bool:
    limit = profile.limit("max-compute-workgroups-per-dimension")
    if isinstance(tile, SharedTile):
        rows = tile.block_m
    elif isinstance(tile, SplitTile):
        rows = tile.rows
    elif isinstance(tile, SubgroupTile):
        rows = tile.rows * tile.subgroup
    else:
        rows = tile.rows * tile.down
    return ceil(problem.m / rows) <= limit


def score(problem: Problem, tile: Tile, profile: DeviceProfile) -> float | None:
    """What orders ``tile`` among the others in :func:`ranked`, less is better; None where a rule chooses, not a
    cost."""
    if isinstance(tile, SubgroupTile):
        return _subgroup_cost(problem, tile)
    if isinstance(tile, RegisterTile) and profile.kind == "cpu":
        return _cpu_cost(problem, tile)
    return _gpu_cost(problem, tile) if isinstance(tile, SharedTile) else None
