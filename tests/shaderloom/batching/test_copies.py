"""Copies into stacks and out of them, and how often they give up the interpreter's lock."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from shaderloom.batching.copies import copies_of, joined, stack_into

from ...support.patience import PATIENCE

LARGE = np.random.default_rng(0).standard_normal((40, 2, 50, 50), dtype=np.float32)
FEW = np.arange(2400, dtype=">i2").reshape(4, 600)


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.view()
    array.flags.writeable = False
    return array


STACKS = {
    "rows of an array": ([LARGE[i] for i in range(40)], 2),
    "read-only": ([read_only(LARGE[i]) for i in range(40)], 2),
    "every other row": ([LARGE[i] for i in range(0, 40, 2)], 1),
    "backwards": ([LARGE[i] for i in range(39, 0, -2)], 1),
    "two parts": ([LARGE[i] for i in (*range(30, 40), *range(10))], 4),
    "scattered": ([LARGE[i] for i in (0, 1, 9, 30, 20)], 5),
    "one again and again": ([LARGE[3]] * 5, 1),
    "other strides": ([LARGE[0], LARGE[1], LARGE[2].transpose(0, 2, 1), LARGE[3]], 4),
    "small": (list(FEW), 1),
    "small with gaps": ([each[::2] for each in FEW], 4),
    "scalars": ([np.array(i, np.float16) for i in range(9)], 1),
    "empty": ([np.zeros((0, 3))] * 2, 1),
    "texts": ([np.array(["a", "bc"])] * 600, 1),
    "dates": ([np.array(["2020-01-01"], "M8[D]")] * 3, 1),
    "objects": ([np.array(["a", "b"], object)] * 3, 3),
}


@pytest.mark.parametrize("name", STACKS)
def test_stacks_have_their_arrays(name):
    arrays, copies = STACKS[name]
    stack = np.zeros((len(arrays), *arrays[0].shape), arrays[0].dtype)
    assert stack_into(stack, arrays) == copies
    np.testing.assert_array_equal(stack, np.stack(arrays))
    found = list(copies_of(stack))
    assert all(array.flags.writeable and not np.shares_memory(array, stack) for array in found)
    for array, expected in zip(found, arrays, strict=True):
        np.testing.assert_array_equal(array, expected, strict=True)
    if arrays[0].ndim:
        np.testing.assert_array_equal(joined(arrays, 0), np.concatenate(arrays))


def test_arrays_of_unequal_rows_or_along_other_axes_are_joined():
    arrays = [np.arange(rows * 2).reshape(rows, 2) for rows in (1, 3, 2)]
    np.testing.assert_array_equal(joined(arrays, 0), np.concatenate(arrays))
    np.testing.assert_array_equal(joined([array.T for array in arrays], 1), np.concatenate(arrays).T)


@pytest.mark.parametrize(("length", "is_kept"), [(100, True), (501, True), (4000, True), (200_000, False)])
def test_copies_out_of_a_stack_keep_the_lock_if_they_are_small(length, is_kept):
    """Another thread, which waits for it, runs as soon as it is given up."""
    stack, begun, ran = np.zeros((100, 1, length), np.float32), threading.Event(), threading.Event()

    def run() -> None:
        begun.wait(PATIENCE)
        ran.set()

    thread = threading.Thread(target=run)
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(PATIENCE)
    try:
        begun.set()
        copies = list(copies_of(stack))
        has_run = ran.is_set()
    finally:
        sys.setswitchinterval(interval)
    thread.join()
    assert len(copies) == 100
    assert not (is_kept and has_run)
