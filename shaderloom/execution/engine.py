"""A model on one device: plans that are kept loaded, and the program of a model that takes several steps.

A model is a program.  Where it is a single plan for the current shapes, the program is that one step: a new shape gets
a new plan, a known one reuses its plan.  Where the compiler refuses that, the steps are chosen while they run
(:mod:`.program`).  Only :meth:`WgpuEngine._as_one_plan` decides between the two.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..model.calibration import Calibration, measure
from ..model.compiled import Compiled
from ..model.feeds import ShapeKey, shape_key
from ..model.random_inputs import random_feeds
from ..plans.placement import Placement, of_plan
from ..runtime.device.device import Device
from ..runtime.execution.attachment import Target
from ..runtime.execution.executor import Executor
from ..runtime.execution.ports import Feed
from ..runtime.execution.timing import Profile
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.errors import (
    REFUSALS,
    ClosedError,
    InputError,
    NotKnownError,
    UnsupportedError,
)
from ..runtime.plan.plan import Plan
from .calibrate import RangeObserver
from .plan_source import PlanSource
from .resources import DeviceResources, KeyStats, SessionStats
from .steps import Env, Observer, PlanStep, RunRecord
from .values import RuntimeValue

if TYPE_CHECKING:
    from ..compiler.passes.lowering import Lowering
    from ..model.model import Model
    from .program import Program

T = TypeVar("T")

#: Number of concrete input shapes cached with their plan, or as those of a program of several steps
SEEN_SHAPES = 256

#: Names and concrete shapes of the inputs, in the order of the feeds
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """A plan with its executor."""

    key: ShapeKey
    text: str  #: the key as text
    compiled: Compiled
    executor: Executor
    stats: KeyStats


class WgpuEngine:
    """Runs the plans of a source on one device.  Thread-safe.

    ``plans`` are kept loaded; the least recently used is evicted, its weights stay.  ``checked`` keeps bounds checks of
    shaders that this process has generated, None only those on software drivers; all other shaders keep them anyway.
    ``cpu_options`` are the session options of the provider cpu, which runs the nodes that the compiler refuses; None
    disables it.  ``poison`` is for tests of kernels (see :class:`Executor`).
    """

    def __init__(
        self,
        source: PlanSource,
        device: Device,
        *,
        plans: int = 16,
        checked: bool | None = None,
        use_native: bool | None = None,
        cpu_options: Mapping[str, Any] | None = None,
        poison: bool = False,
    ) -> None:
        if plans < 1:
            raise InputError(f"a session keeps at least one plan, not {plans}")
        self.source = source
        self.model: Model | None = source.as_model()
        self.cpu_options = cpu_options
        self.stats = SessionStats()
        self.last: Ready | None = None  #: the plan that ran last
        self._always_in_steps = source.header.refused > 0
        self.ran_steps = self._always_in_steps  #: the latest run takes several steps, or every run does
        self._limit = plans
        self._ready: OrderedDict[ShapeKey, Ready] = OrderedDict()
        self._seen: dict[Shapes, Ready] = {}
        self._in_steps: set[Shapes] = set()  #: input shapes for which the model is no single plan
        self._program: Program | None = None
        self._lock = threading.RLock()
        self._closed = False
        self._assumed = False  #: the calibration is based on random inputs

        def attach(device: Device) -> DeviceResources:
            keep_checks = device.profile.kind == "cpu" if checked is None else checked
            return DeviceResources(
                source,
                device,
                self.stats,
                checked=keep_checks,
                use_native=use_native,
                poison=poison,
            )

        self._attach = attach
        self.resources = attach(device)

    @property
    def device(self) -> Device:
        return self.resources.device

    # -- runs --------------------------------------------------------------------------------------------------------

    def run(self, feeds: Mapping[str, Feed], targets: Mapping[str, Target]) -> dict[str, Any]:
        """Return outputs by name; see :meth:`Executor.run`."""
        shapes = self._shapes_of(feeds)
        while True:
            ready = self._as_one_plan(self._find, shapes, feeds)
            if ready is None:
                return self._run_steps(feeds, targets, RunRecord())
            self.ran_steps = False
            start = time.perf_counter()
            try:
                results = ready.executor.run(feeds, targets)
            except ClosedError:
                # Another thread's new shape may have evicted this plan in between; it is rebuilt then.
                if self._closed or self._ready.get(ready.key) is ready:
                    raise
                continue
            self.stats.last_run_ms = (time.perf_counter() - start) * 1e3
            ready.stats.runs += 1
            return results

    def try_replay(self, feeds: Mapping[str, Any], targets: Mapping[str, Any]) -> dict[str, Any] | None:
        """Replay the last run if its inputs and outputs were these tensors, checked then; return None otherwise."""
        ready = self.last
        if ready is None or self._assumed or self.ran_steps:
            return None
        start = time.perf_counter()
        results = ready.executor.try_replay(feeds, targets)
        if results is not None:
            stats = self.stats
            stats.hits += 1
            stats.last_run_ms = (time.perf_counter() - start) * 1e3
            ready.stats.runs += 1
        return results

    def profile(self, feeds: Mapping[str, Feed]) -> list[tuple[Plan, Profile]]:
        """Run once and return the executed plans, in order, with the time of every call.  A loop adds one entry per
        step.
        """
        measured: list[tuple[Plan, Profile]] = []
        self._record(feeds, {}, RunRecord(measured=measured))
        return measured

    def observe(self, feeds: Mapping[str, Feed], observer: Observer) -> dict[str, Any]:
        """Run once under ``observer`` and return the outputs, on the host."""
        return self._record(feeds, self._all_outputs(), RunRecord(observer=observer))

    def _all_outputs(self) -> dict[str, Target]:
        return {port.name: "cpu" for port in self.source.header.outputs}

    def _record(self, feeds: Mapping[str, Feed], targets: Mapping[str, Target], record: RunRecord) -> dict[str, Any]:
        """Run the model, in one or several steps, and record what is executed."""
        shapes = self._shapes_of(feeds)
        ready = self._as_one_plan(self._find, shapes, feeds)
        if ready is None:
            return self._run_steps(feeds, targets, record)
        self.ran_steps = False
        step = PlanStep(ready.executor, dict.fromkeys(targets), self.device, partial(self._recompile, shapes))
        env: Env = {name: RuntimeValue(feed, "caller") for name, feed in feeds.items()}
        step.run(env, targets, record)
        if record.observer is not None:
            record.observer.after_step(step, {name: env[name] for name in targets}, ())
        return {name: env[name].read() for name in targets}

    def _recompile(self, shapes: Mapping[str, tuple[int, ...]], disabled: Sequence[str]) -> Lowering:
        """Compile the plan for these shapes with further passes disabled."""
        from ..compiler.driver import compile_unit

        assert self.model is not None, "plans of a bundle are not made again"
        return compile_unit(self.model.unit(shapes), self.model.compilation(self.device.profile).without(disabled))

    def _shapes_of(self, feeds: Mapping[str, Feed]) -> dict[str, tuple[int, ...]]:
        """Return the shapes that choose a plan; none for a program of several steps, whose feeds may be sequences."""
        return {} if self._always_in_steps else {name: feed.shape for name, feed in feeds.items()}

    # -- one step or several -------------------------------------------------------------------------------------------

    def _as_one_plan(
        self, get: Callable[[Any, Any], T], shapes: Mapping[str, tuple[int, ...]], feeds: Mapping[str, Feed] | None
    ) -> T | None:
        """Return the result of ``get`` for the plan of these shapes; None where the model is a program of several
        steps.

        Raises what the compiler raises where several steps would not help either.
        """
        if self._always_in_steps:
            return None
        key = tuple(shapes.items()) if self._in_steps else None
        if key in self._in_steps:
            return None
        try:
            return get(shapes, feeds)
        except REFUSALS as error:
            helps = self.cpu_options is not None or isinstance(error, (NotKnownError, UnsupportedError))
            if self.model is None or not helps:
                raise
        if len(self._in_steps) >= SEEN_SHAPES:
            self._in_steps.clear()
        self._in_steps.add(tuple(shapes.items()))
        return None

    def _run_steps(self, feeds: Mapping[str, Feed], targets: Mapping[str, Target], record: RunRecord) -> dict[str, Any]:
        if self._closed:
            raise ClosedError("the session is closed")
        self.ran_steps = True
        start = time.perf_counter()
        results = self.program.run(feeds, targets, record)
        self.stats.last_run_ms = (time.perf_counter() - start) * 1e3
        self.stats.steps, self.stats.crossings = record.steps, record.crossings
        return results

    @property
    def program(self) -> Program:
        """The program of several steps; created on first access."""
        from .program import Program

        with self._lock:
            if self._program is None:
                assert self.model is not None, "a bundle is one plan for each of its shapes"
                self._program = Program(
                    self.model, self.resources, self.cpu_options, plans=self._limit, calibrate=self.calibrate
                )
            return self._program

    def plans(self) -> list[Plan]:
        """Return the plans of the last run: one, or the program's loaded plans in the order of last use."""
        if self.ran_steps:
            return self.program.plans()
        return [] if self.last is None else [self.last.compiled.plan]

    def placement(self) -> list[Placement]:
        """Return where each node of the model last ran, or would run for the declared shapes, and why.

        Raises :class:`InputError` before the first run of a model that does not declare all sizes, and
        :class:`UnsupportedError` for a bundle.
        """
        if self.model is None:
            raise UnsupportedError(
                "a bundle does not hold the model's nodes", hint="inspect shows what its plans compute"
            )
        ready = self.last
        if not self.ran_steps and ready is None:
            shapes = self.shapes(None)
            ready = self._as_one_plan(self.ready, shapes, None)
        if self.ran_steps or ready is None:
            return self.program.placement()
        return of_plan(self.model.imported, ready.compiled.plan)

    # -- plans by shape key --------------------------------------------------------------------------------------------

    def shapes(self, shapes: Mapping[str, Sequence[int]] | None) -> dict[str, tuple[int, ...]]:
        """Return ``shapes``, or for None the declared ones; raise :class:`InputError` if the model does not declare
        them.
        """
        if shapes is None:
            shapes = self.source.default_shapes()
        if shapes is None:
            raise InputError(
                "the model does not declare all input sizes as numbers", hint="give the shapes of the inputs"
            )
        return {name: tuple(shape) for name, shape in shapes.items()}

    def select(self, shapes: Mapping[str, Sequence[int]] | None) -> Ready:
        """Return the plan for ``shapes``; for None the one that ran last, or the one for the declared shapes."""
        if shapes is None and self.last is not None:
            return self.last
        return self.ready(self.shapes(shapes))

    def ready(self, shapes: Mapping[str, Sequence[int]], feeds: Mapping[str, Feed] | None = None) -> Ready:
        """Return the plan for these shapes with its executor: the loaded one, or a new one.

        A new plan in half precision is calibrated with ``feeds``; without them with random inputs until the first run.
        Raises the compiler's refusals for a model that is no single plan.
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

    def _find(self, shapes: dict[str, tuple[int, ...]], feeds: Mapping[str, Feed]) -> Ready:
        """Return the plan for a run, as :meth:`ready` does, without checking known shapes again."""
        quick = tuple(shapes.items())
        with self._lock:
            if self._assumed:  # the plan is based on random inputs; now there are real ones
                self.calibrate(feeds)
            ready = self._seen.get(quick)
            if ready is None:
                ready = self._seen[quick] = self.ready(shapes, feeds)
                if len(self._seen) > SEEN_SHAPES:
                    del self._seen[next(iter(self._seen))]
                return ready
            self._use(ready)
            return ready

    def _use(self, ready: Ready) -> None:
        self.stats.hits += 1
        self._ready.move_to_end(ready.key)
        self.stats.last_key, self.last = ready.text, ready

    def _make(self, key: ShapeKey, shapes: Mapping[str, tuple[int, ...]], feeds: Mapping[str, Feed] | None) -> Ready:
        compiled = self._compile(key, shapes, feeds)
        while len(self._ready) >= self._limit:  # before the new one allocates memory
            self._drop(self._ready.popitem(last=False)[1])
            self.stats.evictions += 1
        start = time.perf_counter()
        executor = self.resources.executor(compiled)
        prepare_ms = (time.perf_counter() - start) * 1e3
        stats = KeyStats(compiled.milliseconds, compiled.from_disk, prepare_ms)
        self.stats.keys[str(key)] = stats
        self._ready[key] = ready = Ready(key, str(key), compiled, executor, stats)
        return ready

    def _compile(
        self, key: ShapeKey, shapes: Mapping[str, tuple[int, ...]], feeds: Mapping[str, Feed] | None
    ) -> Compiled:
        calibration = None if self.model is None else self.model.calibration
        if calibration is None:
            return self.source.compile(key, shapes, self.device.profile)
        start = time.perf_counter()
        if calibration.is_new:
            self._take_in(self._measure_plan(shapes, feeds), assumed=feeds is None)
        compiled = self.source.compile(key, shapes, self.device.profile)
        precision = compiled.plan.facts.precision
        assert precision is not None, "the plan is in half precision"
        if not calibration.covers(precision.measured):
            self._take_in(self._measure_plan(shapes, feeds), assumed=feeds is None)
            compiled = self.source.compile(key, shapes, self.device.profile)
        return replace(compiled, milliseconds=(time.perf_counter() - start) * 1e3)

    def _drop(self, ready: Ready) -> None:
        for shapes in [shapes for shapes, other in self._seen.items() if other is ready]:
            del self._seen[shapes]
        ready.executor.close()

    # -- half precision ------------------------------------------------------------------------------------------------

    def calibrate(self, feeds: Mapping[str, Feed]) -> None:
        """Record the magnitudes of a run with ``feeds``; plans that now need other types are rebuilt on their next use.

        Raises :class:`InputError` where plans do not depend on calibration.
        """
        calibration = self._calibration
        with self._lock:
            if self._closed:
                raise ClosedError("the session is closed")
            before = calibration.option()
            self._assumed = False
            calibration.forget_assumed()
            shapes = {name: tuple(feed.shape) for name, feed in feeds.items()}
            magnitudes = self._as_one_plan(self._measure_plan, shapes, feeds)
            self._take_in(self._measure_steps(feeds) if magnitudes is None else magnitudes, assumed=False)
            if calibration.option() != before:
                while self._ready:
                    self._drop(self._ready.popitem()[1])
                self.last = None

    @property
    def _calibration(self) -> Calibration:
        calibration = None if self.model is None else self.model.calibration
        if calibration is None:
            raise InputError(
                "the session has no precision to calibrate", hint="set SessionOptions.precision = 'float16'"
            )
        return calibration

    def _take_in(self, magnitudes: Mapping[str, float], *, assumed: bool) -> None:
        """Add the magnitudes of a run; ``assumed``: its inputs were random."""
        self._calibration.add(magnitudes, assumed=assumed)
        self._assumed = self._assumed or assumed

    def _measure_plan(
        self, shapes: Mapping[str, tuple[int, ...]], feeds: Mapping[str, Feed] | None
    ) -> dict[str, float]:
        """Run the plan in full precision once, on random inputs without ``feeds``, and return its magnitudes."""
        assert self.model is not None, "plans depend on a calibration"
        key = shape_key(self.source.header, shapes, self.source.dynamic)
        plan = self.model.compile_reference(key, shapes, self.device.profile).plan
        if feeds is None:
            arrays = random_feeds(self.source.header, shapes)
        else:
            arrays = {name: feed.numpy() if isinstance(feed, Tensor) else feed for name, feed in feeds.items()}
        pool = self.resources.weights()  # later plans do not use it
        try:
            return measure(self.device, plan, pool, arrays)
        finally:
            pool.close()

    def _measure_steps(self, feeds: Mapping[str, Feed]) -> dict[str, float]:
        """Run the program in full precision once and return its magnitudes; its weights are freed afterwards."""
        from .program import Program

        assert self.model is not None, "plans depend on a calibration"
        pool = self.resources.weights()
        reference = Program(self.model, self.resources, self.cpu_options, pool=pool)
        ranges = RangeObserver(pool)
        try:
            reference.run(feeds, self._all_outputs(), RunRecord(observer=ranges))
        finally:
            reference.close()
            pool.close()
        return ranges.magnitudes

    # -- the end -------------------------------------------------------------------------------------------------------

    def recover(self, device: Device) -> None:
        """Restart on another device and discard plans and weights of the old one."""
        self._close_program()
        with self._lock:
            if self._closed:
                raise ClosedError("the session is closed")
            self._release()
            self.resources = self._attach(device)

    def close(self) -> None:
        """Free everything on the device.  Closing twice has no effect."""
        self._close_program()
        with self._lock:
            if not self._closed:
                self._closed = True
                self._release()
                self.source.close()

    def _close_program(self) -> None:
        """Wait for a running program, without the lock, which it may need for a calibration."""
        with self._lock:
            program, self._program = self._program, None
        if program is not None:
            program.close()

    def _release(self) -> None:
        for ready in self._ready.values():
            ready.executor.close()
        self._ready.clear()
        self._seen.clear()
        self.last = None
        self.resources.close()
