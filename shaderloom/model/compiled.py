"""A plan as its source returns it, and the progress callback of those who wait for it."""

from __future__ import annotations

from collections.abc import Callable

from ..runtime.plan.errors import InternalError, ShaderloomError
from ..runtime.plan.plan import Plan
from ..runtime.plan.record import record

#: Called with what is done now, the amount done, and the total (0: unknown)
Progress = Callable[[str, int, int], None]


def ignore_progress(what: str, done: int, total: int) -> None:
    """Ignore progress."""


@record
class CompiledPlan:
    """A plan, its origin, and the milliseconds it took to obtain.

    ``from_disk``: another process has generated the shaders.  ``trusted``: it was one of this user's, or this process,
    so they need no bounds checks for safety.  ``fault``: the error for a plan whose sizes come out wrong in a run.
    """

    plan: Plan
    from_disk: bool
    milliseconds: float
    trusted: bool
    fault: type[ShaderloomError] = InternalError
