"""Answers to several prompts at once, one row of a batch each, over caches of their own.

Unequal prompts are padded: on the right for caches in place, on the left for those that grow, where the model has a
mask and positions.  A model in place that takes no padding computes the ends of short prompts again instead: each row
of its cache may end elsewhere, and a run of tokens whose keys and values are there writes the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..runtime.memory.tensor import Tensor
from ..runtime.plan.decoder_ports import ENDS, IDS, LOGITS, LOGITS_ROWS, TOKEN
from ..runtime.plan.errors import InputError, UnsupportedError
from .cache import KeyValueCache
from .chooser import DeviceChoice, TokenChoices
from .decoder import CachedDecoder
from .model_source import open_choice
from .text_row import TextRow


def unpadded(prompts: Sequence[Any], mask: Sequence[Sequence[int]] | None) -> Sequence[Any]:
    """Return prompts without what a mask says is padding; raise :class:`InputError` if it is not of their form."""
    if mask is None:
        return prompts
    is_text = any(isinstance(prompt, str) for prompt in prompts)
    if is_text or [len(prompt) for prompt in prompts] != [len(row) for row in mask]:
        raise InputError("attention_mask has a number for each token of prompts of token ids")
    return [[token for token, is_valid in zip(*row) if is_valid] for row in zip(prompts, mask)]


class BatchDecoder:
    """Runs texts through a decoder together, each to its end."""

    def __init__(self, decoder: CachedDecoder, rows: Sequence[TextRow], plan_cache: Any = True) -> None:
        """Raises :class:`UnsupportedError` for unequal prompts and caches that grow, of a decoder without padding."""
        form, batch = decoder.form, len(rows)
        self._decoder, self._rows, device = decoder, list(rows), decoder.session.device
        self._lengths = [len(row.ids) for row in rows]
        #: rows of padding on the left of each text
        self._left = [0] * batch
        #: whether runs compute the ends of short prompts again
        self._overlaps = False
        if len(set(self._lengths)) > 1:
            self._pad(form.padding)
        layout = {name: (batch, *sizes[1:]) for name, sizes in form.layout.items()}
        self._cache = KeyValueCache(layout, device, in_place=form.in_place)
        self._token = Tensor.empty((batch, 1), "int64", device)
        self._logits = Tensor.empty((batch, 1, form.vocabulary), form.logits_type, device)
        self._choice: DeviceChoice | None = None
        self._plan_cache = plan_cache

    def _pad(self, side: str) -> None:
        self._overlaps = self._decoder.form.in_place and side != "right"
        if self._decoder.form.in_place:
            return
        if not side:
            raise UnsupportedError(
                "the model takes no padding, so that prompts of a batch are of one length",
                hint="generate the answers one after another, or export the model with GroupQueryAttention, or with "
                "attention_mask and position_ids",
            )
        longest, most = max(self._lengths), self._decoder.form.max_length
        self._left = [longest - length for length in self._lengths]
        wanted = max(row.task.count + left + length for row, left, length in zip(self._rows, self._left, self._lengths))
        if wanted > most:
            raise InputError(
                f"padded to {longest:,} tokens, prompts and answers of {wanted:,} exceed the length of {most:,}",
                hint="pass max_new_tokens, or prompts of about one length",
            )

    def generate(self) -> Iterator[None]:
        """Take tokens until every row has ended; yield behind each run."""
        rows = self._rows
        rules = [row.task.rule for row in rows]
        self._choices = TokenChoices(self._logits, self._on_device, rules)
        yield from self._read_prompts()
        while not all(row.ended_by for row in rows):
            # a row that has ended computes its last token again and again
            self._run([row.ids[-1:] for row in rows], [0] * len(rows), self._positions())
            self._take([not row.ended_by for row in rows])
            yield

    def _on_device(self) -> DeviceChoice:
        session = open_choice(self._decoder.folder, self._logits, self._plan_cache)
        self._choice = DeviceChoice(session, self._logits)
        return self._choice

    def _positions(self) -> list[int]:
        """Return where each text ends; of a cache that grows, rows grow alike."""
        if self._decoder.form.in_place:
            return [len(row.ids) for row in self._rows]
        return [self._cache.capacity + 1 - left for left in self._left]

    def _read_prompts(self) -> Iterator[None]:
        prompts = [row.ids[:1] * left + row.ids for row, left in zip(self._rows, self._left)]
        lengths, done = [len(ids) for ids in prompts], 0
        while done < max(lengths):
            wanted = max(lengths) - done
            run = self._decoder.chunk(min(wanted, *lengths) if self._overlaps else wanted, done)
            end = done + run
            if self._overlaps:
                ends = [min(end, length) for length in lengths]
                ids = [ids[last - run : last] for ids, last in zip(prompts, ends)]
                self._run(ids, [], ends)
            else:
                ids = [[*ids[done:end], *[ids[-1]] * (run - len(ids[done:end]))] for ids in prompts]
                last = [min(max(length - 1 - done, 0), run - 1) for length in lengths]
                self._run(ids, last, [end - left for left in self._left])
            self._take([done < length <= end for length in lengths])
            done = end
            yield

    def _run(self, ids: Sequence[Sequence[int]], last: Sequence[int], ends: Sequence[int]) -> None:
        small = {IDS: np.array(ids), ENDS: np.array(ends)}
        if self._decoder.form.has_row:
            small[LOGITS_ROWS] = np.array(last)[:, None]
        end = max(end + left for end, left in zip(ends, self._left))
        self._decoder.submit(small, {TOKEN: self._token, LOGITS: self._logits}, self._cache, end)

    def _take(self, wanted: Sequence[bool]) -> None:
        chosen = [row for row, is_wanted in enumerate(wanted) if is_wanted]
        if not chosen:
            return
        greatest = [int(token) for token in self._token.numpy()[:, 0]]
        for row, token in self._choices.next([each.ids for each in self._rows], greatest, chosen).items():
            self._rows[row].take(token)

    @property
    def nbytes(self) -> int:
        """Bytes of the caches on the device."""
        return self._cache.nbytes

    def close(self) -> None:
        """Free the memory."""
        self._cache.dispose()
        for each in (self._token, self._logits):
            each.dispose()
        if self._choice is not None:
            self._choice.close()
