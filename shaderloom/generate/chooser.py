"""Choices of one text after another: on the device where it can be, else on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..runtime.memory.tensor import Tensor
from ..session.session import InferenceSession
from .choice_model import build_choice
from .sampling import Sampling, choose

#: Takes the tokens so far and float32 logits [vocabulary]; returns the logits that count
LogitsProcessor = Callable[[Sequence[int], np.ndarray], np.ndarray]


class DeviceChoice:
    """The choice on a device, for logits that a decoder writes there."""

    def __init__(self, logits: Tensor, cache: Any) -> None:
        self._logits = logits
        device, vocabulary = logits.device, logits.shape[-1]
        self._session = InferenceSession(
            build_choice(vocabulary, logits.element_type), device=device, cache=cache, dynamic="off"
        )
        self._token = Tensor.empty((1, 1), "int64", device)
        self._seen = Tensor.empty((1, vocabulary), "int32", device)

    def begin(self, ids: Sequence[int]) -> None:
        """Say which tokens the text has."""
        self._seen.update(_seen(ids, self._seen.shape[1]).astype(np.int32)[None])

    def choose(self, last: int, sampling: Sampling, position: int) -> int:
        """Return the token behind ``last``; -1 where the host must choose."""
        feeds: dict[str, Any] = {
            "logits": self._logits,
            "seen": self._seen,
            "last": np.array([[last]]),
            "parameters": sampling.parameters(),
            "key": np.array([sampling.key(position)], np.uint32),
            "top_k": np.array([min(sampling.top_k, self._seen.shape[1]) if sampling.temperature else 0]),
        }
        targets: dict[str, Any] = {"token": self._token, "seen_next": self._seen}
        self._session.run(list(targets), feeds, outputs=targets)
        return int(self._token.numpy()[0, 0])

    def close(self) -> None:
        """Free the memory on the device."""
        self._session.close()
        for tensor in (self._token, self._seen):
            tensor.dispose()


class Chooser:
    """Chooses the tokens of one answer."""

    def __init__(
        self,
        logits: Tensor,
        on_device: Callable[[], DeviceChoice],
        sampling: Sampling,
        processors: Sequence[LogitsProcessor],
        ids: Sequence[int],
    ) -> None:
        self._logits = logits
        self._sampling = sampling
        self._processors = tuple(processors)
        self._device = None if sampling.is_greedy or self._processors else on_device()
        if self._device is not None:
            self._device.begin(ids)

    def next(self, ids: Sequence[int], greatest: int) -> int:
        """Return the token behind ``ids``; ``greatest`` is that of the greatest logit."""
        if self._sampling.is_greedy and not self._processors:
            return greatest
        if self._device is not None:
            token = self._device.choose(ids[-1], self._sampling, len(ids))
            if token >= 0:
                return token
        logits = self._logits.numpy().reshape(-1).astype(np.float32)
        for processor in self._processors:
            logits = np.asarray(processor(ids, logits), np.float32).reshape(logits.shape)
        return choose(logits, _seen(ids, logits.size), self._sampling, len(ids))


def _seen(ids: Sequence[int], vocabulary: int) -> np.ndarray:
    return np.bincount(np.asarray(ids, np.int64), minlength=vocabulary)[:vocabulary] > 0
