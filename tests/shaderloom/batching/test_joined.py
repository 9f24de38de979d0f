"""Arrays joined along their rows."""

from __future__ import annotations

import mmap
import pickle

import numpy as np

from shaderloom.batching.joined import JoinedOutputs, joined


def rows(memory: np.ndarray) -> list[np.ndarray]:
    """Rows as a pool's worker gets them: each behind a buffer of its own."""
    lines = memory.reshape(6, -1)
    return [
        np.frombuffer(memoryview(lines[first : first + count].view(np.uint8)).toreadonly(), np.float32).reshape(
            count, -1
        )
        for first, count in ((0, 1), (1, 3), (4, 2))
    ]


def test_neighbours_are_a_view():
    mapped = mmap.mmap(-1, 6 * 5 * 4)
    memory = np.frombuffer(mapped, np.float32)
    memory[:] = np.arange(30)
    result = joined(rows(memory), 0)
    assert np.shares_memory(result, memory)
    assert result.flags.c_contiguous
    assert not result.flags.writeable
    np.testing.assert_array_equal(result, np.arange(30, dtype=np.float32).reshape(6, 5))


def test_others_are_copied():
    memory = np.arange(60, dtype=np.float32)
    first, second, third = rows(memory[:30])
    for arrays in (
        [first, third],
        [second, first],
        [first, second, third, memory[30:40].copy().reshape(2, 5)],
        [memory[:12].reshape(3, 4)[:, :2], memory[12:24].reshape(3, 4)[:, :2]],
    ):
        result = joined(arrays, 0)
        assert not np.shares_memory(result, memory)
        np.testing.assert_array_equal(result, np.concatenate(arrays))


def test_rows_along_another_axis_are_copied():
    memory = np.arange(8, dtype=np.float32)
    arrays = [memory[:4].reshape(2, 2), memory[4:].reshape(2, 2)]
    np.testing.assert_array_equal(joined(arrays, 1), np.concatenate(arrays, 1))


def test_outputs_are_divided_into_arrays_of_their_own():
    first, second = np.arange(12).reshape(6, 2), np.arange(12).reshape(2, 6)
    parts = list(pickle.loads(pickle.dumps(JoinedOutputs([first, second], (0, 1), [1, 3, 2]))))
    assert [[array.shape for array in part] for part in parts] == [
        [(1, 2), (2, 1)],
        [(3, 2), (2, 3)],
        [(2, 2), (2, 2)],
    ]
    np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), first)
    np.testing.assert_array_equal(np.concatenate([part[1] for part in parts], 1), second)
    assert all(array.base is None and array.flags.writeable for part in parts for array in part)
