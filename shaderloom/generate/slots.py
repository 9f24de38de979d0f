"""Texts that join and leave a decoder between tokens: slots of one cache, each with a length of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..runtime.memory.tensor import Tensor
from ..runtime.memory.tensor_copy import copy_rows
from ..runtime.plan.decoder_ports import ENDS, IDS, LOGITS, LOGITS_ROWS, TOKEN
from ..runtime.plan.errors import ShaderloomError
from .cache import KeyValueCache, common_prefix
from .chooser import DeviceChoice, TokenChoices
from .decoder import CHUNKS, CachedDecoder
from .model_source import open_choice
from .sampling import Sampling
from .text_row import Choice, TextRow, TextTask, TokenRule


class SlotRow(TextRow):
    """A text in a slot.  ``error`` is what ended it before its time."""

    def __init__(self, task: TextTask) -> None:
        super().__init__(task)
        self.reused_tokens = 0
        self.error: ShaderloomError | None = None

    def take(self, token: Choice, meanwhile: Callable[[], None] | None = None) -> None:
        """Append a token; an error is that of this text alone."""
        try:
            super().take(token, meanwhile)
        except ShaderloomError as error:
            self.error = error

    @property
    def has_ended(self) -> bool:
        """Whether no token follows."""
        return bool(self.ended_by or self.error)


def batch_sizes(most: int) -> tuple[int, ...]:
    """Return the sizes of batches that run, each with plans of its own: powers of two, and ``most``."""
    return (*(1 << power for power in range(most.bit_length()) if 1 << power < most), most)


class _Results:
    """What runs of ``count`` texts write, and the choice of their tokens."""

    def __init__(self, decoder: CachedDecoder, count: int, plan_cache: Any) -> None:
        form, device = decoder.form, decoder.session.device
        self.token = Tensor.empty((count, 1), "int64", device)
        self.logits = Tensor.empty((count, 1, form.vocabulary), form.logits_type, device)
        self._folder, self._plan_cache = decoder.folder, plan_cache
        self._device: DeviceChoice | None = None
        self._awaited: list[tuple[SlotRow | None, int]] = []  # the texts of the next choice, if none joins or leaves

    def _on_device(self) -> DeviceChoice:
        if self._device is None:
            session = open_choice(self._folder, self.logits, self._plan_cache)
            self._device = DeviceChoice(session, self.logits)
        return self._device

    def warm_up(self) -> None:
        """Compile the choice."""
        count = self.logits.shape[0]
        self._on_device().choose([[0]] * count, [Sampling(1.0)] * count)

    def take(self, rows: Sequence[SlotRow | None]) -> None:
        """Give each text its next token; None is no text."""
        texts = [[0] if row is None else row.ids for row in rows]
        if [(row, len(ids)) for row, ids in zip(rows, texts)] != self._awaited:
            # other texts than the last time, or tokens that were chosen in runs of another size
            rules = [TokenRule() if row is None else row.task.rule for row in rows]
            self._choices = TokenChoices(self.logits, self._on_device, rules)
        self._awaited = [(row, len(ids) + (row is not None)) for row, ids in zip(rows, texts)]
        greatest = [int(token) for token in self.token.numpy()[:, 0]]
        chosen = self._choices.next(texts, greatest, [place for place, row in enumerate(rows) if row is not None])
        for place, token in chosen.items():
            row = rows[place]
            assert row is not None, "it was asked for"
            row.take(token)

    def close(self) -> None:
        self._awaited = []
        for tensor in (self.token, self.logits):
            tensor.dispose()
        if self._device is not None:
            self._device.close()


class SlotBatch:
    """Up to ``size`` texts in slots of one cache, of a decoder whose cache is extended in place.

    A prompt is read alone, a part a step, into its slot; all texts whose prompts are read then get a token a step, in
    runs over the first slots: 1, 2, 4, ... of them.  What is in a slot stays when its text has left: a prompt that
    begins with the same tokens continues it.
    """

    def __init__(self, decoder: CachedDecoder, size: int, plan_cache: Any = True) -> None:
        """Compile what runs, so that no text waits for it."""
        self._decoder = decoder
        self._size = size
        self._sizes = batch_sizes(size)
        self._rows: dict[int, SlotRow] = {}  # by slot, in the order in which they joined
        self._ids: list[list[int]] = [[] for _ in range(size)]  # whose keys and values are in each slot
        layout = {name: (size, *sizes[1:]) for name, sizes in decoder.form.layout.items()}
        self._cache = KeyValueCache(layout, decoder.session.device, in_place=True)
        self._views: dict[tuple[int, int], KeyValueCache] = {}
        self._results = {count: _Results(decoder, count, plan_cache) for count in self._sizes}
        for count, results in self._results.items():
            self._run(0, np.zeros((count, 1), np.int64), [1] * count)
            results.warm_up()
        for tokens in CHUNKS:
            self._run(0, np.zeros((1, tokens), np.int64), [tokens])

    @property
    def nbytes(self) -> int:
        """Bytes of the cache on the device."""
        return self._cache.nbytes

    def admit(self, waiting: Sequence[SlotRow]) -> list[SlotRow]:
        """Give free slots to the first that wait; return these."""
        joined = list(waiting[: self._size - len(self._rows)])
        for row in joined:
            free = [slot for slot in range(self._size) if slot not in self._rows]
            shared = {slot: common_prefix(self._ids[slot], row.ids) for slot in free}
            slot = max(free, key=lambda each: shared[each])
            row.reused_tokens = shared[slot]
            del self._ids[slot][shared[slot] :]
            self._rows[slot] = row
        return joined

    def leave(self, row: SlotRow) -> None:
        """Free the slot of a text."""
        self._rows = {slot: other for slot, other in self._rows.items() if other is not row}

    def step(self) -> list[SlotRow]:
        """Compute a token of each text, and a part of the oldest prompt that is not read; return who has new tokens."""
        self._move_together()
        decoding = [slot for slot, row in self._rows.items() if row.tokens]
        unread = next((slot for slot in self._rows if slot not in decoding), None)
        changed = self._decode(decoding) if decoding else []
        return changed if unread is None else [*changed, *self._read(unread)]

    def _read(self, slot: int) -> list[SlotRow]:
        """Run a part of a prompt; return the text if it has its first token by that."""
        row, ids = self._rows[slot], self._ids[slot]
        count = self._decoder.chunk(len(row.ids) - len(ids), len(ids))
        part = row.ids[len(ids) : len(ids) + count]
        padded = [*part, *part[-1:] * (count - len(part))]
        results = self._run(slot, np.array([padded]), [len(ids) + count], len(part) - 1)
        ids += part
        if len(ids) < row.prompt_tokens:
            return []
        results.take([row])
        return [row]

    def _decode(self, slots: Sequence[int]) -> list[SlotRow]:
        count = self._covering(max(slots) + 1)
        rows = [self._rows[slot] if slot in slots else None for slot in range(count)]
        # any other slot computes its last token again, to the same end; an empty one something, of no use
        texts = [self._ids[slot] if row is None else row.ids for slot, row in enumerate(rows)]
        results = self._run(0, np.array([ids[-1:] or [0] for ids in texts]), [len(ids) or 1 for ids in texts])
        for slot in slots:
            self._ids[slot].append(self._rows[slot].ids[-1])
        results.take(rows)
        return [self._rows[slot] for slot in slots]

    def _run(self, first: int, ids: np.ndarray, ends: Sequence[int], last: int = 0) -> _Results:
        """Run tokens [slots, tokens] in the slots from ``first`` on, whose texts have ``ends`` rows behind it.

        The logits are those of the row ``last`` of the tokens.
        """
        form, before, count = self._decoder.form, self._cache.capacity, len(ids)
        self._cache.grow(max(ends), form.limit)
        if self._cache.capacity > before:
            self._views.clear()
        small = {IDS: ids, ENDS: np.array(ends)}
        if form.has_row:
            small[LOGITS_ROWS] = np.full((count, 1), last)
        results = self._results[count]
        self._decoder.submit(small, {TOKEN: results.token, LOGITS: results.logits}, self._view(first, count), max(ends))
        return results

    def _covering(self, slots: int) -> int:
        return next(size for size in self._sizes if size >= slots)

    def _move_together(self) -> None:
        """Move texts into lower slots where a smaller batch then has them all."""
        while self._rows and self._covering(max(self._rows) + 1) > self._covering(len(self._rows)):
            source = max(self._rows)
            target = next(slot for slot in range(self._size) if slot not in self._rows)
            between = self._view(source, 1).copy()  # as a command does not copy inside of one buffer
            tensors = self._view(target, 1).tensors
            copy_rows([(tensor, tensors[name]) for name, tensor in between.tensors.items()], axis=0)
            between.dispose()
            self._ids[target], self._ids[source] = self._ids[source], []
            self._rows = {target if slot == source else slot: row for slot, row in self._rows.items()}

    def _view(self, first: int, count: int) -> KeyValueCache:
        """Return slots as a cache: their memory, not a copy."""
        if (first, count) not in self._views:
            self._views[first, count] = self._cache.part(first, count)
        return self._views[first, count]

    def reset(self) -> None:
        """Forget all texts."""
        self._rows.clear()
        for ids in self._ids:
            ids.clear()

    def close(self) -> None:
        """Free the memory."""
        self._views.clear()
        self._cache.dispose()
        for results in self._results.values():
            results.close()
