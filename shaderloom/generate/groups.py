"""Texts that begin together, of a decoder whose cache grows with every run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .batch import BatchDecoder
from .decoder import CachedDecoder
from .slots import SlotRow, batch_sizes


class GroupBatch:
    """Up to ``size`` texts that begin together; others wait until the last of them has ended.

    Prompts are of one length, or padded on the left where the model has a mask and positions.
    """

    def __init__(self, decoder: CachedDecoder, size: int, plan_cache: Any = True) -> None:
        self._decoder = decoder
        self._sizes = batch_sizes(size)
        self._plan_cache = plan_cache
        self._rows: list[SlotRow] = []
        self._batch: BatchDecoder | None = None
        self._runs: Iterator[None] = iter(())

    @property
    def nbytes(self) -> int:
        """Bytes of the group's cache on the device."""
        return 0 if self._batch is None else self._batch.nbytes

    def admit(self, waiting: Sequence[SlotRow]) -> list[SlotRow]:
        """Begin a group with the first that waits, if none runs; return those that are in it."""
        if self._rows or not waiting:
            return []
        group: list[SlotRow] = []
        for row in waiting:
            if len(group) < self._sizes[-1] and self._fits([*group, row]):
                group.append(row)
        del group[max(size for size in self._sizes if size <= len(group)) :]
        self._rows = group
        return group

    def _fits(self, rows: Sequence[SlotRow]) -> bool:
        """Tell whether texts may be in one group."""
        longest = max(row.prompt_tokens for row in rows)
        if all(row.prompt_tokens == longest for row in rows):
            return True
        form = self._decoder.form
        return form.padding == "left" and all(longest + row.task.count <= form.max_length for row in rows)

    def leave(self, row: SlotRow) -> None:
        """Wait for a text no more: its row computes something, of no use."""
        self._rows = [other for other in self._rows if other is not row]
        row.ended_by = row.ended_by or "left"
        if not self._rows:
            self.reset()

    def step(self) -> list[SlotRow]:
        """Compute a part of the prompts, or a token of each text; return who has new tokens."""
        if self._batch is None:
            self._batch = BatchDecoder(self._decoder, self._rows, self._plan_cache)
            self._runs = self._batch.generate()
        before = [len(row.ids) for row in self._rows]
        next(self._runs)
        return [row for row, length in zip(self._rows, before) if len(row.ids) > length or row.error]

    def reset(self) -> None:
        """Forget all texts, and free their cache."""
        self._rows, self._runs = [], iter(())
        if self._batch is not None:
            self._batch.close()
            self._batch = None

    def close(self) -> None:
        """Free the memory."""
        self.reset()
