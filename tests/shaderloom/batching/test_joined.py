"""Outputs joined along their rows are divided."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from shaderloom.batching.joined import JoinedOutputs


@pytest.mark.parametrize("rows", [[1, 3, 2], [2, 2, 2]], ids=["unequal", "equal"])
def test_outputs_are_divided_into_arrays_of_their_own(rows):
    first, second, empty = np.arange(12).reshape(6, 2), np.arange(12).reshape(2, 6), np.zeros((6, 0))
    parts = list(pickle.loads(pickle.dumps(JoinedOutputs([first, second, empty], (0, 1, 0), rows))))
    assert [[array.shape for array in part] for part in parts] == [[(n, 2), (2, n), (n, 0)] for n in rows]
    np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), first)
    np.testing.assert_array_equal(np.concatenate([part[1] for part in parts], 1), second)
    assert all(array.base is None and array.flags.writeable for part in parts for array in part)
