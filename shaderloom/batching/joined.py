"""Arrays joined along their rows, without a copy where they lie behind one another already, and divided again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


def joined(arrays: Sequence[np.ndarray], axis: int) -> np.ndarray:
    """Return arrays of equal dtypes, joined along ``axis``: a view, or a new array.

    A view is read-only if the arrays are, and to be used as long as these are.
    """
    if axis == 0 and _are_neighbours(arrays):
        first = arrays[0]
        shape = (sum(map(len, arrays)), *first.shape[1:])
        return np.lib.stride_tricks.as_strided(first, shape, writeable=first.flags.writeable)
    return np.concatenate(arrays, axis)


@dataclass(slots=True)
class JoinedOutputs:
    """Outputs of requests that ran together, with their axes of rows, and the rows of each request.

    Iteration gives the outputs of each request, in memory of their own.
    """

    arrays: Sequence[np.ndarray]
    axes: Sequence[int]
    rows: Sequence[int]

    def __iter__(self) -> Iterator[list[np.ndarray]]:
        end = 0
        for rows in self.rows:
            begin, end = end, end + rows
            yield [rows_between(array, axis, begin, end).copy() for array, axis in zip(self.arrays, self.axes)]


def rows_between(array: np.ndarray, axis: int, begin: int, end: int) -> np.ndarray:
    """Return a view of some rows along ``axis``."""
    return array[(slice(None),) * axis + (slice(begin, end),)]


def _are_neighbours(arrays: Sequence[np.ndarray]) -> bool:
    """Return whether each array begins where the one before ends, in C order and in one piece of memory."""
    end = None
    for array in arrays:
        begin = array.__array_interface__["data"][0]
        if (end is not None and begin != end) or not array.flags.c_contiguous:
            return False
        end = begin + array.nbytes
    owner = _owner(arrays[0])
    return all(_owner(array) is owner for array in arrays)


def _owner(array: Any) -> Any:
    """Return the object whose memory an array is in."""
    while True:
        if isinstance(array, memoryview):
            array = array.obj
        elif isinstance(array, np.ndarray) and array.base is not None:
            array = array.base
        else:
            return array
