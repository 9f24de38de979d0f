"""Copies into stacks, and how many they are: each gives up the interpreter's lock."""

from __future__ import annotations

import numpy as np
import pytest

from shaderloom.pool.copies import stack_into

LARGE = np.random.default_rng(0).standard_normal((40, 2, 200, 200), dtype=np.float32)
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
    "small": (list(FEW), 4),
    "scalars": ([np.array(i, np.float16) for i in range(9)], 9),
    "empty": ([np.zeros((0, 3))] * 2, 2),
    "structures": ([np.full(40_000, i, "i4,f8") for i in range(3)], None),
    "dates": ([np.full(40_000, i, "M8[s]") for i in range(3)], None),
}


@pytest.mark.parametrize("name", STACKS)
def test_stacks_have_their_arrays(name):
    arrays, copies = STACKS[name]
    stack = np.zeros((len(arrays), *arrays[0].shape), arrays[0].dtype)
    assert stack_into(stack, arrays) == copies or copies is None  # as these lie where the system has room
    np.testing.assert_array_equal(stack, np.stack(arrays))
