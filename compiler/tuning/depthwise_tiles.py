"""Tiles of convolutions of every channel by itself."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ...runtime.plan.device_profile import DeviceProfile
from .gemm_tiles import CPU_CORES, CPU_RUNS, CPU_SUBGROUP, GPU_MULTIPROCESSORS


@dataclass(frozen=True, slots=True)
class DepthwiseTile:
    """Four channels of ``rows`` times ``columns`` neighbouring results a thread; ``across`` threads along channels."""

    columns: int
    across: int
    down: int
    rows: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.columns <= 16 or not 1 <= self.rows <= 8:
            raise ValueError(f"a thread cannot hold {self.rows} rows of {self.columns} columns")
        if not 1 <= self.across * self.down <= 256:
            raise ValueError(f"a workgroup of {self.across} by {self.down} threads")


@dataclass(frozen=True, slots=True)
class Extent:
    """``size`` results along an axis, and the window along it."""

    size: int
    kernel: int
    stride: int
    dilation: int

    def inputs(self, results: int) -> int:
        """Elements that the windows of so many neighbouring results touch."""
        return len({at * self.stride + tap * self.dilation for at in range(results) for tap in range(self.kernel)})


@dataclass(frozen=True, slots=True)
class DepthwiseProblem:
    """``images`` of ``outer`` lines for each row, with ``vectors`` of four channels each.

    ``rows`` is None where a tile has one row: with one spatial axis, or three.
    """

    vectors: int
    lines: int  #: lines of results in all
    columns: Extent
    rows: Extent | None


#: Nanoseconds on lavapipe for eight threads: loading a vector, storing one, multiplying and adding (performance.md)
_LOAD, _STORE, _MULTIPLY = 110.0, 160.0, 5.0
#: Compiling one load of straight text and one multiply-add, and the most loads of a thread
_COMPILE_LOAD, _COMPILE_MULTIPLY, _MOST_LOADS = 20e6, 1e6, 80
_COLUMNS, _ROWS = (1, 2, 4, 7, 8), (1, 2, 4, 7)


def depthwise_tiles(problem: DepthwiseProblem, profile: DeviceProfile) -> list[DepthwiseTile]:
    """Return all tiles that fit, best first; never empty.

    The best has the fewest loads while there are threads enough; on software drivers a thread may have several rows.
    """
    software = profile.kind == "cpu"
    threads = CPU_SUBGROUP if software else 64
    limit = profile.limit("max-compute-workgroups-per-dimension")
    across = 1
    while across < threads and across < problem.vectors:
        across *= 2
    down = threads // across
    rows = _ROWS if software and problem.rows is not None else (1,)
    shapes = [(each, columns) for each in rows for columns in _COLUMNS]

    def fits(shape: tuple[int, int]) -> bool:
        return ceil(_places(problem, *shape) / down) <= limit and (
            shape[0] == 1 or _loads(problem, *shape) <= _MOST_LOADS
        )

    cost = _cpu_cost if software else _gpu_cost
    best = sorted(filter(fits, shapes), key=lambda shape: (cost(problem, *shape), shape)) or [(1, 8)]
    return [DepthwiseTile(columns, across, down, rows) for rows, columns in best]


def _places(problem: DepthwiseProblem, rows: int, columns: int) -> int:
    """Tiles that cover the results of four channels."""
    lines = problem.lines
    if rows > 1 and problem.rows is not None:
        lines = lines // max(problem.rows.size, 1) * ceil(problem.rows.size / rows)
    return lines * ceil(problem.columns.size / columns)


def _loads(problem: DepthwiseProblem, rows: int, columns: int) -> int:
    """Vectors of inputs and weights that a thread loads."""
    down = (problem.rows.inputs(rows), problem.rows.kernel) if problem.rows is not None else (1, 1)
    if rows == 1:
        down = (down[1], down[1])
    return down[0] * problem.columns.inputs(columns) + down[1] * problem.columns.kernel


def _gpu_cost(problem: DepthwiseProblem, rows: int, columns: int) -> float:
    enough = GPU_MULTIPROCESSORS * 64  # threads that keep the device busy
    started = problem.vectors * _places(problem, rows, columns)
    return max(started, enough) * (problem.columns.inputs(columns) + problem.columns.kernel)


def _cpu_cost(problem: DepthwiseProblem, rows: int, columns: int) -> float:
    """Nanoseconds of some runs and of compiling once; a tile of one row is compiled as a loop over its taps."""
    taps = problem.columns.kernel * (problem.rows.kernel if problem.rows is not None else 1)
    loads, multiplies = _loads(problem, rows, columns), taps * rows * columns
    work = loads * _LOAD + multiplies * _MULTIPLY + rows * columns * _STORE
    run = ceil(problem.vectors * _places(problem, rows, columns) / CPU_SUBGROUP) * work / CPU_CORES
    looped = problem.rows.kernel if rows == 1 and problem.rows is not None else 1
    return CPU_RUNS * run + (loads * _COMPILE_LOAD + multiplies * _COMPILE_MULTIPLY) / looped
