"""Answers to several prompts at once, one row of a batch each, over a cache in place of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..compiler.frontend.next_token import ENDS, IDS, ROW, TOKEN
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.errors import UnsupportedError
from .cache import KeyValueCache
from .decoder import LOGITS, CachedDecoder
from .sampling import Sampling, choose
from .text import StopTexts, TextStream


class BatchRow:
    """One of the texts: ``ids`` are the prompt and the answer, ``text`` the answer's words."""

    def __init__(self, ids: Sequence[int], count: int, ends: Sequence[int], words: TextStream | None, stops: StopTexts):
        self.ids = list(ids)
        self.prompt_tokens = len(self.ids)
        self.text = ""
        self.ended_by = ""
        self._count, self._ends, self._words, self._stops = count, ends, words, stops

    @property
    def tokens(self) -> list[int]:
        """The answer."""
        return self.ids[self.prompt_tokens :]

    def take(self, token: int) -> None:
        """Append a token; tell in ``ended_by`` if the answer ends with it."""
        self.ids.append(token)
        is_last = len(self.tokens) == self._count
        if token in self._ends:
            self.ended_by = "end"
        else:
            piece, is_stopped = self._stops.push("" if self._words is None else self._words.push(token, last=is_last))
            self.text += piece
            if is_stopped:
                self.ended_by = "stop"
                return
            self.ended_by = "length" if is_last else ""
        if self.ended_by:
            self.text += self._stops.rest()


class BatchDecoder:
    """Runs of ``batch`` texts through a decoder; prompts of unequal length are padded on the right."""

    def __init__(self, decoder: CachedDecoder, batch: int) -> None:
        """Raises :class:`UnsupportedError` for a decoder whose runs take no padding."""
        form = decoder.form
        if not (form.in_place and form.has_row):
            raise UnsupportedError(
                "the model takes no padding, so that prompts of a batch would be of one length",
                hint="generate the answers one after another, or export the model with GroupQueryAttention",
            )
        self._decoder, self._batch, device = decoder, batch, decoder.session.device
        layout = {name: (batch, *sizes[1:]) for name, sizes in form.layout.items()}
        self._cache = KeyValueCache(layout, device, in_place=True)
        self._token = Tensor.empty((batch, 1), "int64", device)
        self._logits = Tensor.empty((batch, 1, form.vocabulary), form.logits_type, device)

    def generate(self, rows: Sequence[BatchRow], sampling: Sampling) -> None:
        """Take tokens until every row has ended."""
        self._read_prompts(rows, sampling)
        while not all(row.ended_by for row in rows):
            # a row that has ended computes its last token again and again
            ids = np.array([row.ids[-1:] for row in rows])
            self._run(ids, [len(row.ids) for row in rows], [0] * len(rows))
            self._take(rows, [not row.ended_by for row in rows], sampling)

    def _read_prompts(self, rows: Sequence[BatchRow], sampling: Sampling) -> None:
        lengths = [len(row.ids) for row in rows]
        prompts, done = [list(row.ids) for row in rows], 0
        while done < max(lengths):
            run = self._decoder.chunk(max(lengths) - done, done)
            end = done + run
            ids = [[*ids[done:end], *[ids[-1]] * (run - len(ids[done:end]))] for ids in prompts]
            last = [min(max(length - 1 - done, 0), run - 1) for length in lengths]
            self._run(np.array(ids), [end] * len(rows), last)
            self._take(rows, [done < length <= end for length in lengths], sampling)
            done = end

    def _run(self, ids: np.ndarray, ends: Sequence[int], last: Sequence[int]) -> None:
        form, cache = self._decoder.form, self._cache
        cache.grow(max(ends), form.limit)
        feeds: dict[str, Any] = {IDS: ids, ENDS: np.array(ends), ROW: np.array(last), **cache.tensors}
        targets: dict[str, Any] = {TOKEN: self._token, LOGITS: self._logits}
        targets |= {present: cache.tensors[name] for name, present in form.presents.items()}
        self._decoder.session.run(list(targets), feeds, outputs=targets)

    def _take(self, rows: Sequence[BatchRow], wanted: Sequence[bool], sampling: Sampling) -> None:
        if not any(wanted):
            return
        chosen = [row for row, is_wanted in enumerate(wanted) if is_wanted]
        if sampling.is_greedy:
            greatest = self._token.numpy()
            for row in chosen:
                rows[row].take(int(greatest[row, 0]))
            return
        logits = self._logits.numpy()
        for row in chosen:
            ids = rows[row].ids
            seen = np.isin(np.arange(logits.shape[2]), ids)
            rows[row].take(choose(logits[row, 0], seen, sampling, len(ids)))

    def close(self) -> None:
        """Free the memory."""
        self._cache.dispose()
        for tensor in (self._token, self._logits):
            tensor.dispose()
