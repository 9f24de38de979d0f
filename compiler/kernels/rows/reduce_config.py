"""Configurations of row programs: how many rows and threads a workgroup has, and how a thread walks its columns."""

from __future__ import annotations

from ....runtime.plan.record import record
from ...symbolic import polynomial as ix
from ...symbolic.lanes import LANES
from ...symbolic.polynomial import Dim
from ...target import Target
from ..loop_trips import upper_bound

#: Elements that one partial sum adds up before it joins the total
BLOCK = 128
#: Partial results that a thread keeps apart
PARTIALS = 4
#: Steps of a thread along a row that may be written out rather than counted
MOST_STEPS = 16
#: Steps of a thread that take no longer than a workgroup needs to start
_FEW_STEPS = 12


@record
class ReduceConfig:
    """``rows`` x ``strips`` threads form a workgroup; ``block`` columns of a thread make a partial sum (0: all).

    ``steps``, if not 0, is how many columns every thread has: no thread has fewer.
    """

    variant: str
    rows: int
    strips: int
    row_lanes: int = 1
    column_lanes: int = 1
    partials: int = PARTIALS
    block: int = 0
    steps: int = 0

    def __post_init__(self) -> None:
        if self.steps and (self.variant != "workgroup" or self.block or not 1 <= self.steps <= MOST_STEPS):
            raise ValueError(f"{self.steps} steps cannot be written out")
        if self.variant not in ("serial", "workgroup", "words"):
            raise ValueError(f"unknown variant {self.variant!r}")
        if self.strips & (self.strips - 1) or self.strips < 1 or (self.strips > 1) != (self.variant == "workgroup"):
            raise ValueError(f"strips must be a power of two, and 1 unless a workgroup shares rows, not {self.strips}")
        if not 1 <= self.rows * self.strips <= 256:
            raise ValueError(f"a workgroup of {self.rows} x {self.strips} threads")
        if self.row_lanes * self.column_lanes not in (1, LANES):
            raise ValueError("lanes run along rows or along columns")
        if self.partials not in (1, 2, 4) or self.block % self.partials:
            raise ValueError(f"{self.partials} partial results in blocks of {self.block}")


def rounds(config: ReduceConfig, columns: Dim, phases: int, stores: int) -> int:
    """Return the trip count of a thread that walks its columns once for each phase, and ``stores`` times for stores."""
    steps = -(-upper_bound(columns) // config.strips)
    blocks = -(-steps // config.block) if config.block else 1
    return phases * (steps // config.partials + blocks * (config.partials + 1)) + stores * steps


def block_size(steps: int) -> int:
    """Return the columns of a partial sum of a thread with ``steps`` columns; 0 for all of them."""
    return BLOCK * PARTIALS if steps > 2 * BLOCK * PARTIALS else 0


def configurations(
    target: Target, rows: Dim, columns: Dim, columns_are_contiguous: bool, row_lanes: int, column_lanes: int
) -> list[ReduceConfig]:
    """Return the configuration that a rule chooses, then the others of the same scheme with other workgroup sizes."""
    many, long = max(ix.bounds(rows)[1], 1), max(ix.bounds(columns)[1], 1)
    best = share(target, many, long, columns_are_contiguous)
    widest = min(_power_of_two_above(many), 64)
    limit = target.max_workgroup_threads
    others = [
        (row_count, strips)
        for strips in (1, 8, 16, 32, 64, 128, 256)
        for row_count in (1, 2, 4, 8, 16, 32, 64)
        if row_count <= widest and strips < 2 * long and 8 <= row_count * strips <= limit
    ]

    def distance(shared: tuple[int, int]) -> tuple[int, tuple[int, int]]:
        return sum(abs(one.bit_length() - other.bit_length()) for one, other in zip(shared, best)), shared

    return [
        _configuration(target, columns, long, shared, row_lanes, column_lanes)
        for shared in (best, *sorted((each for each in others if each != best), key=distance))
    ]


def _configuration(
    target: Target, columns: Dim, long: int, shared: tuple[int, int], row_lanes: int, column_lanes: int
) -> ReduceConfig:
    row_count, strips = shared
    steps = -(-long // strips)
    block = block_size(steps)
    if strips == 1:
        return ReduceConfig("serial", row_count, strips, row_lanes, column_lanes, PARTIALS, block)
    even = target.prefers_written_out_loops and columns == strips * steps and steps <= MOST_STEPS
    return ReduceConfig("workgroup", row_count, strips, row_lanes, column_lanes, PARTIALS, block, steps if even else 0)


def share(target: Target, rows: int, columns: int, columns_are_contiguous: bool) -> tuple[int, int]:
    """Return the rows that a workgroup covers, and the threads that share one of them (a power of two)."""
    widest = _power_of_two_above(rows)
    if not target.has_cheap_barriers:  # few rows: two groups of threads that run together, as barriers separate groups
        return (min(16, widest), 1) if rows >= 16 or columns < 64 else (1, 2 * target.group_threads)
    # neighbouring threads take neighbouring rows where those are neighbours in memory
    row_count = 1 if columns_are_contiguous else min(32, widest)
    while row_count > 1 and rows < row_count * target.busy_workgroups and columns * row_count > 256 * _FEW_STEPS:
        row_count //= 2  # few long rows (the pool of a whole picture): more workgroups, each with more threads a row
    strips = 1
    most = target.max_workgroup_threads
    while strips * row_count < most and 4 * strips < columns and (rows * strips < 1 << 16 or row_count * strips < 32):
        strips *= 2
    return max(row_count, min(64 // strips, widest)), strips


def _power_of_two_above(value: int) -> int:
    return 1 << max(value - 1, 0).bit_length()
