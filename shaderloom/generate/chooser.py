"""Choices of the next tokens of texts: on the device where it can be, else on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..runtime.execution.repeated_reader import RepeatedReader
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

    ``session`` computes it, and is closed with it.  ``token`` [batch, 1] has the last token of each text, and then the
    one behind it; None: a tensor of its own.
    """

    def __init__(self, session: InferenceSession, logits: Tensor, token: Tensor | None = None) -> None:
        device, (batch, _, vocabulary) = logits.device, logits.shape
        self._session = session
        self._token = Tensor.empty((batch, 1), "int64", device) if token is None else token
        self._reader = RepeatedReader(self._token)
        seen = Tensor.empty((batch, vocabulary), "int32", device)
        #: what a run reads; the same tensors each time, so that it is only submitted
        self._feeds: dict[str, Tensor] = {
            "logits": logits,
            "last": self._token,
            "seen": seen,
            "allowed": Tensor.from_numpy(np.full((batch, mask_words(vocabulary)), _ALL), device),
            "parameters": Tensor.empty((batch, 5), "float32", device),
            "key": Tensor.empty((batch, 1), "uint32", device),
            "top_k": Tensor.empty((batch, 1), "int64", device),
        }
        self._targets: dict[str, Any] = {"token": self._token, "seen_next": seen}
        self._own = [each for name, each in self._feeds.items() if name != "logits" and each is not token]
        self._vocabulary = vocabulary
        self._is_open = True  # all tokens are allowed
        self._samplings: list[Sampling] = []
        self._owner: object = None

    def begin(self, texts: Sequence[Sequence[int]], samplings: Sequence[Sampling], owner: object) -> None:
        """Say which tokens the text of each row has, unless the last one to say so was the same ``owner``.

        Each choice adds the last token of a text to them.
        """
        if owner is not self._owner:
            self._owner = owner
            if any(sampling.repetition_penalty != 1 for sampling in samplings):
                seen = [_seen(ids, self._vocabulary) for ids in texts]
                self._feeds["seen"].update(np.stack(seen).astype(np.int32))

    def choose(
        self,
        texts: Sequence[Sequence[int]],
        samplings: Sequence[Sampling],
        allowed: Sequence[np.ndarray | None] | None = None,
    ) -> list[int]:
        """Return the token behind each text, whose last token is new to it; -1 where the host must choose.

        ``allowed`` has the bits of the tokens of each text that count; None: all do.
        """
        self._token.update(np.array([ids[-1:] for ids in texts]))
        self.submit([len(ids) for ids in texts], samplings, allowed)
        return [int(token) for token in self._reader.begin().numpy()[:, 0]]

    def submit(
        self,
        lengths: Sequence[int],
        samplings: Sequence[Sampling],
        allowed: Sequence[np.ndarray | None] | None = None,
    ) -> None:
        """Compute what :meth:`choose` returns behind texts of so many tokens, whose last ones are on the device."""
        feeds, masks = self._feeds, [None] * len(lengths) if allowed is None else allowed
        is_open = all(bits is None for bits in masks)
        if not (is_open and self._is_open):
            everything = np.full(feeds["allowed"].shape[1], _ALL)
            feeds["allowed"].update(np.stack([everything if bits is None else bits for bits in masks]))
            self._is_open = is_open
        if list(samplings) != self._samplings:
            self._samplings = list(samplings)
            feeds["parameters"].update(np.stack([sampling.parameters() for sampling in samplings]))
            most = [min(sampling.top_k, self._vocabulary) if sampling.temperature else 0 for sampling in samplings]
            feeds["top_k"].update(np.array(most)[:, None])
        keys = [[sampling.key(length)] for length, sampling in zip(lengths, samplings)]
        feeds["key"].update(np.array(keys, np.uint32))
        self._session.run(list(self._targets), feeds, outputs=self._targets)

    def close(self) -> None:
        """Free the memory on the device."""
        self._session.close()
        self._reader.close()
        for tensor in self._own:
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
    ) -> None:
        self._logits = logits
        self._rules = tuple(rules)
        self._is_greedy = all(rule.is_greedy for rule in rules)
        self._turn = object()
        self._device = None if self._is_greedy or any(rule.processors for rule in rules) else on_device()

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
            samplings = [rule.sampling for rule in self._rules]
            self._device.begin(texts, samplings, self._turn)
            chosen = self._device.choose(texts, samplings, allowed)
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
            changed = np.asarray(processor(list(ids), logits))
            if changed.size != logits.size or changed.dtype.kind in "OUSc":
                other = f"{changed.dtype}{list(changed.shape)}"
                raise InputError(f"a logits processor returns float32[{logits.size}], not {other}")
            logits = changed.astype(np.float32).reshape(logits.shape)
        if allowed is not None:
            logits = masked(logits, allowed)
        return choose(logits, _seen(ids, logits.size), rule.sampling, len(ids))


def _seen(ids: Sequence[int], vocabulary: int) -> np.ndarray:
    return np.bincount(np.asarray(ids, np.int64), minlength=vocabulary)[:vocabulary] > 0
