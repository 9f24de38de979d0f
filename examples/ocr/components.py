"""Connected components of a mask."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def component_runs(mask: NDArray[np.bool_]) -> Iterator[NDArray[np.int64]]:
    """The 8-connected components of a [H, W] mask, each as its horizontal runs, in order of their first run.

    A run is a row (row, first column, column after the last) of an array [runs, 3]. Runs of neighbouring rows that
    touch, also at a corner, are joined in a forest of disjoint sets.
    """
    runs = _horizontal_runs(mask)
    parents = list(range(len(runs)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    row_starts = np.searchsorted(runs[:, 0], np.arange(mask.shape[0] + 1))
    listed = runs.tolist()
    for row in range(1, mask.shape[0]):
        above, above_end = int(row_starts[row - 1]), int(row_starts[row])
        current, current_end = above_end, int(row_starts[row + 1])
        while above < above_end and current < current_end:
            if listed[above][1] <= listed[current][2] and listed[current][1] <= listed[above][2]:
                first, second = sorted((root(above), root(current)))
                parents[second] = first
            if listed[above][2] < listed[current][2]:
                above += 1
            else:
                current += 1
    roots = np.array([root(index) for index in range(len(runs))], dtype=np.int64)
    for first in np.unique(roots):
        yield runs[roots == first]


def outline_points(runs: NDArray[np.int64]) -> NDArray[np.float64]:
    """The centres of the pixels at both ends of each run, [2 * runs, 2]: their hull is that of all the pixels."""
    rows, starts, ends = runs.T
    x = np.concatenate([starts, ends - 1])
    return np.stack([x, np.concatenate([rows, rows])], axis=1) + 0.5


def _horizontal_runs(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """All runs of True, as (row, first column, column after the last), in reading order."""
    padded = np.pad(mask, ((0, 0), (1, 1)))
    changes = np.diff(padded.astype(np.int8), axis=1)
    rows, starts = np.nonzero(changes == 1)
    _, ends = np.nonzero(changes == -1)
    return np.stack([rows, starts, ends], axis=1).astype(np.int64)
