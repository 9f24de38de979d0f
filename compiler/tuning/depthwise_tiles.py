"""Tiles of convolutions of every channel by itself."""

from __future__ import annotations

from math import ceil

from ...runtime.plan.record import record
from ..target import Target, ThreadCosts


@record
class DepthwiseTile:
    """Four channels of ``rows`` times ``columns`` neighbouring results a thread.

    A workgroup has ``down`` times ``across`` threads, the latter along channels, a power of two.
    """

    columns: int
    across: int
    down: int
    rows: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.columns <= 16 or not 1 <= self.rows <= 8:
            raise ValueError(f"a thread cannot hold {self.rows} rows of {self.columns} columns")
        if not 1 <= self.across * self.down <= 256 or self.across & (self.across - 1):
            raise ValueError(f"a workgroup of {self.across} by {self.down} threads")

    @property
    def threads(self) -> int:
        return self.across * self.down


@record
class ThreadTile:
    """The results of a thread, which the text of a kernel spells: other shapes of a workgroup have the same text."""

    rows: int
    columns: int


@record
class Extent:
    """``size`` results along an axis, and the window along it."""

    size: int
    kernel: int
    stride: int
    dilation: int

    def inputs(self, results: int) -> int:
        """Return the number of input elements in the windows of ``results`` neighbouring results."""
        return len({at * self.stride + tap * self.dilation for at in range(results) for tap in range(self.kernel)})


@record
class DepthwiseProblem:
    """``images`` of ``outer`` lines for each row, with ``vectors`` of four channels each.

    ``rows`` is None where a tile has one row: with one spatial axis, or three.
    """

    vectors: int
    lines: int  #: lines of results in all
    columns: Extent
    rows: Extent | None


_COLUMNS, _ROWS = (1, 2, 4, 7, 8), (1, 2, 4, 7)


def depthwise_tiles(problem: DepthwiseProblem, target: Target) -> list[DepthwiseTile]:
    """Return all tiles that fit, best first; never empty.

    The best has the fewest loads while there are threads enough; on software drivers a thread may have several rows.
    """
    costs, threads = target.costs, target.group_threads
    limit = target.limit("max-compute-workgroups-per-dimension")
    across = 1
    while across < threads and across < problem.vectors:
        across *= 2
    down = threads // across
    rows = _ROWS if isinstance(costs, ThreadCosts) and problem.rows is not None else (1,)
    shapes = [(each, columns) for each in rows for columns in _COLUMNS]

    def fits(shape: tuple[int, int]) -> bool:
        return ceil(_places(problem, *shape) / down) <= limit and (
            shape[0] == 1 or not isinstance(costs, ThreadCosts) or _loads(problem, *shape) <= costs.depthwise.loads
        )

    best = sorted(filter(fits, shapes), key=lambda shape: (_cost(problem, shape, target), shape)) or [(1, 8)]
    return [DepthwiseTile(columns, across, down, rows) for rows, columns in best]


def _places(problem: DepthwiseProblem, rows: int, columns: int) -> int:
    """Return the number of tiles that cover the results of four channels."""
    lines = problem.lines
    if rows > 1 and problem.rows is not None:
        lines = lines // max(problem.rows.size, 1) * ceil(problem.rows.size / rows)
    return lines * ceil(problem.columns.size / columns)


def _loads(problem: DepthwiseProblem, rows: int, columns: int) -> int:
    """Return the number of vectors of inputs and weights that a thread loads."""
    down = (problem.rows.inputs(rows), problem.rows.kernel) if problem.rows is not None else (1, 1)
    if rows == 1:
        down = (down[1], down[1])
    return down[0] * problem.columns.inputs(columns) + down[1] * problem.columns.kernel


def _cost(problem: DepthwiseProblem, shape: tuple[int, int], target: Target) -> float:
    if isinstance(target.costs, ThreadCosts):
        return _thread_cost(problem, shape, target, target.costs)
    enough = target.costs.multiprocessors * target.costs.busy_threads
    rows, columns = shape
    started = problem.vectors * _places(problem, rows, columns)
    return max(started, enough) * (problem.columns.inputs(columns) + problem.columns.kernel)


def _thread_cost(problem: DepthwiseProblem, shape: tuple[int, int], target: Target, costs: ThreadCosts) -> float:
    """Return the cost in nanoseconds of some runs and of compiling once.

    A tile of one row is compiled as a loop over its taps.
    """
    rows, columns = shape
    taps = problem.columns.kernel * (problem.rows.kernel if problem.rows is not None else 1)
    loads, multiplies = _loads(problem, rows, columns), taps * rows * columns
    each = costs.depthwise
    work = loads * each.load + multiplies * each.multiply + rows * columns * each.store
    run = ceil(problem.vectors * _places(problem, rows, columns) / target.group_threads) * work / costs.cores
    looped = problem.rows.kernel if rows == 1 and problem.rows is not None else 1
    return target.repaid_runs * run + (loads * each.compile_load + multiplies * each.compile_multiply) / looped
