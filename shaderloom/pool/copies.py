"""Copies of arrays into a stack, for which a thread seldom gives up the interpreter's lock.

numpy gives it up around the copy of each array, and takes it again behind it.  Where many threads copy, and a copy
takes longer than another thread needs to wake up, that one has the lock then: taking it back costs more time of all
than the Python of an item.  So large arrays are copied at once as far as they lie at equal distances, as rows of one
array do, and arrays that were made one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import addressof, c_char
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

#: Arrays of as many bytes take longer to be copied, 15 us, than a thread needs to wake up
_LARGE = 1 << 18


def stack_into(stack: np.ndarray, arrays: Sequence[np.ndarray]) -> int:
    """Copy arrays of one dtype, without objects, and one shape into ``[arrays, *shape]``, which is contiguous.

    Return the number of copies.
    """
    first = arrays[0]
    if first.nbytes >= _LARGE and all(array.strides == first.strides for array in arrays):
        return _copy_parts(stack, arrays)
    rows = stack.reshape(len(arrays) * first.shape[0], *first.shape[1:]) if first.ndim else stack
    np.concatenate(arrays, 0 if first.ndim else None, out=rows)  # the fastest copy of small ones
    return len(arrays)


def _copy_parts(stack: np.ndarray, arrays: Sequence[np.ndarray]) -> int:
    """Copy as many arrays of equal strides at once as lie at equal distances; return the number of copies.

    Between those of one part the stack has no room, so that numpy sees without a search that they do not overlap.
    """
    addresses = [*map(_address, arrays)]
    steps = [*(there - here for here, there in pairwise(addresses)), 0]
    begin = copies = 0
    while begin < len(arrays):
        step, end = steps[begin], begin + 1
        while end < len(arrays) and steps[end - 1] == step and abs(step) < stack.nbytes:
            end += 1
        every = 2 if step == arrays[begin].nbytes else 1  # as one of all is slower by a seventh: it evades the caches
        for first in range(begin, min(begin + every, end)):
            part = stack[first:end:every]
            strides = (every * step, *arrays[first].strides)
            part[...] = as_strided(arrays[first], part.shape, strides, writeable=False)
            copies += 1
        begin = end
    return copies


def _address(array: Any) -> int:
    """Return where the first element of an array lies."""
    try:
        return addressof(c_char.from_buffer(array))  # in a quarter of the time of the other way
    except (TypeError, ValueError):  # it is read-only, or not contiguous
        return int(array.__array_interface__["data"][0])
