"""Walks a program: from state to state, each time by the step that fits the values that are there."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...cpu.provider import CpuEngine
from ...model.model import Model
from ...plans.placement import Placement, describe
from ...runtime.execution.attachment import Target
from ...runtime.execution.timing import Profile
from ...runtime.execution.weight_pool import WeightPool
from ...runtime.memory.tensor import Tensor
from ...runtime.plan.errors import InputError
from ...runtime.plan.plan import Plan
from ..engine import WgpuEngine
from .build import ProgramBuilder
from .calibrate import RangeObserver
from .context import ProgramContext
from .size_generalisation import Key
from .stage_compiler import NotSeen
from .state import Block, Env, State
from .step_cache import NextStep, StepCache
from .steps import DeviceStep, Observer, RunRecord
from .values import RuntimeValue

#: Plans of stages that are kept ready for each plan that a session keeps
STAGES = 8


class Program:
    """The program of one model on one device.

    Runs of several threads take turns from the first step to the last: each decides by values that it has read back.
    """

    def __init__(
        self,
        source: Model,
        engine: WgpuEngine,
        cpu: CpuEngine | None,
        *,
        plans: int = 16,
        pool: WeightPool | None = None,
    ) -> None:
        """With a ``pool`` of weights it is a program in full precision whatever the model's precision is."""
        self.source = source
        self.engine = engine
        self.cpu = cpu
        self.context = ProgramContext(source, engine, pool)
        self._builder = ProgramBuilder(self.context, None if cpu is None else cpu.options)
        self.last = self._record()
        self._reached: Any = None  #: what plans in half precision rest on
        self._cache = StepCache(plans * STAGES)
        #: in half precision plans rest on what was reached with the sizes at hand
        self._generalises = not source.half and source.options.get("open_sizes", True)
        self._lock = threading.RLock()

    @property
    def whole(self) -> Mapping[str, str]:
        """Plans, by key, that are float32 as a whole in half precision, and why."""
        return self._builder.stages.whole

    def _record(self, **looks: Any) -> RunRecord:
        return RunRecord(self._run_block, **looks)

    def run(self, feeds: Mapping[str, Any], targets: Mapping[str, Target]) -> dict[str, Any]:
        """Outputs by name; see :meth:`WgpuEngine.run`."""
        return self._run(feeds, targets, self._record())

    def profile(self, feeds: Mapping[str, Any]) -> list[tuple[Plan, Profile]]:
        """Run once; the plans that ran, in order, with the time of every call.  A loop gives one entry a step."""
        record = self._record(measured=[])
        self._run(feeds, {}, record)
        assert record.measured is not None
        return record.measured

    def observe(self, feeds: Mapping[str, Any], observer: Observer) -> dict[str, Any]:
        """Run once and let ``observer`` look; gives the outputs."""
        outputs: dict[str, Target] = dict.fromkeys(self._builder.main.outputs, "cpu")
        return self._run(feeds, outputs, self._record(observer=observer))

    def calibrate(self, feeds: Mapping[str, Any]) -> None:
        """Take in what a run in full precision reaches on these inputs; the next run makes plans again that now need
        other types.
        """
        calibration = self.engine.need_calibration()
        with self._lock:
            calibration.forget_assumed()
            calibration.add(self._measure(feeds))

    def _measure(self, feeds: Mapping[str, Any]) -> dict[str, float]:
        """Return what a run in full precision reaches; its weights are on the device while it runs."""
        pool = self.engine.weights()
        reference = Program(self.source, self.engine, self.cpu, pool=pool)
        ranges = RangeObserver(pool)
        try:
            reference.observe(feeds, ranges)
        finally:
            reference.close()
            pool.close()
        return ranges.magnitudes

    def _forget_steps(self) -> None:
        """Forget the plans that rest on another calibration."""
        reached = self.source.compiler_options.get("reached")
        if self._reached != reached:
            self._cache.close()
            self.engine.forget_plans()
            self._reached = reached

    def _run(self, feeds: Mapping[str, Any], targets: Mapping[str, Target], record: RunRecord) -> dict[str, Any]:
        """Run, after a calibration where one is due."""
        with self._lock:
            if not self.context.half or self.source.calibration is None:
                return self._walk(feeds, targets, record)
            if self.source.calibration.is_new:
                self.calibrate(feeds)
            self._forget_steps()
            try:
                return self._walk(feeds, targets, record)
            except NotSeen:
                self.calibrate(feeds)
                self._forget_steps()
                record.start_again()
                self._builder.stages.settled = True
                try:
                    return self._walk(feeds, targets, record)
                finally:
                    self._builder.stages.settled = False

    def _walk(self, feeds: Mapping[str, Any], targets: Mapping[str, Target], record: RunRecord) -> dict[str, Any]:
        with self._lock:
            env: Env = {name: RuntimeValue(value, "caller") for name, value in feeds.items()}
            found = self._run_block(self._builder.main, env, targets, record)
            results = {name: self._deliver(name, found[name], target) for name, target in targets.items()}
            self.last = record
            return results

    def close(self) -> None:
        with self._lock:
            self._cache.close()

    def _run_block(
        self, block: Block, env: Env, targets: Mapping[str, Target], record: RunRecord
    ) -> dict[str, RuntimeValue]:
        """The outputs of a block by name."""
        state = block.state(block.nodes, frozenset())
        while state.pending:
            key = tuple((name, env[name].describe(name in state.known)) for name in state.live if name in env)
            step, following = self._step(state, key, env)
            held_before = {} if record.observer is None else dict(env)
            step.run(env, targets, record)
            if record.observer is not None:
                made = {name: held for name, held in env.items() if held_before.get(name) is not held}
                record.observer.after_step(step, made, record.around)
            state = following
            live = set(state.live)
            for name in [name for name in env if name not in live]:
                del env[name]
        return {name: env[name] if name in env else self.context.constant(name) for name in block.outputs}

    def _step(self, state: State, key: Key, env: Env) -> NextStep:
        """The step that fits the values: one that was made for them, or for a range of their sizes, or a new one."""
        found = self._cache.find(state, key)
        general_key = state.sizes.general_key(key) if found is None else None
        if general_key is not None:
            found = self._cache.find(state, general_key)
        if found is not None:
            return found
        general = state.sizes.generalise(key) if self._generalises else None
        found = self._builder.build(state, env, general)
        if isinstance(found[0], DeviceStep):
            state.sizes.note(key, general, found[0].is_open)
            if general is not None and found[0].is_open:
                key = general.key(key) or key
        before = self._cache.evicted
        self._cache.keep(state, key, found)
        self.engine.stats.evictions += self._cache.evicted - before
        return found

    def _deliver(self, name: str, held: RuntimeValue, target: Target) -> Any:
        """A result where the caller wants it."""
        if isinstance(target, Tensor):
            if held.tensor is not target:
                target.update(held.read())
            return target
        if target == "cpu":
            value = held.read()
            return np.array(value, order="C") if isinstance(value, np.ndarray) and held.maker != "wgpu" else value
        if held.tensor is not None and held.maker == "wgpu":
            return held.tensor
        if held.dtype is None:
            raise InputError("a value of this type cannot stay on a device", tensor=name)
        return Tensor.from_numpy(held.read(), self.engine.device)

    def plans(self) -> list[Plan]:
        """The plans of stages that are ready, in the order in which they ran last."""
        return [step.executor.plan for step in self._cache.plans()]

    # -- reports -----------------------------------------------------------------------------------------------------

    def placement(self) -> list[Placement]:
        """One for each node of the main graph, and for those of nested graphs that have run."""
        return describe(self.context.imported, self.context.placed)
