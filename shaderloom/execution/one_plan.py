"""Decision between the two ways to run a model: as one plan, or as a program of several steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..runtime.execution.ports import Feed
from ..runtime.plan.errors import REFUSALS, NotKnownError, UnsupportedError
from .plan_source import PlanSource

T = TypeVar("T")

#: Number of concrete input shapes that are remembered
SEEN_SHAPES = 256

#: Number of different shapes for which a model is refused as one plan, if for none it is one, until all count as such
REFUSED_SHAPES = 2

#: Names and concrete shapes of the inputs, in the order of the feeds
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


class OnePlanDecision:
    """Decides whether a model is one plan for its input shapes, and remembers those for which it is not.

    It is none if the compiler refuses it and steps help: what is refused becomes known in a later step, or may run on
    the cpu.
    """

    def __init__(self, source: PlanSource, *, has_steps: bool) -> None:
        """Prepare a decision; ``has_steps`` says whether there is a program where there is no plan."""
        self.never = source.header.refused > 0  #: the compiler cannot read some nodes: no shapes give one plan
        self._has_steps = has_steps
        self._generalises = source.as_model() is not None  #: shapes that are refused speak for others
        self._in_steps: set[Shapes] = set()
        self._was_one = False
        self._refused = 0  #: shapes for which it is none, on whatever device

    def attempt(
        self,
        get: Callable[[Any, Any], T],
        shapes: Mapping[str, tuple[int, ...]],
        feeds: Mapping[str, Feed] | None = None,
        *,
        has_cpu: bool,
    ) -> T | None:
        """Return ``get(shapes, feeds)``, which compiles the model as one plan; None if it takes several steps.

        ``has_cpu`` says whether nodes may run on the cpu.  Raises what the compiler raises if steps would not help.
        """
        if self.never:
            return None
        if self._generalises and self._refused >= REFUSED_SHAPES and not self._was_one:
            return None
        if self._in_steps and tuple(shapes.items()) in self._in_steps:
            return None
        try:
            result = get(shapes, feeds)
        except REFUSALS as error:
            lasts = isinstance(error, (NotKnownError, UnsupportedError))
            if not self._has_steps or not (has_cpu or lasts):
                raise
            self._refused += lasts
        else:
            self._was_one = True
            return result
        self.take_steps(shapes)
        return None

    def take_steps(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Decide for several steps for these shapes."""
        if len(self._in_steps) >= SEEN_SHAPES:
            self._in_steps.clear()
        self._in_steps.add(tuple(shapes.items()))
