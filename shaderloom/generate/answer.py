"""An answer as it comes, and what it took."""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from ..runtime.plan.errors import InputError
from .text_row import TextRow

#: What yields the pieces of an answer as they come
Pieces = Generator[str, None, None]


@dataclass
class Statistics:
    """What a generation did.  ``reused_tokens`` of the prompt were in the cache; times are in seconds.

    ``drafted_tokens`` were verified in runs of several, and ``accepted_tokens`` of them are in the answer.

    ``ended_by`` is "end" (a token that ends answers), "stop" (a text that was asked for), "length", or "" while it
    runs or after it was left.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    new_tokens: int = 0
    first_token_seconds: float = 0.0
    decode_seconds: float = 0.0
    ended_by: str = ""
    seed: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Tokens behind the first one by their time; 0 without any."""
        return (self.new_tokens - 1) / self.decode_seconds if self.new_tokens > 1 and self.decode_seconds else 0.0


class Generation:
    """Pieces of an answer as they come; iterate over it once.

    ``text`` and :attr:`tokens` are what there is so far; ``statistics`` are final when the iteration has ended.
    """

    def __init__(self, pieces: Pieces, statistics: Statistics, row: TextRow) -> None:
        self._pieces = pieces
        self._row = row
        self.statistics = statistics
        self.text = ""

    @property
    def tokens(self) -> list[int]:
        """The tokens of the answer."""
        return self._row.tokens

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        piece = next(self._pieces)
        self.text += piece
        return piece

    def close(self) -> None:
        """End the generation; what was generated stays in the generator's cache.

        Raises :class:`shaderloom.InputError` while it computes a token, as for what a logits processor calls.
        """
        if inspect.getgeneratorstate(self._pieces) == inspect.GEN_RUNNING:
            raise InputError("the answer is being computed", hint="fork() the generator for another one meanwhile")
        self._pieces.close()
