"""Plans that stay loaded on the device of a session, by shape key."""

from __future__ import annotations

from collections import OrderedDict

from ..model.compiled import CompiledPlan
from ..model.feeds import ShapeKey
from ..runtime.execution.executor import Executor
from ..runtime.plan.record import record
from .one_plan import SEEN_SHAPES, Shapes
from .plan_bound import PlanBound, Reloads
from .resources import DeviceResources, KeyStats


@record
class LoadedPlan:
    """A plan with its executor."""

    key: ShapeKey
    text: str  #: the key as text
    compiled: CompiledPlan
    executor: Executor
    stats: KeyStats

    @property
    def states(self) -> tuple[str, ...]:
        """Outputs that begin as inputs, of which the plan writes a part."""
        return tuple(state.output for state in self.compiled.plan.states)


class LoadedPlans:
    """Plans with their executors; the least recently used is evicted, its weights stay.

    A run finds its plan by its concrete shapes, which were checked when they were new, without computing a key.  Not
    thread-safe: the engine's lock guards it.
    """

    def __init__(self, resources: DeviceResources, limit: int) -> None:
        self._bound = PlanBound.of(limit)
        self._reloads = Reloads(limit)
        self.last: LoadedPlan | None = None  #: the plan that was used last
        self._resources = resources
        self._stats = resources.stats
        self._ready: OrderedDict[ShapeKey, LoadedPlan] = OrderedDict()
        self._seen: dict[Shapes, LoadedPlan] = {}

    def __contains__(self, ready: LoadedPlan) -> bool:
        return self._ready.get(ready.key) is ready

    def find(self, key: ShapeKey) -> LoadedPlan | None:
        """Return the plan of a key for its next use, None if it is not loaded."""
        return self._use(self._ready.get(key))

    def find_seen(self, shapes: Shapes) -> LoadedPlan | None:
        """Return the plan that was noted for these shapes, for its next use; None if there is none."""
        return self._use(self._seen.get(shapes))

    def _use(self, ready: LoadedPlan | None) -> LoadedPlan | None:
        if ready is not None:
            self._stats.hits += 1
            self._ready.move_to_end(ready.key)
            self._stats.last_key, self.last = ready.text, ready
        return ready

    def note(self, shapes: Shapes, ready: LoadedPlan) -> None:
        """Note the plan of concrete shapes for :meth:`find_seen`."""
        self._seen[shapes] = ready
        if len(self._seen) > SEEN_SHAPES:
            del self._seen[next(iter(self._seen))]

    def load(self, key: ShapeKey, compiled: CompiledPlan) -> LoadedPlan:
        """Load a new plan on the device; evict others beyond the limit."""
        sizes = (ready.executor.device_bytes for ready in self._ready.values())
        for _ in range(self._bound.excess((*sizes, 0))):  # before the new one allocates memory
            self._drop(self._ready.popitem(last=False)[1])
            self._stats.evictions += 1
        if str(key) in self._stats.keys:
            self._reloads.add()
        executor, stats = self._resources.load(compiled, is_range=key.is_range)
        self._stats.add(str(key), stats)
        self._ready[key] = ready = LoadedPlan(key, str(key), compiled, executor, stats)
        self._stats.last_key, self.last = ready.text, ready
        return ready

    def drop(self, ready: LoadedPlan) -> None:
        """Drop a plan that a better one will replace."""
        del self._ready[ready.key]
        self._drop(ready)
        if self.last is ready:
            self.last = None

    def _drop(self, ready: LoadedPlan) -> None:
        for shapes in [shapes for shapes, other in self._seen.items() if other is ready]:
            del self._seen[shapes]
        ready.executor.close()

    def clear(self) -> None:
        """Drop all plans."""
        while self._ready:
            self._drop(self._ready.popitem()[1])
        self.last = None
