"""Answers of a worker arrive as the outputs of each item."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np

from shaderloom.batching.joined import JoinedOutputs
from shaderloom.pool.answers import Answer, packed_answers, unpacked_answers


def apart(answers: Iterable[Answer]) -> list[tuple[int, Any]]:
    """Return the outcome of each item, as a program gets it; no array of it is one of the message."""
    message, stacks = packed_answers(answers)
    arrays = [np.array(arrays, arrays[0].dtype) for arrays in stacks]
    outcomes = unpacked_answers(pickle.loads(pickle.dumps(message)), arrays)
    for array in arrays:
        array[...] = np.zeros((), array.dtype)  # as the memory is the worker's again
    return outcomes


def test_outputs_that_are_joined_or_alike_are_stacks():
    first, second, texts = np.arange(24.0).reshape(12, 2), np.arange(4), np.array(["a", "b"], object)
    error = ValueError("no")
    answers: list[Answer] = [
        ([4, 1], JoinedOutputs([first[:4], second], (0, 0), [3, 1])),
        ([0], [error]),
        ([2, 5], JoinedOutputs([texts], (0,), [1, 1])),
        ([3], [[first, np.float32(1)]]),
        *(([number], [[np.full((2, 3), number), np.array(number)]]) for number in (9, 6)),
    ]
    sizes = [[array.nbytes for array in stack] for stack in packed_answers(answers)[1]]
    assert sizes == [[64], [32], [48] * 2, [8] * 2]
    outcomes = apart(answers)
    assert [number for number, _ in outcomes] == [0, 1, 2, 3, 4, 5, 6, 9]
    found = dict(outcomes)
    np.testing.assert_array_equal(found[4][0], first[:3])
    np.testing.assert_array_equal(found[4][1], [0, 1, 2])
    np.testing.assert_array_equal(found[1][0], first[3:4])
    np.testing.assert_array_equal(found[1][1], [3])
    assert isinstance(found[0], ValueError) and found[2] == ["a"] and found[5] == ["b"]
    np.testing.assert_array_equal(found[3][0], first)
    for number in (6, 9):
        np.testing.assert_array_equal(found[number][0], np.full((2, 3), number), strict=True)
        np.testing.assert_array_equal(found[number][1], np.array(number), strict=True)
