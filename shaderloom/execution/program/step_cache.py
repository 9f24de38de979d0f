"""Cache of a program's steps, by state and by a description of the values: bounded, least recently used out first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ...plans.placement import Placed
from ...runtime.plan.record import record
from ..plan_bound import PlanBound, Reloads
from ..steps import PlanStep, Step
from .state import State

#: Steps cached per cached plan, and bytes of the elements in keys
STEPS = 8
KEY_BYTES = 64 << 20


@record
class NextStep:
    """A step, the state after it, and the placements of the nodes that it computes."""

    step: Step
    following: State
    placed: Placed


@record
class CachedStep:
    """A step with the state after it, and the bytes of elements in its key."""

    next: NextStep
    bytes: int

    @property
    def step(self) -> Step:
        return self.next.step


class StepCache:
    """Steps by (state, key): as many plans as ``bound`` allows, and at most :data:`STEPS` times as many in all.

    The newest step always stays.  An evicted step is closed, and rebuilt when its state is reached again.
    """

    def __init__(self, bound: PlanBound, *, key_bytes: int = KEY_BYTES) -> None:
        self._bound = bound
        self._most = bound.most * STEPS
        self._key_bytes = key_bytes
        self._entries: OrderedDict[tuple[State, Any], CachedStep] = OrderedDict()
        self._held = 0  #: bytes in keys
        self._reloads = Reloads(bound.most)
        self._dropped: set[int] = set()  #: hashes of the keys of evicted plans
        self.evicted = 0  #: evicted plans

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """Bytes of elements in the keys."""
        return self._held

    def find(self, state: State, key: Any) -> NextStep | None:
        entry = self._entries.get((state, key))
        if entry is None:
            return None
        self._entries.move_to_end((state, key))
        return entry.next

    def keep(self, state: State, key: Any, step: NextStep) -> None:
        """Store a new step and evict older ones until all limits hold."""
        entry = CachedStep(step, sum(_element_bytes(part) for part in key))
        self._entries[state, key] = entry
        self._held += entry.bytes
        while len(self._entries) > 1 and (len(self._entries) > self._most or self._held > self._key_bytes):
            self._drop(next(iter(self._entries)))
        if isinstance(step.step, PlanStep):
            plans = [key for key, stored in self._entries.items() if isinstance(stored.step, PlanStep)]
            for old in plans[: self._bound.excess(each.executor.device_bytes for each in self.plans())]:
                self._drop(old)
            if hash((state, key)) in self._dropped:
                self._reloads.add()

    def plans(self) -> list[PlanStep]:
        """Return the steps that are plans, the least recently used first."""
        return [entry.step for entry in self._entries.values() if isinstance(entry.step, PlanStep)]

    def close(self) -> None:
        """Close all steps and forget them."""
        for entry in self._entries.values():
            entry.step.close()
        self._entries.clear()
        self._held = 0

    def _drop(self, key: tuple[State, Any]) -> None:
        entry = self._entries.pop(key)
        self._held -= entry.bytes
        if isinstance(entry.step, PlanStep):
            self.evicted += 1
            self._dropped.add(hash(key))
        entry.step.close()


def _element_bytes(part: tuple[str, tuple[Any, ...]]) -> int:
    """Return the bytes of the elements in a part of a key: a name with :meth:`~.values.RuntimeValue.describe`."""
    return sum(len(each) for each in part[1] if isinstance(each, bytes))
