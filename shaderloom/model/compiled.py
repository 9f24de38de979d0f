"""A plan as its source gives it, and how those who wait for it are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..runtime.plan.plan import Plan

#: Told what is being done, how much of it is done, and how much there is (0: not known)
Progress = Callable[[str, int, int], None]


def ignore_progress(what: str, done: int, total: int) -> None:
    """Report progress to nobody."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A plan, where it came from, and how long it took to get in milliseconds.

    ``from_disk``: this process has not generated the shaders, so they keep their bounds checks.
    """

    plan: Plan
    from_disk: bool
    milliseconds: float
