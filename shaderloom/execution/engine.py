"""A model on one device: plans that are kept loaded, and the program of a model that takes several steps.

A model is a program.  Where it is a single plan for the current shapes, the program is that one step: a new shape gets
a new plan, a known one reuses its plan (:mod:`.shape_plans`).  Where the compiler refuses that, the steps are chosen
while they run (:mod:`.program`).  :mod:`.one_plan` decides between the two; :mod:`.calibrate` measures what plans in
half precision depend on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..cache.writing import begin_writing
from ..model.feeds import ShapeKey
from ..model.size_memory import describe_declared
from ..plans.placement import Placement, of_plan
from ..runtime.device.device import Device
from ..runtime.device.forking import is_forked, refuse_forked_process
from ..runtime.execution.attachment import Target
from ..runtime.execution.ports import Feed
from ..runtime.execution.timing import Profile
from ..runtime.plan.errors import ClosedError, DeviceError, DeviceLimitError, UnsupportedError
from ..runtime.plan.plan import Plan
from .calibrate import Calibrator, nothing_to_calibrate
from .loaded_plans import LoadedPlan
from .one_plan import OnePlanDecision
from .overflow import OverflowWatch
from .plan_bound import DEFAULT_PLANS
from .plan_source import PlanSource, requested_shapes
from .resources import DeviceResources
from .shape_plans import ShapePlans
from .steps import Env, Observer, PlanStep, RunRecord, StepProgram, host_targets
from .values import RuntimeValue

if TYPE_CHECKING:
    from ..compiler.passes.lowering import Lowering
    from ..model.model import Model
    from .program import Program

T = TypeVar("T")


class WgpuEngine:
    """Runs the plans of a source on one device.  Thread-safe.

    ``plans`` are kept loaded (:mod:`.plan_bound`); the least recently used is evicted, its weights stay.
    ``cpu_options`` are the session options of the provider cpu, which runs the nodes that the compiler refuses; None
    disables it.  ``open_program`` gives the program of a source that is no model.  The other options are those of
    :class:`DeviceResources`.
    """

    def __init__(
        self,
        source: PlanSource,
        device: Device,
        *,
        plans: int = DEFAULT_PLANS,
        checked: bool | None = None,
        use_native: bool | None = None,
        cpu_options: Mapping[str, Any] | None = None,
        poison: bool = False,
        open_program: Callable[[DeviceResources], StepProgram] | None = None,
    ) -> None:
        self.source = source
        self.model: Model | None = source.as_model()
        self.cpu_options = cpu_options
        self.resources = DeviceResources(source, device, checked=checked, use_native=use_native, poison=poison)
        self.stats = self.resources.stats
        if self.model is not None:
            self.stats.refused_ranges = self.model.sizes.refusals
        self._open_program = open_program
        self._decision = OnePlanDecision(source, has_steps=self.model is not None or open_program is not None)
        calibration = None if self.model is None else self.model.calibration
        self._calibrator: Calibrator | None = None  #: None where plans do not depend on magnitudes
        if self.model is not None and calibration is not None:
            self._calibrator = Calibrator(self.model, calibration, self.resources)
        self._plans = ShapePlans(source, self.resources, self._calibrator, plans)
        self.ran_steps = self._decision.never  #: the latest run takes several steps, or every run does
        self.watch = OverflowWatch(source.header, self.resources)
        self._limit = plans
        self._program: StepProgram | None = None
        self._lock = threading.RLock()
        self._closed = False

    @property
    def device(self) -> Device:
        return self.resources.device

    @property
    def last(self) -> LoadedPlan | None:
        """The plan that was used last."""
        return self._plans.loaded.last

    def describe_sizes(self) -> dict[str, Any]:
        """Return how sizes that keep changing are compiled; see :meth:`SizeMemory.describe`."""
        return describe_declared(self.source.dynamic) if self.model is None else self.model.sizes.describe()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the session is closed")

    # -- runs --------------------------------------------------------------------------------------------------------

    def run(self, feeds: Mapping[str, Feed], targets: Mapping[str, Target]) -> dict[str, Any]:
        """Return outputs by name; see :meth:`Executor.run`.

        A run whose outputs are not finite may be repeated; see :class:`OverflowWatch`.
        """
        refuse_forked_process()  # before a lock that another thread may have held when the process was forked
        if self.has_halves:
            self.watch.before(self.calibrate, feeds, targets)
        results = self._run(feeds, targets)
        if self.must_repeat(feeds, targets, results):
            results = self._run(feeds, targets)
            self.watch.after_repetition(feeds, results)
        begin_writing()
        return results

    def must_repeat(self, feeds: Mapping[str, Feed], targets: Mapping[str, Target], results: Mapping[str, Any]) -> bool:
        """Return whether a run with these ``results`` was calibrated because of them and is to be repeated."""
        if not self.has_halves:
            return False
        last = None if self.ran_steps else self.last
        plan, states = (None, ()) if last is None else (last.text, last.states)
        return self.watch.must_repeat(self.calibrate, plan, feeds, targets, results, states)

    def _run(self, feeds: Mapping[str, Feed], targets: Mapping[str, Target]) -> dict[str, Any]:
        shapes = self._shapes_of(feeds)
        while True:
            ready = self._as_one_plan(self._find, shapes, feeds)
            if ready is None:
                return self._run_steps(feeds, targets, RunRecord())
            start = time.perf_counter()
            try:
                results = ready.executor.run(feeds, targets)
            except ClosedError:
                # Another thread's new shape may have evicted this plan in between; it is rebuilt then.
                if self._closed or ready in self._plans.loaded:
                    raise
                continue
            except DeviceLimitError:
                # A plan for many sizes meets a limit at this one, whose own plan may read large tensors in parts; in
                # steps nodes are refused for it, and run on cpu.
                if self.model is None or not (ready.key.is_range or self.cpu_options is not None):
                    raise
                if ready.key.is_range:
                    self._as_one_plan(partial(self._load_own, alone=True), shapes, feeds)
                else:
                    self._decision.take_steps(shapes)
                continue
            calls = len(ready.compiled.plan.calls)
            self._note_run(start, RunRecord(["wgpu"] if calls else [], calls))
            self.ran_steps = False
            ready.stats.runs += 1
            return results

    def use_own_plan(self, shapes: dict[str, tuple[int, ...]], feeds: Mapping[str, Feed]) -> None:
        """Let runs of these shapes use a plan for them alone, not one for a range of sizes."""
        with self._lock:
            self._check_open()
            if self._plans.loaded.find_seen(tuple(shapes.items())) is None:
                self._as_one_plan(self._load_own, shapes, feeds)

    def _load_own(
        self, shapes: Mapping[str, tuple[int, ...]], feeds: Mapping[str, Feed], *, alone: bool = False
    ) -> LoadedPlan:
        """Return the plan of these shapes, loaded for the next run in place of one for a range of open sizes.

        It serves declared ranges, unless it is for these sizes ``alone``.
        """
        key = self.source.key(shapes)
        if alone:
            key = key.at_sizes(shapes)
        with self._lock:
            ready = self._plans.own(key, shapes, feeds)
            self._plans.loaded.note(tuple(shapes.items()), ready)
            return ready

    def _note_run(self, start: float, record: RunRecord) -> None:
        stats = self.stats
        stats.last_run_ms = (time.perf_counter() - start) * 1e3
        stats.steps, stats.calls, stats.crossings = record.steps, record.calls, record.crossings

    def try_replay(self, feeds: Mapping[str, Any], targets: Mapping[str, Any]) -> dict[str, Any] | None:
        """Replay the last run if its inputs and outputs were these tensors, checked then; return None otherwise."""
        ready = self.last
        if ready is None or self.ran_steps or self._is_assumed:
            return None
        behind = None
        if self.has_halves:
            self.watch.poll()
            if self.watch.waits:
                return None
            behind = self.watch.behind(ready.states)
        start = time.perf_counter()
        results = ready.executor.try_replay(feeds, targets, behind)
        if results is not None:
            if behind is not None:
                self.watch.count()
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
        return self._record(feeds, host_targets(self.source.header), RunRecord(observer=observer))

    def _record(self, feeds: Mapping[str, Feed], targets: Mapping[str, Target], record: RunRecord) -> dict[str, Any]:
        """Run the model, in one or several steps, and record what is executed."""
        shapes = self._shapes_of(feeds)
        ready = self._as_one_plan(self._find, shapes, feeds)
        if ready is None:
            return self._run_steps(feeds, targets, record)
        self.ran_steps = False
        recompile = partial(_recompile, self.model, self.device, shapes, ready.key)
        step = PlanStep(ready.executor, dict.fromkeys(targets), self.device, recompile)
        env: Env = {name: RuntimeValue(feed, "caller") for name, feed in feeds.items()}
        step.run(env, targets, record)
        if record.observer is not None:
            record.observer.after_step(step, {name: env[name] for name in targets}, ())
        return {name: env[name].read() for name in targets}

    def _shapes_of(self, feeds: Mapping[str, Feed]) -> dict[str, tuple[int, ...]]:
        """Return the shapes that choose a plan; none for a program of several steps, whose feeds may be sequences."""
        return {} if self._decision.never else {name: feed.shape for name, feed in feeds.items()}

    # -- one step or several -------------------------------------------------------------------------------------------

    def _as_one_plan(
        self, get: Callable[[Any, Any], T], shapes: Mapping[str, tuple[int, ...]], feeds: Mapping[str, Feed] | None
    ) -> T | None:
        """Return the result of ``get`` for the plan of these shapes; None for a program of several steps."""
        result = self._decision.attempt(get, shapes, feeds, has_cpu=self.cpu_options is not None)
        if result is None and not self._decision.never:
            self.source.key(shapes)  # which nothing else has checked
        return result

    def _run_steps(self, feeds: Mapping[str, Feed], targets: Mapping[str, Target], record: RunRecord) -> dict[str, Any]:
        self._check_open()
        self.ran_steps = True
        start = time.perf_counter()
        results = self._steps.run(feeds, targets, record)
        self._note_run(start, record)
        return results

    @property
    def _steps(self) -> StepProgram:
        """The program of several steps; created on first access."""
        with self._lock:
            if self._program is None:
                create = self._open_program or self._program_of_model
                self._program = create(self.resources)
            return self._program

    @property
    def program(self) -> Program:
        """The program of a model, whose steps are chosen while they run."""
        from .program import Program

        program = self._steps
        assert isinstance(program, Program), "the steps of a bundle were chosen when it was compiled"
        return program

    def _program_of_model(self, resources: DeviceResources) -> Program:
        from .program import Program

        assert self.model is not None, "what is no model has a program of its own"
        return Program(self.model, resources, self.cpu_options, plans=self._limit, calibrate=self.calibrate)

    def plans(self) -> list[Plan]:
        """Return the plans of the last run: one, or the program's loaded plans in the order of last use."""
        if self.ran_steps:
            return self._steps.plans()
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
            shapes = requested_shapes(self.source, None)
            ready = self._as_one_plan(self.ready, shapes, None)
        if self.ran_steps or ready is None:
            return self.program.placement()
        return of_plan(self.model.imported, ready.compiled.plan)

    # -- what leaves the range of halves -------------------------------------------------------------------------------

    @property
    def has_halves(self) -> bool:
        """Whether the plans of the last run store tensors as halves that another calibration might keep in float32."""
        if self._calibrator is None:
            return False
        if self._calibrator.half:
            return True
        if self.ran_steps:
            return any(plan.facts.declares_halves for plan in self.program.plans())
        return self.last is not None and self.last.compiled.plan.facts.declares_halves

    # -- plans by shape key --------------------------------------------------------------------------------------------

    def select(self, shapes: Mapping[str, Sequence[int]] | None) -> LoadedPlan:
        """Return the plan for ``shapes``; for None the one that ran last, or the one for the declared shapes."""
        if shapes is None and self.last is not None:
            return self.last
        return self.ready(requested_shapes(self.source, shapes))

    def prepare(self, shapes: Mapping[str, Sequence[int]] | None) -> bool:
        """Compile the plan for ``shapes``, or the declared ones; return False for a program of several steps."""
        return self._as_one_plan(self.ready, requested_shapes(self.source, shapes), None) is not None

    def ready(self, shapes: Mapping[str, Sequence[int]], feeds: Mapping[str, Feed] | None = None) -> LoadedPlan:
        """Return the plan for these shapes with its executor: the loaded one, or a new one.

        A new plan in half precision is calibrated with ``feeds``; without them with random inputs until the first run.
        Raises the compiler's refusals for a model that is no single plan.
        """
        key = self.source.key(shapes)
        with self._lock:
            self._check_open()
            return self._plans.ready(key, shapes, feeds)

    def _find(self, shapes: dict[str, tuple[int, ...]], feeds: Mapping[str, Feed]) -> LoadedPlan:
        """Return the plan for a run, as :meth:`ready` does, without checking known shapes again."""
        quick = tuple(shapes.items())
        with self._lock:
            if self._is_assumed:  # the plan is based on random inputs; now there are real ones
                self.calibrate(feeds)
            ready = self._plans.loaded.find_seen(quick)
            if ready is None:
                ready = self.ready(shapes, feeds)
                self._plans.loaded.note(quick, ready)
            return ready

    # -- half precision ------------------------------------------------------------------------------------------------

    @property
    def _is_assumed(self) -> bool:
        return self._calibrator is not None and self._calibrator.is_assumed

    def calibrate(self, feeds: Mapping[str, Feed]) -> bool:
        """Record the magnitudes of a run with ``feeds``; plans that now need other types are rebuilt on their next use.

        Return whether there may be such plans.  Raises :class:`InputError` where plans do not depend on calibration.
        """
        calibrator = self._calibrator
        if calibrator is None:
            raise nothing_to_calibrate()
        shapes = {name: tuple(feed.shape) for name, feed in feeds.items()}

        def measure_run() -> dict[str, float]:
            magnitudes = self._as_one_plan(calibrator.measure_plan, shapes, feeds)
            return calibrator.measure_steps(feeds, self.cpu_options) if magnitudes is None else magnitudes

        with self._lock:
            self._check_open()
            is_new = calibrator.renew(measure_run)
            if is_new:
                self._plans.loaded.clear()
            return is_new

    # -- the end -------------------------------------------------------------------------------------------------------

    def recover(self, device: Device) -> None:
        """Restart on another device and discard plans and weights of the old one."""
        self._close_program()
        self.watch.reset()
        with self._lock:
            self._check_open()
            self._plans.loaded.clear()
            self.resources.move_to(device)

    def synchronize(self) -> None:
        """Wait until the device has finished what was submitted."""
        self.device.wait()
        self.watch.report()

    def close(self) -> None:
        """Free everything on the device.  Closing twice has no effect, nor has closing in a forked child."""
        if is_forked():
            return
        self._close_program()
        if not self._closed:
            with suppress(DeviceError):  # the device may be lost
                self.watch.finish()
            self.watch.close()
        with self._lock:
            if not self._closed:
                self._closed = True
                self._plans.loaded.clear()
                self.resources.close()
                self.source.close()

    def _close_program(self) -> None:
        """Wait for a running program, without the lock, which it may need for a calibration."""
        with self._lock:
            program, self._program = self._program, None
        if program is not None:
            program.close()


def _recompile(
    model: Model | None,
    device: Device,
    shapes: Mapping[str, tuple[int, ...]],
    key: ShapeKey,
    disabled: Collection[str],
) -> Lowering:
    """Compile the plan of a model for these shapes with further passes disabled."""
    from ..compiler.driver import compile_unit

    assert model is not None, "plans of a bundle are not made again"
    compilation = model.compilation(device.profile, is_open=key.opened is not None)
    return compile_unit(model.unit(shapes, key), compilation.without(disabled))
