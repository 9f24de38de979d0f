"""Tile configurations: legality, and which one a target runs best.

A kernel family describes its work as a :class:`Problem`; :func:`ranked` gives the configurations of its templates from
best to worst, by an analytic model with the costs of the target; kernels hold no numbers of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import ceil

from ...runtime.plan.record import record
from ..symbolic import polynomial as ix
from ..symbolic.lanes import LANES
from ..symbolic.polynomial import Dim
from ..target import Target, ThreadCosts, WorkgroupCosts


@record
class RegisterTile:
    """``rows`` times ``columns`` vectors of four results a thread, nothing shared.

    ``across`` neighbouring threads of a workgroup are spread along the columns and ``down`` along the rows.
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


@record
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


@record
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
        if self.padding % LANES or self.rows % LANES:
            raise ValueError(f"threads of {self} do not read whole vectors of rows")
        if self.threads % self.block_k or self.threads % (self.block_n // LANES):
            raise ValueError(f"the loads of a thread of {self} are not one below the other")
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
#: Parts of short sums, and the least parts of those in which each part then has a vector of terms
_SHORT_SUM_PARTS, _LONG_SUM_PARTS = 8, 64


@record
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


@record
class ElementTile:
    """One thread computes ``lanes`` neighbouring results by itself: the general fallback."""

    lanes: int
    workgroup: int = 64

    def __post_init__(self) -> None:
        if self.lanes not in (1, LANES) or not 1 <= self.workgroup <= 256:
            raise ValueError(f"{self.lanes} lanes, {self.workgroup} threads")


@record
class Problem:
    """``batch`` products of an ``m`` by ``k`` with a ``k`` by ``n`` matrix.

    ``factors`` are those of :class:`~..target.WorkgroupCosts`: "floats", or words of four bytes, "words" where products
    are exact and "scaled words" where groups of terms have scales.  Sizes of dynamic dimensions are their upper
    bounds; ``is_range`` says whether there are any, and ``few`` is half of ``m`` where that is one (0: it is not).
    """

    m: int
    n: int
    k: int
    batch: int = 1
    factors: str = "floats"
    is_range: bool = False
    few: int = 0

    @classmethod
    def of(cls, m: Dim, n: Dim, k: Dim, batch: Dim = 1, factors: str = "floats") -> Problem:
        """Return the problem of a product whose sizes may be dynamic."""
        is_range = not all(isinstance(size, int) for size in (m, n, k, batch))
        least, most = ix.bounds(m)
        few = 0 if isinstance(m, int) else max(least, most // 2)
        columns, terms, batches = (ix.bounds(size)[1] for size in (n, k, batch))
        return cls(most, columns, terms, batches, factors, is_range, few)

    def repaid_runs(self, target: Target) -> int:
        """Return the runs that repay the compilation of a kernel."""
        return target.repaid_range_runs if self.is_range else target.repaid_runs

    def workgroups(self, tile: SharedTile) -> int:
        """Return the number of workgroups with a tile each."""
        return self.batch * ceil(self.m / tile.block_m) * ceil(self.n / tile.block_n)


Tile = RegisterTile | SubgroupTile | SharedTile | SplitTile


# -- threads that share nothing ----------------------------------------------------------------------------------------


def _thread_cost(problem: Problem, tile: RegisterTile | SubgroupTile, target: Target, costs: ThreadCosts) -> float:
    """Return the cost in nanoseconds of some runs and of compiling once."""
    if isinstance(tile, SubgroupTile):
        return _subgroup_cost(problem, tile, target, costs)
    return _register_cost(problem, tile, target, costs)


def _register_cost(problem: Problem, tile: RegisterTile, target: Target, costs: ThreadCosts) -> float:
    vectors = ceil(problem.n / LANES)
    across, down = ceil(ceil(vectors / tile.columns) / tile.across), ceil(ceil(problem.m / tile.rows) / tile.down)
    groups = problem.batch * across * down * ceil(tile.threads / target.group_threads)
    each = costs.register
    loads = tile.rows / LANES + tile.columns
    step = loads * each.load + tile.rows * tile.columns * each.multiply
    run = groups * (step * problem.k + costs.start) / costs.cores
    return problem.repaid_runs(target) * run + each.compile_accumulator * tile.rows * tile.columns


def _register_tiles(problem: Problem, group: int, most: int) -> Iterator[RegisterTile]:
    """Yield tiles of at most ``most`` accumulators, for workgroups of ``group`` threads or a few times as many."""
    vectors = ceil(problem.n / LANES)
    for rows in (1, 2, 4, 7, 8, 14, 16):
        if rows > problem.m and rows > 1:
            continue
        for columns in (1, 2, 3, 4):
            if columns > vectors or rows * columns > most:
                continue
            across = 1
            while across < group and across * columns < vectors:
                across *= 2
            for threads in (group, 8 * group):  # more only where the grid would have too many workgroups
                yield RegisterTile(rows, columns, across, max(threads // across, 1))


def _subgroup_cost(problem: Problem, tile: SubgroupTile, target: Target, costs: ThreadCosts) -> float:
    vectors = ceil(problem.n / LANES)
    subgroups = problem.batch * ceil(vectors / tile.columns) * ceil(problem.m / (tile.rows * tile.subgroup))
    each = costs.broadcast
    loads = tile.rows + ceil(LANES * tile.columns / tile.subgroup)
    multiplies = tile.rows * tile.columns
    step = loads * each.load + LANES * multiplies * each.multiply
    run = subgroups * (step * problem.k / LANES + costs.start) / min(costs.cores, subgroups)
    return problem.repaid_runs(target) * run + each.compile_load * loads + each.compile_multiply * multiplies


def _subgroup_tiles(problem: Problem, subgroup: int, most: int) -> Iterator[SubgroupTile]:
    vectors = ceil(problem.n / LANES)
    for rows in (1, 2, 3, 4, 5, 6, 7, 8):
        for columns in (1, 2, 3, 4, 6, 8, 12, 16):
            useful = columns <= vectors and (rows == 1 or rows * subgroup < 2 * problem.m)
            if useful and rows * columns <= most:
                yield SubgroupTile(rows, columns, subgroup)


# -- workgroups that share tiles ---------------------------------------------------------------------------------------


@cache
def shared_tiles(costs: WorkgroupCosts, factors: str = "floats") -> Mapping[SharedTile, tuple[float, ...]]:
    """Return the tiles with measured times, mapped to those times."""
    return {SharedTile(*sizes): times for sizes, times in costs.tiles[factors].items()}


def _shared_cost(problem: Problem, tile: SharedTile, costs: WorkgroupCosts) -> float:
    """Return the microseconds of a product, which are those of the multiprocessor with the most workgroups."""
    workgroups = problem.workgroups(tile)
    steps = (ceil(problem.k / tile.block_k) + 1) * tile.block_k  # the first tiles are waited for
    start, *times = shared_tiles(costs, problem.factors)[tile]
    return start + _sharing_time(times, costs.sharing, ceil(workgroups / costs.multiprocessors)) * steps / costs.steps


def range_cost(problem: Problem, cost: Callable[[Problem], float]) -> float:
    """Return the microseconds of a product; where its rows are a range, the mean of those for all and for few of them.

    Both are for as many rows in all.  The best tile for all may leave half of the multiprocessors idle for few.
    """
    if not problem.few:
        return cost(problem)
    return (cost(problem) + problem.m / problem.few * cost(replace(problem, m=problem.few))) / 2


def _range_cost(problem: Problem, tile: SharedTile, costs: WorkgroupCosts) -> float:
    return range_cost(problem, lambda each: _shared_cost(each, tile, costs))


def _sharing_time(times: Sequence[float], measured: Sequence[int], sharing: int) -> float:
    """Return the time of ``sharing`` workgroups on a multiprocessor, inter- or extrapolated from measurements."""
    if sharing >= measured[-1]:
        return times[-1] * sharing / measured[-1]
    upper = next(place for place, number in enumerate(measured) if number >= sharing)
    if upper == 0:
        return times[0]
    low, high = measured[upper - 1], measured[upper]
    return times[upper - 1] + (times[upper] - times[upper - 1]) * (sharing - low) / (high - low)


# -- ranking -----------------------------------------------------------------------------------------------------------


def ranked(problem: Problem, target: Target) -> list[Tile]:
    """Return the configurations for ``problem`` that the target's limits allow, best first; never empty."""
    costs = target.costs
    if isinstance(costs, ThreadCosts):
        tiles = _thread_tiles(problem, target, costs)
    else:
        tiles = _workgroup_tiles(problem, target, costs)
    return [tile for tile in tiles if _fits_grid(problem, tile, target)] or tiles[:1]


def _thread_tiles(problem: Problem, target: Target, costs: ThreadCosts) -> list[Tile]:
    tiles: list[RegisterTile | SubgroupTile] = []
    tiles += _register_tiles(problem, target.group_threads, costs.register.accumulators)
    if target.subgroup_size:
        tiles += _subgroup_tiles(problem, target.subgroup_size, costs.broadcast.accumulators)
    return [*sorted(tiles, key=lambda tile: (_thread_cost(problem, tile, target, costs), repr(tile)))]


def _workgroup_tiles(problem: Problem, target: Target, costs: WorkgroupCosts) -> list[Tile]:
    if problem.m <= 8:
        return split_tiles(problem, target)
    fitting = _fitting_tiles(problem, target, costs)
    return [*sorted(fitting, key=lambda tile: _range_cost(problem, tile, costs))] or [RegisterTile(4, 1, 8, 8)]


def _fitting_tiles(problem: Problem, target: Target, costs: WorkgroupCosts) -> list[SharedTile]:
    memory = target.limit("max-compute-workgroup-storage-size")
    return [tile for tile in shared_tiles(costs, problem.factors) if tile.workgroup_bytes <= memory]


def split_tiles(problem: Problem, target: Target) -> list[Tile]:
    """Return the rule's tile, then every other one with at most as many threads."""
    best = _split_tile(problem, target)
    memory = target.limit("max-compute-workgroup-storage-size")
    most = target.limit("max-compute-invocations-per-workgroup")
    others = [
        SplitTile(best.rows, across, parts)
        for across in (8, 4, 16, 32, 2)
        for parts in (64, 32, 16, 8, 128, 4)
        if 64 <= across * parts <= min(target.busy_workgroup_threads, most) and problem.k >= 16 * parts
    ]
    return [best, *(tile for tile in others if tile != best and tile.workgroup_bytes <= memory)]


def _split_tile(problem: Problem, target: Target) -> SplitTile:
    """Choose a tile with enough workgroups to keep the device busy, if there are enough columns.

    Short sums have one number of parts and longer ones another, so that a network's small products share kernels; only
    where every thread has eight vectors of terms and more there are further parts.
    """
    memory = target.limit("max-compute-workgroup-storage-size")
    most = min(target.busy_workgroup_threads, target.limit("max-compute-invocations-per-workgroup"))
    rows, vectors = min(max(problem.m, 1), SPLIT_ROWS), ceil(problem.n / LANES)

    def fits(across: int, parts: int) -> bool:
        return across * parts <= most and SplitTile(rows, across, parts).workgroup_bytes <= memory

    tile = SplitTile(rows, 8, 1)
    for across in (8, 4, 2):
        parts = _SHORT_SUM_PARTS if problem.k < LANES * _LONG_SUM_PARTS else _LONG_SUM_PARTS
        while parts > 1 and not fits(across, parts):
            parts //= 2
        while problem.k >= 8 * LANES * parts and fits(across, 2 * parts):
            parts *= 2
        if across == 8 or across * parts >= 64:  # less than two subgroups would be idle lanes
            tile = SplitTile(rows, across, parts)
        if problem.batch * ceil(vectors / across) >= target.busy_workgroups:
            break
    return tile


def split_parts(problem: Problem, extent: int, target: Target) -> int:
    """Return the number of parts into which to split the terms of a product (1: no split), a divisor of ``extent``."""
    costs = target.costs
    if not isinstance(costs, WorkgroupCosts) or problem.m <= 8:
        return 1
    times = {parts: parts_cost(problem, parts, target) for parts in (1, *possible_parts(problem, extent, target))}
    best = min(times, key=lambda parts: (times[parts], parts))
    return best if times[best] < costs.split.gain * times[1] else 1


def parts_cost(problem: Problem, parts: int, target: Target) -> float:
    """Return the microseconds of a product of more than eight rows on a GPU, its terms in ``parts`` (1: no split)."""
    costs = target.costs
    assert isinstance(costs, WorkgroupCosts)
    part = replace(problem, batch=problem.batch * parts, k=problem.k // parts)
    time = min((_range_cost(part, tile, costs) for tile in _fitting_tiles(problem, target, costs)), default=0.0)
    moved = 8.0 * parts * problem.batch * problem.m * problem.n
    return time if parts == 1 else time + costs.split.second_pass + moved * costs.split.byte


def possible_parts(problem: Problem, extent: int, target: Target) -> list[int]:
    """Return the numbers of parts, greater than one, into which a kernel for the target may split ``extent``."""
    if not isinstance(target.costs, WorkgroupCosts) or problem.m <= 8:
        return []
    split = target.costs.split
    return [parts for parts in split.parts if extent % (LANES * parts) == 0 and extent // parts >= split.least_extent]


def _fits_grid(problem: Problem, tile: Tile, target: Target) -> bool:
    limit = target.limit("max-compute-workgroups-per-dimension")
    if isinstance(tile, SharedTile):
        rows, columns = tile.block_m, tile.block_n
    elif isinstance(tile, SplitTile):
        rows, columns = tile.rows, LANES * tile.across
    elif isinstance(tile, SubgroupTile):
        rows, columns = tile.rows * tile.subgroup, LANES * tile.columns
    else:
        rows, columns = tile.rows * tile.down, LANES * tile.columns * tile.across
    return max(ceil(problem.m / rows), ceil(problem.n / columns)) <= limit


def score(problem: Problem, tile: Tile, target: Target) -> float | None:
    """Return the ranking score of ``tile`` in :func:`ranked`; lower is better.

    Returns None where a rule, not a cost model, makes the choice.
    """
    costs = target.costs
    if isinstance(costs, WorkgroupCosts):
        if not isinstance(tile, SharedTile) or tile not in shared_tiles(costs, problem.factors):
            return None
        return _range_cost(problem, tile, costs)
    return _thread_cost(problem, tile, target, costs) if isinstance(tile, (RegisterTile, SubgroupTile)) else None
