"""Runs that verify a draft: the tokens behind each of several rows, chosen as if one had come after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..runtime.memory.tensor import Tensor
from ..runtime.plan.decoder_ports import ENDS, IDS, LOGITS, LOGITS_ROWS, TOKEN
from .cache import KeyValueCache
from .chooser import DeviceChoice, TokenChoices
from .decoder import VERIFIED, CachedDecoder
from .model_source import open_choice
from .text_row import Choice, TokenRule


class Verification:
    """Runs of :data:`.VERIFIED` tokens, and the choice behind each: of a decoder that says which logits it wants."""

    def __init__(self, decoder: CachedDecoder, plan_cache: Any = True) -> None:
        form, device = decoder.form, decoder.session.device
        self._decoder = decoder
        self._plan_cache = plan_cache
        self._token = Tensor.empty((1, VERIFIED), "int64", device)
        self._logits = Tensor.empty((1, VERIFIED, form.vocabulary), form.logits_type, device)
        #: the same memory, as a row for each of several texts
        rows = (VERIFIED, 1, form.vocabulary)
        self._rows = Tensor.from_gpu_buffer(self._logits.gpu_buffer, form.logits_type, rows)
        self._small = decoder.small_inputs(VERIFIED, VERIFIED)
        self._small[LOGITS_ROWS].update(np.arange(VERIFIED)[None])
        self._choice: DeviceChoice | None = None

    def tokens(
        self, text: Sequence[int], draft: Sequence[int], rule: TokenRule, cache: KeyValueCache, length: int
    ) -> Iterator[Choice]:
        """Yield the token behind a text, then behind the text and a part of its draft, longer and longer.

        They are those of single runs as long as the draft's tokens are the yielded ones.  The cache has ``length``
        rows of the text, all but the last token, and rows of the draft behind them then.
        """
        ids = [*text[length:], *draft]
        padded = [*ids, *ids[-1:] * (VERIFIED - len(ids))]
        self._small[IDS].update(np.array([padded]))
        self._small[ENDS].update(np.array([length + VERIFIED]))
        cache.rewind(length)
        results = {TOKEN: self._token, LOGITS: self._logits}
        self._decoder.submit(self._small, results, cache, length + VERIFIED)
        texts = [[*text, *draft[:count]] for count in range(len(ids))]
        texts += texts[-1:] * (VERIFIED - len(ids))
        choices = TokenChoices(self._rows, self._on_device, [rule] * VERIFIED)
        yield from choices.each(texts, [int(token) for token in self._token.numpy()[0]], range(len(ids)))

    def _on_device(self) -> DeviceChoice:
        if self._choice is None:
            self._choice = DeviceChoice(open_choice(self._decoder.folder, self._rows, self._plan_cache), self._rows)
        return self._choice

    def close(self) -> None:
        """Free the memory."""
        for tensor in (self._token, self._logits, *self._small.values()):
            tensor.dispose()
        if self._choice is not None:
            self._choice.close()
