"""Choices of the next tokens of texts: on the device where it can be, else on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..runtime.memory.tensor import Tensor
from ..runtime.plan.errors import InputError
from ..session.session import InferenceSession
from .grammar import mask_words, masked
from .sampling import Sampling, choose
from .text_row import Choice, TokenRule

#: The bits of 32 tokens
_ALL = np.uint32(0xFFFFFFFF)


class DeviceChoice:
    """The choice on a device, for logits [batch, 1, vocabulary] that a decoder writes there.

    ``session`` computes it, and is closed with it.
    """

    def __init__(self, session: InferenceSession, logits: Tensor) -> None:
        device, (batch, _, vocabulary) = logits.device, logits.shape
        self._logits = logits
        self._session = session
        self._token = Tensor.empty((batch, 1), "int64", device)
        self._seen = Tensor.empty((batch, vocabulary), "int32", device)
        self._allowed = Tensor.from_numpy(np.full((batch, mask_words(vocabulary)), _ALL), device)
        self._is_open = True  # all tokens are allowed

    def begin(self, texts: Sequence[Sequence[int]]) -> None:
        """Say which tokens the text of each row has."""
        self._seen.update(np.stack([_seen(ids, self._seen.shape[1]) for ids in texts]).astype(np.int32))

    def choose(
        self,
        texts: Sequence[Sequence[int]],
        samplings: Sequence[Sampling],
        allowed: Sequence[np.ndarray | None] | None = None,
    ) -> list[int]:
        """Return the token behind each text, whose last token is new to it; -1 where the host must choose.

        ``allowed`` has the bits of the tokens of each text that count; None: all do.
        """
        masks = [None] * len(texts) if allowed is None else allowed
        is_open = all(bits is None for bits in masks)
        if not (is_open and self._is_open):
            everything = np.full(self._allowed.shape[1], _ALL)
            self._allowed.update(np.stack([everything if bits is None else bits for bits in masks]))
            self._is_open = is_open
        most = self._seen.shape[1]
        top_k = [[min(sampling.top_k, most) if sampling.temperature else 0] for sampling in samplings]
        keys = [[sampling.key(len(ids))] for ids, sampling in zip(texts, samplings)]
        feeds: dict[str, Any] = {
            "logits": self._logits,
            "seen": self._seen,
            "allowed": self._allowed,
            "last": np.array([ids[-1:] for ids in texts]),
            "parameters": np.stack([sampling.parameters() for sampling in samplings]),
            "key": np.array(keys, np.uint32),
            "top_k": np.array(top_k),
        }
        targets: dict[str, Any] = {"token": self._token, "seen_next": self._seen}
        self._session.run(list(targets), feeds, outputs=targets)
        return [int(token) for token in self._token.numpy()[:, 0]]

    def close(self) -> None:
        """Free the memory on the device."""
        self._session.close()
        for tensor in (self._token, self._seen, self._allowed):
            tensor.dispose()


class TokenChoices:
    """Chooses the next tokens of several texts, one a row of logits [batch, 1, vocabulary].

    ``on_device`` returns the device's choice for these logits; it is asked if there is a use for it.
    """

    def __init__(
        self,
        logits: Tensor,
        on_device: Callable[[], DeviceChoice],
        rules: Sequence[TokenRule],
        texts: Sequence[Sequence[int]],
    ) -> None:
        self._logits = logits
        self._rules = tuple(rules)
        self._is_greedy = all(rule.is_greedy for rule in rules)
        self._device = None if self._is_greedy or any(rule.processors for rule in rules) else on_device()
        if self._device is not None and any(rule.sampling.repetition_penalty != 1 for rule in rules):
            self._device.begin(texts)

    def next(self, texts: Sequence[Sequence[int]], greatest: Sequence[int], rows: Sequence[int]) -> dict[int, Choice]:
        """Return the tokens behind the texts in ``rows``; ``greatest`` are those of the greatest logits of all rows.

        An error takes the place of a token where the grammar of the text asks for too much.
        """
        return dict(zip(rows, self.each(texts, greatest, rows)))

    def each(self, texts: Sequence[Sequence[int]], greatest: Sequence[int], rows: Sequence[int]) -> Iterator[Choice]:
        """Yield the tokens of :meth:`next`; processors are called for those alone that are asked for."""
        if self._is_greedy:
            yield from (greatest[row] for row in rows)
            return
        allowed: list[np.ndarray | None] = [None] * len(texts)
        errors: dict[int, InputError] = {}
        for row in rows:
            try:
                allowed[row] = self._rules[row].allowed(texts[row])
            except InputError as error:
                errors[row] = error
        chosen = [-1] * len(texts)
        if self._device is not None:
            chosen = self._device.choose(texts, [rule.sampling for rule in self._rules], allowed)
        logits = None
        for row in rows:
            if row in errors:
                yield errors[row]
                continue
            if chosen[row] < 0:
                if logits is None:
                    logits = self._logits.numpy()[:, 0].astype(np.float32)
                chosen[row] = self._on_host(self._rules[row], texts[row], logits[row], allowed[row])
            yield chosen[row]

    def _on_host(self, rule: TokenRule, ids: Sequence[int], logits: np.ndarray, allowed: np.ndarray | None) -> int:
        for processor in rule.processors:
            logits = np.asarray(processor(ids, logits), np.float32).reshape(logits.shape)
        if allowed is not None:
            logits = masked(logits, allowed)
        return choose(logits, _seen(ids, logits.size), rule.sampling, len(ids))


def _seen(ids: Sequence[int], vocabulary: int) -> np.ndarray:
    return np.bincount(np.asarray(ids, np.int64), minlength=vocabulary)[:vocabulary] > 0
