"""Bound of the plans that stay loaded on a device, by number and by bytes, and the warning where it is too tight."""

from __future__ import annotations

from collections.abc import Iterable

from ..notices import notify
from ..runtime.plan.errors import InputError
from ..runtime.plan.record import record

#: Plans that a session keeps unless its caller says otherwise
DEFAULT_PLANS = 64
#: The most recently used plans that stay loaded whatever their size
LEAST_PLANS = 16
#: Bytes of activations, inputs and outputs beyond which no more than those stay
PLAN_BYTES = 1 << 30
#: Plans that are loaded again after an eviction, until a warning says so
RELOADS = 8


@record
class PlanBound:
    """At most ``most`` plans; more than ``least`` only while all take at most ``bytes`` together."""

    most: int
    least: int
    bytes: int = PLAN_BYTES

    @classmethod
    def of(cls, plans: int, each: int = 1) -> PlanBound:
        """Return the bound for ``plans`` plans of ``each`` parts; raise :class:`InputError` for none."""
        if plans < 1:
            raise InputError(f"a session keeps at least one plan, not {plans}")
        return cls(plans * each, min(plans, LEAST_PLANS) * each)

    def excess(self, sizes: Iterable[int]) -> int:
        """Return how many plans to evict, by the bytes of each, the least recently used first."""
        plans = list(sizes)
        total, count = sum(plans), 0
        while len(plans) - count > self.least and (len(plans) - count > self.most or total > self.bytes):
            total -= plans[count]
            count += 1
        return count


class Reloads:
    """Counts the plans that are loaded again after an eviction, and warns once where there are many."""

    def __init__(self, plans: int) -> None:
        self._plans = plans
        self._count = 0

    def add(self) -> None:
        """Count a plan that was loaded before."""
        self._count += 1
        if self._count == RELOADS:
            notify(
                f"the shapes of the inputs change between more sizes than plans stay loaded ({self._plans} at most, "
                f"beyond {LEAST_PLANS} in {PLAN_BYTES >> 20} MiB): {RELOADS} plans had to be loaded again; keep more "
                "with plans=..., or declare a dimension, so that one plan serves them: "
                'dynamic={"name": (low, high)} of a session, --dynamic where a bundle is compiled',
                once="plans are loaded again",
            )
