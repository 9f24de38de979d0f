"""Copies between arrays and a stack of them, for which a thread seldom gives up the interpreter's lock.

numpy gives it up around each copy of more than some hundred elements, and takes it again behind it.  Where other
threads want it, that takes longer than to copy a few KB: 10 us to wake up, and 5 ms where a thread runs Python alone.
So small arrays are copied with the lock, and large ones without, as many at once as lie at equal distances.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ctypes import addressof, c_char
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

#: numpy copies arrays of up to so many elements with the lock
_LOCKED = 500
#: Arrays of fewer bytes take less time to be copied than to give up the lock
_SMALL = 16_384


def stack_into(stack: np.ndarray, arrays: Sequence[np.ndarray]) -> int:
    """Copy arrays of one dtype and one shape into ``[arrays, *shape]``, which is contiguous.

    Return how often the lock is given up at most.
    """
    first = arrays[0]
    if not first.dtype.hasobject:
        strides = first.strides
        if first.nbytes < _SMALL:
            buffers: Sequence[Any] = arrays
            with suppress(TypeError):  # of arrays that are not contiguous
                stack[...] = np.ndarray(stack.shape, stack.dtype, b"".join(buffers))
                return 1
        elif all(array.strides == strides for array in arrays):
            return _copy_parts(stack, arrays)
    rows = stack.reshape(len(arrays) * first.shape[0], *first.shape[1:]) if first.ndim else stack
    np.concatenate(arrays, 0 if first.ndim else None, out=rows)
    return len(arrays)


def joined(arrays: Sequence[np.ndarray], axis: int) -> np.ndarray:
    """Return arrays of one dtype joined along an axis of rows."""
    first = arrays[0]
    if axis or any(array.shape != first.shape for array in arrays):
        return np.concatenate(arrays, axis)
    stack = np.empty((len(arrays), *first.shape), first.dtype)
    stack_into(stack, arrays)
    return stack.reshape(len(arrays) * first.shape[0], *first.shape[1:])


def copies_of(stack: np.ndarray) -> Iterator[np.ndarray]:
    """Return a copy of each entry of the first axis; with the lock where a last axis can be taken as one element."""
    dtype, shape = stack.dtype, stack.shape[1:]
    if not shape:
        return (stack[index, ...].copy() for index in range(len(stack)))
    size = math.prod(shape)
    is_wide = stack.flags.c_contiguous and size <= _LOCKED * shape[-1] and not dtype.hasobject
    if size <= _LOCKED or size * dtype.itemsize >= _SMALL or not is_wide:
        return map(np.ndarray.copy, stack)
    wide = stack.view(f"V{shape[-1] * dtype.itemsize}")
    return (copy.view(dtype) for copy in map(np.ndarray.copy, wide))


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
            part[...] = as_strided(arrays[first], part.shape, (every * step, *arrays[first].strides), writeable=False)
            copies += 1
        begin = end
    return copies


def _address(array: Any) -> int:
    """Return where the first element of an array lies."""
    try:
        return addressof(c_char.from_buffer(array))  # in a quarter of the time of the other way
    except (TypeError, ValueError):  # it is read-only, or not contiguous
        return int(array.__array_interface__["data"][0])
