"""Where random decisions come from: a strategy of hypothesis, which can shrink them, or a seeded generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from hypothesis import strategies as st

T = TypeVar("T")


class Unsuitable(Exception):
    """What was drawn does not fit; something else is drawn."""


class Source(Protocol):
    """Decisions; the first option and the lowest number are the simplest ones."""

    def integer(self, low: int, high: int) -> int:
        """A number of ``low`` to ``high``, both included."""
        ...


class Drawn:
    """Decisions of hypothesis."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))


class Seeded:
    """Decisions of a generator: as good, cheaper, and not to be shrunk."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        return int(self._generator.integers(low, high + 1))


def choose(source: Source, options: Sequence[T]) -> T:
    """One of the options; :class:`Unsuitable` if there are none."""
    if not options:
        raise Unsuitable
    return options[source.integer(0, len(options) - 1)]


def rarely(source: Source, of: int = 4) -> bool:
    """True once in ``of`` draws."""
    return source.integer(0, of - 1) == of - 1
