"""Items on their way to a worker: the inputs of those that are alike travel as one array for each name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from .channel import SMALL

Item = tuple[int, Mapping[str, Any]]  #: its number and its inputs
#: What a worker is told beside the stacks: numbers of items and names of inputs of each group, and all other items
ChunkMessage = tuple[list[tuple[list[int], tuple[str, ...]]], list[Item]]
_PLAIN = (np.ndarray, np.memmap)


class ItemGroup(NamedTuple):
    """Numbers of items whose inputs have equal names, dtypes and shapes, and their inputs: ``[items, *shape]``."""

    numbers: list[int]
    stacks: dict[str, np.ndarray]

    def items(self) -> Iterator[Item]:
        for index, number in enumerate(self.numbers):
            yield number, {name: stack[index, ...] for name, stack in self.stacks.items()}


class Chunk(NamedTuple):
    """What a worker answers at a time: groups, and items that are like no other or have other values than arrays."""

    groups: Sequence[ItemGroup]
    singles: Sequence[Item]

    def items(self) -> Iterable[Item]:
        """Return each of the items."""
        return chain(self.singles, *(group.items() for group in self.groups))


def packed(items: Iterable[Item]) -> tuple[ChunkMessage, list[list[np.ndarray]]]:
    """Return what is sent for items: the message, and the arrays of each input of each group, to be stacked."""
    alike: dict[Hashable | None, list[Item]] = defaultdict(list)
    for item in items:
        alike[_form(item[1])].append(item)
    groups: list[tuple[list[int], tuple[str, ...]]] = []
    singles: list[Item] = []
    stacks: list[list[np.ndarray]] = []
    for form, members in alike.items():
        if form is None or len(members) == 1:  # a stack of one would take longer
            singles += ((number, _contiguous(feeds)) for number, feeds in members)
        else:
            names = tuple(members[0][1])
            groups.append(([number for number, _ in members], names))
            stacks += ([feeds[name] for _, feeds in members] for name in names)
    return (groups, singles), stacks


def bytes_of(message: ChunkMessage, stacks: Iterable[Sequence[np.ndarray]]) -> int:
    """Return the bytes of the arrays of a message and its stacks."""
    alone = (feeds.values() for _, feeds in message[1] if isinstance(feeds, Mapping))
    return sum(len(stack) * stack[0].nbytes for stack in stacks) + sum(
        value.nbytes for value in chain.from_iterable(alone) if isinstance(value, np.ndarray)
    )


def unpacked(message: ChunkMessage, stacks: Iterable[np.ndarray]) -> Chunk:
    """Return the chunk of a message and its stacks."""
    groups, singles = message
    rest = iter(stacks)
    return Chunk([ItemGroup(numbers, {name: next(rest) for name in names}) for numbers, names in groups], singles)


def _form(feeds: Any) -> Hashable | None:
    """Return names, dtypes and shapes of inputs; None where some are not plain arrays, or there are none."""
    if not isinstance(feeds, (dict, Mapping)):
        return None
    parts: list[Any] = []
    for name, value in feeds.items():
        if type(value) not in _PLAIN or value.dtype.hasobject:
            return None
        parts += (name, value.dtype, value.shape)
    return tuple(parts) or None


def _contiguous(feeds: Any) -> Any:
    """Return inputs whose large arrays can lie beside a message."""
    if not isinstance(feeds, (dict, Mapping)):
        return feeds
    feeds = dict(feeds)
    for name, value in feeds.items():
        if isinstance(value, np.ndarray) and value.nbytes >= SMALL and not value.dtype.hasobject:
            feeds[name] = np.ascontiguousarray(value)
    return feeds
