"""How the next token is chosen from logits: parameters, and the choice on the host.

The order is that of transformers: repetition penalty, temperature, the ``top_k`` greatest, the fewest whose
probabilities reach ``top_p``, those of at least ``min_p`` times the greatest probability.  Among these one is drawn
by the greatest sum of its logit and Gumbel noise, which has their probabilities (Gumbel, 1954).  The noise of a token
is a hash of the seed, the position in the text and the token, so that a draw depends on nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..api.arguments import is_integer, is_number
from ..runtime.plan.errors import InputError

#: Shifts and factors of a hash of 32 bits (C. Wellons, "lowbias32")
MIX = ((16, 0x7FEB352D), (15, 0x846CA68B))
LAST_SHIFT = 16
#: Tells the second hash of a token from the first
SALT = 0xA511E9B3
_MASK = 0xFFFFFFFF
#: A lower temperature draws the most probable token as this does, whose inverse leaves logits finite in float32
_COLDEST = 1e-20


@dataclass(frozen=True)
class Sampling:
    """Parameters of the choice.

    ``temperature`` 0 takes the most probable token; ``top_k`` 0, ``top_p`` 1, ``min_p`` 0 and ``repetition_penalty`` 1
    have no effect.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise :class:`InputError` for a parameter out of its range; make those of numpy Python's."""
        for name, low, high in (
            ("temperature", 0, 10_000),
            ("top_k", 0, 1 << 31),
            ("top_p", 1e-6, 1),
            ("min_p", 0, 1),
            ("repetition_penalty", 1e-3, 1000),
            ("seed", 0, (1 << 64) - 1),
        ):
            value = getattr(self, name)
            whole = name in ("top_k", "seed")
            is_right = is_integer(value) if whole else is_number(value)
            if not is_right or not low <= value <= high:
                kind = "an integer" if whole else "a number"
                raise InputError(f"{name} is {kind} from {low:,} to {high:,}, not {value!r}")
            object.__setattr__(self, name, int(value) if whole else float(value))

    @property
    def is_greedy(self) -> bool:
        """Whether the greatest of the logits as they are is the choice."""
        return self.temperature == 0 and self.repetition_penalty == 1

    def parameters(self) -> np.ndarray:
        """Return float32 [5]: 1 / temperature, the factor of noise, top_p, log(min_p), the penalty."""
        lowest = -float(np.finfo(np.float32).max)
        numbers = [1, 0, 1, lowest, self.repetition_penalty]
        if self.temperature:
            inverse, least = 1 / max(self.temperature, _COLDEST), math.log(self.min_p) if self.min_p else lowest
            numbers[:4] = [inverse, 1, self.top_p, least]
        return np.array(numbers, np.float32)

    def key(self, position: int) -> int:
        """Return 32 bits for the token at ``position``."""
        return _mixed(_mixed(_mixed(self.seed) + (self.seed >> 32)) + position)


def _mixed(number: int) -> int:
    number &= _MASK
    for shift, factor in MIX:
        number = (number ^ number >> shift) * factor & _MASK
    return number ^ number >> LAST_SHIFT


def _mixed_array(numbers: np.ndarray) -> np.ndarray:
    for shift, factor in MIX:
        numbers = (numbers ^ numbers >> np.uint32(shift)) * np.uint32(factor)
    return numbers ^ numbers >> np.uint32(LAST_SHIFT)


def uniform(key: int, count: int) -> np.ndarray:
    """Return ``count`` float32 numbers inside (0, 1), one for each token."""
    numbers = _mixed_array(np.arange(count, dtype=np.uint32) + np.uint32(key)) ^ np.uint32(key ^ SALT)
    return ((_mixed_array(numbers) >> np.uint32(9)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)


def choose(logits: np.ndarray, seen: np.ndarray, sampling: Sampling, position: int) -> int:
    """Choose a token by logits [vocabulary]; ``seen`` says which tokens the text has so far.

    Raises :class:`InputError` if no logit is a number.
    """
    scores = logits.astype(np.float32)
    penalty = np.float32(sampling.repetition_penalty)
    scores = np.where(seen, np.where(scores < 0, scores * penalty, scores / penalty), scores)
    if not (scores > -np.inf).any():
        raise InputError("no token is left: all logits are -inf or NaN", hint="check the logits processors")
    inverse, noise, *_ = sampling.parameters()
    scores = scores * inverse
    if not noise:
        return int(np.nanargmax(scores))
    scores = np.where(np.isnan(scores), -np.inf, scores)
    scores = np.where(scores >= _threshold(scores, sampling), scores, -np.inf)
    return int((scores - np.log(-np.log(uniform(sampling.key(position), scores.size)))).argmax())


def _threshold(scores: np.ndarray, sampling: Sampling) -> np.float32:
    """Return the least score of a token that may be drawn."""
    ordered = np.sort(scores)[::-1]
    if sampling.top_k:
        ordered = ordered[: sampling.top_k]
    weights = np.exp((ordered - ordered[0]).astype(np.float64))
    before = (np.cumsum(weights) - weights) / weights.sum()
    count = max(int((before < sampling.top_p).sum()), 1)
    least = ordered[count - 1]
    return max(least, ordered[0] + sampling.parameters()[3])
