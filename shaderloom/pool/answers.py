"""Answers on their way to the program: outputs of items that ran together, or are alike, travel as one array each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from ..batching.joined import JoinedOutputs
from .chunk import ChunkMessage, packed, unpacked

#: Numbers of items, and the outputs, or the error, of each
Answer = tuple[Sequence[int], Iterable[Any]]
#: What is sent beside the stacks: numbers of items, axes and rows of joined outputs, and all other outcomes as items
AnswerMessage = tuple[list[tuple[Sequence[int], Sequence[int], Sequence[int]]], ChunkMessage]


def packed_answers(answers: Iterable[Answer]) -> tuple[AnswerMessage, list[list[np.ndarray]]]:
    """Return what is sent for answers: the message, and the stacks, of one array for an output that is joined."""
    joined: list[tuple[Sequence[int], Sequence[int], Sequence[int]]] = []
    stacks: list[list[np.ndarray]] = []
    others: list[tuple[int, Any]] = []
    for numbers, outcomes in answers:
        if isinstance(outcomes, JoinedOutputs) and not any(array.dtype.hasobject for array in outcomes.arrays):
            stacks += ([array] for array in outcomes.arrays)
            joined.append((numbers, outcomes.axes, outcomes.rows))
        else:
            others += zip(numbers, outcomes, strict=True)
    rest, alike = packed((number, _by_position(outcome)) for number, outcome in others)
    return (joined, rest), stacks + alike


def unpacked_answers(message: AnswerMessage, stacks: Iterable[np.ndarray]) -> list[tuple[int, Any]]:
    """Return the number of each item with its outputs, in memory of their own, or its error, in order."""
    joined, others = message
    rest = iter(stacks)
    answers: list[Answer] = [
        (numbers, JoinedOutputs([next(rest)[0] for _ in axes], axes, rows)) for numbers, axes, rows in joined
    ]
    chunk = unpacked(others, rest)
    for group in chunk.groups:
        answers.append((group.numbers, map(list, zip(*map(_copies, group.stacks.values()), strict=True))))
    for number, outcome in chunk.singles:
        answers.append(([number], [list(outcome.values()) if isinstance(outcome, dict) else outcome]))
    return apart(answers)


def apart(answers: Iterable[Answer]) -> list[tuple[int, Any]]:
    """Return the number of each item with its outputs or its error, in order."""
    pairs = (zip(numbers, outcomes, strict=True) for numbers, outcomes in answers)
    return sorted(chain.from_iterable(pairs), key=itemgetter(0))


def _copies(stack: np.ndarray) -> Iterator[np.ndarray]:
    """Return a copy of each entry of the first axis."""
    return (stack[index, ...].copy() for index in range(len(stack)))


def _by_position(outcome: Any) -> Any:
    """Return outputs as items have their inputs; an error as it is."""
    return dict(enumerate(outcome)) if isinstance(outcome, list) else outcome
