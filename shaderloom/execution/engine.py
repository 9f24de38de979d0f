"""Plans ready to run on one device: a new input shape gets a new plan, a seen one reuses it."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..model.calibration import Calibration
from ..model.feeds import ShapeKey, shape_key
from ..model.plan_source import Compiled, PlanSource
from ..model.random_inputs import random_feeds
from ..runtime.device.device import Device
from ..runtime.execution.attachment import Target
from ..runtime.execution.executor import Executor
from ..runtime.execution.ports import Feed
from ..runtime.execution.weight_pool import WeightPool
from ..runtime.memory.buffers import StagingPool
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.caps import MemoryAccount
from ..runtime.plan.errors import ClosedError, InputError

#: Concrete input shapes that are remembered with their plan
SEEN_SHAPES = 256


@dataclass
class KeyStats:
    """What one shape key cost.  Milliseconds."""

    compile_ms: float  #: from the shapes to the plan, read from the disk or compiled
    from_disk: bool
    prepare_ms: float  #: weights, pipelines, buffers
    runs: int = 0


@dataclass
class SessionStats:
    """Counts since the session was made.  ``keys`` is by shape key as text; an evicted key keeps its row."""

    hits: int = 0
    misses: int = 0
    disk_hits: int = 0  #: misses that the disk cache served
    evictions: int = 0
    compile_ms: float = 0.0  #: of all keys
    last_key: str = ""
    last_run_ms: float = 0.0
    keys: dict[str, KeyStats] = field(default_factory=dict)
    #: of the last run of a model that is not one plan: kinds of its steps, and values that went between providers
    steps: list[str] = field(default_factory=list)
    crossings: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ready:
    """A plan with its executor."""

    key: ShapeKey
    text: str  #: the key as text
    compiled: Compiled
    executor: Executor
    stats: KeyStats


class WgpuEngine:
    """Runs a source of plans on one device.  Thread-safe.

    ``plans`` are kept ready; the least recently used goes, its weights stay.  ``checked`` keeps bounds checks of
    shaders that this process has made, None only those on software drivers; all others keep them anyway.
    """

    def __init__(
        self,
        source: PlanSource,
        device: Device,
        *,
        plans: int = 16,
        checked: bool | None = None,
        use_native: bool | None = None,
    ) -> None:
        if plans < 1:
            raise InputError(f"a session keeps at least one plan, not {plans}")
        self.source = source
        self.stats = SessionStats()
        self.last: Ready | None = None
        self._wanted_checks = checked
        self.use_native = use_native
        self._limit = plans
        self._ready: OrderedDict[ShapeKey, Ready] = OrderedDict()
        self._seen: dict[tuple[tuple[str, tuple[int, ...]], ...], Ready] = {}
        self._lock = threading.RLock()
        self._closed = False
        self._assumed = False  #: the calibration rests on made-up inputs
        self._attach(device)

    def _attach(self, device: Device) -> None:
        self.device = device
        wanted = self._wanted_checks
        self.checked = device.profile.kind == "cpu" if wanted is None else wanted
        self.account = MemoryAccount(self.source.caps.device_memory)
        self.staging = StagingPool(device, self.account)
        self.pool = WeightPool(
            device,
            self.source.sources,
            self.account,
            caps=self.source.caps,
            progress=partial(self.source.progress, "loading weights"),
        )

    @property
    def closed(self) -> bool:
        return self._closed

    def run(self, feeds: Mapping[str, Feed], targets: Mapping[str, Target]) -> dict[str, Any]:
        """Outputs by name; see :meth:`Executor.run`."""
        shapes = {name: feed.shape for name, feed in feeds.items()}
        while True:
            ready = self._find(shapes, feeds)
            start = time.perf_counter()
            try:
                results = ready.executor.run(feeds, targets)
            except ClosedError:
                # Another thread's new shape may have evicted this plan in between; it is made again then.
                if self._closed or self._ready.get(ready.key) is ready:
                    raise
                continue
            self.stats.last_run_ms = (time.perf_counter() - start) * 1e3
            ready.stats.runs += 1
            return results

    def again(self, feeds: Mapping[str, Any], targets: Mapping[str, Any]) -> dict[str, Any] | None:
        """Repeat the last run if it had these very tensors in and out, which were checked then; None if not."""
        ready = self.last
        if ready is None or self._assumed:
            return None
        start = time.perf_counter()
        results = ready.executor.run_again(feeds, targets)
        if results is not None:
            stats = self.stats
            stats.hits += 1
            stats.last_run_ms = (time.perf_counter() - start) * 1e3
            ready.stats.runs += 1
        return results

    def _find(self, shapes: dict[str, tuple[int, ...]], feeds: Mapping[str, Feed]) -> Ready:
        """As :meth:`ready`; shapes that were seen are not checked again."""
        quick = tuple(shapes.items())
        with self._lock:
            if self._assumed:  # a plan that rests on made-up inputs; now there are real ones
                self.calibrate(feeds)
            ready = self._seen.get(quick)
            if ready is None:
                ready = self._seen[quick] = self.ready(shapes, feeds)
                if len(self._seen) > SEEN_SHAPES:
                    del self._seen[next(iter(self._seen))]
                return ready
            self._use(ready)
            return ready

    def ready(self, shapes: Mapping[str, Sequence[int]], feeds: Mapping[str, Feed] | None = None) -> Ready:
        """The plan for these shapes with its executor: the one that is there, or a new one.

        A new one in half precision is calibrated with ``feeds``; without them it is with random inputs until the first
        run.
        """
        key = shape_key(self.source.header, shapes, self.source.dynamic)
        with self._lock:
            if self._closed:
                raise ClosedError("the session is closed")
            ready = self._ready.get(key)
            if ready is None:
                ready = self._make(key, {name: tuple(shape) for name, shape in shapes.items()}, feeds)
                self.stats.last_key, self.last = ready.text, ready
            else:
                self._use(ready)
            return ready

    def _use(self, ready: Ready) -> None:
        self.stats.hits += 1
        self._ready.move_to_end(ready.key)
        self.stats.last_key, self.last = ready.text, ready

    def calibrate(self, feeds: Mapping[str, Feed]) -> None:
        """Look at what a run with ``feeds`` reaches; plans that now need other types are made again when asked for.

        Raises :class:`InputError` where plans do not depend on it.
        """
        calibration = self.need_calibration()
        with self._lock:
            if self._closed:
                raise ClosedError("the session is closed")
            before = calibration.option()
            self._assumed = False
            calibration.forget_assumed()
            shapes = {name: tuple(feed.shape) for name, feed in feeds.items()}
            self._measure(shape_key(self.source.header, shapes, self.source.dynamic), shapes, feeds)
            if calibration.option() != before:
                self.forget_plans()

    def need_calibration(self) -> Calibration:
        """The calibration that plans depend on; raises :class:`InputError` where there is none."""
        calibration = self.source.calibration
        if calibration is None:
            raise InputError(
                "the session has no precision to calibrate", hint="SessionOptions.precision = 'float16' asks for it"
            )
        return calibration

    def weights(self) -> WeightPool:
        """A pool of weights for plans that do not stay; its owner closes it."""
        return WeightPool(self.device, self.source.sources, self.account, caps=self.source.caps)

    def _measure(self, key: ShapeKey, shapes: Mapping[str, tuple[int, ...]], feeds: Mapping[str, Feed] | None) -> None:
        """Run the plan in full precision once, with random inputs if there are no ``feeds``."""
        from ..model.calibration import measure

        calibration = self.source.calibration
        assert calibration is not None, "plans depend on it"
        plan = self.source.compile_reference(key, shapes, self.device.profile).plan
        if feeds is None:
            arrays = random_feeds(self.source.header, shapes)
        else:
            arrays = {name: feed.numpy() if isinstance(feed, Tensor) else feed for name, feed in feeds.items()}
        pool = self.weights()  # of no use to the plans that follow
        try:
            calibration.add(measure(self.device, plan, pool, arrays), assumed=feeds is None)
        finally:
            pool.close()
        self._assumed = self._assumed or feeds is None

    def _compile(
        self, key: ShapeKey, shapes: Mapping[str, tuple[int, ...]], feeds: Mapping[str, Feed] | None
    ) -> Compiled:
        calibration = self.source.calibration
        if calibration is None:
            return self.source.compile(key, shapes, self.device.profile)
        start = time.perf_counter()
        if calibration.is_new:
            self._measure(key, shapes, feeds)
        compiled = self.source.compile(key, shapes, self.device.profile)
        precision = compiled.plan.facts.precision
        assert precision is not None, "the plan is in half precision"
        if not calibration.covers(precision.measured):
            self._measure(key, shapes, feeds)
            compiled = self.source.compile(key, shapes, self.device.profile)
        return replace(compiled, milliseconds=(time.perf_counter() - start) * 1e3)

    def forget_plans(self) -> None:
        """Make all plans again when they are asked for: the calibration has changed."""
        with self._lock:
            while self._ready:
                self._drop(self._ready.popitem()[1])
            self.last = None

    def _make(self, key: ShapeKey, shapes: Mapping[str, tuple[int, ...]], feeds: Mapping[str, Feed] | None) -> Ready:
        compiled = self._compile(key, shapes, feeds)
        while len(self._ready) >= self._limit:  # before the new one takes memory
            self._drop(self._ready.popitem(last=False)[1])
            self.stats.evictions += 1
        start = time.perf_counter()
        executor = self.executor_for(compiled)
        prepare_ms = (time.perf_counter() - start) * 1e3
        stats = KeyStats(compiled.milliseconds, compiled.from_disk, prepare_ms)
        self.stats.keys[str(key)] = stats
        self._ready[key] = ready = Ready(key, str(key), compiled, executor, stats)
        return ready

    def executor_for(self, compiled: Compiled, pool: WeightPool | None = None) -> Executor:
        """An executor of a new plan with what the session shares, counted in its statistics.

        With a ``pool`` of its own for weights it is not counted: it runs for a calibration, or to be looked at.
        """
        executor = Executor(
            self.device,
            compiled.plan,
            self.pool if pool is None else pool,
            caps=self.source.caps,
            account=self.account,
            staging=self.staging,
            checked=self.checked or compiled.from_disk,
            use_native=self.use_native,
        )
        if pool is not None:
            return executor
        self.stats.misses += 1
        self.stats.disk_hits += compiled.from_disk
        self.stats.compile_ms += compiled.milliseconds
        return executor

    def _drop(self, ready: Ready) -> None:
        for shapes in [shapes for shapes, other in self._seen.items() if other is ready]:
            del self._seen[shapes]
        ready.executor.close()

    def recover(self, device: Device) -> None:
        """Start again on another device: plans and weights of the old one are forgotten."""
        with self._lock:
            if self._closed:
                raise ClosedError("the session is closed")
            self._release()
            self._attach(device)

    def close(self) -> None:
        """Free everything on the device.  Closing twice is fine."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._release()
                self.source.close()

    def _release(self) -> None:
        for ready in self._ready.values():
            ready.executor.close()
        self._ready.clear()
        self._seen.clear()
        self.last = None
        self.pool.close()
        self.staging.close()
