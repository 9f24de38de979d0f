"""Run a program of several steps: from state to state, each time by the step that matches the current values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from ...model.model import Model
from ...model.open_sizes import Key, key_text
from ...plans.placement import Placement, describe
from ...runtime.execution.attachment import Target
from ...runtime.execution.weight_pool import WeightPool
from ...runtime.plan.errors import DeviceLimitError, Origin
from ...runtime.plan.plan import Plan
from ..plan_bound import DEFAULT_PLANS, PlanBound
from ..resources import DeviceResources
from ..steps import Env, PlanStep, RunRecord
from ..values import RuntimeValue, deliver
from .build import ProgramBuilder
from .context import ProgramContext
from .stage_compiler import Uncalibrated
from .state import Block, State
from .step_cache import NextStep, StepCache

#: Plans of stages that stay loaded for each plan that a session keeps
STAGES = 8


class Program:
    """The program of one model on one device, where it is no single plan.

    Runs of several threads are serialised from the first step to the last: each depends on values that it reads back.
    """

    def __init__(
        self,
        source: Model,
        resources: DeviceResources,
        cpu_options: Mapping[str, Any] | None,
        *,
        plans: int = DEFAULT_PLANS,
        calibrate: Callable[[Mapping[str, Any]], object] | None = None,
        pool: WeightPool | None = None,
    ) -> None:
        """Prepare a program of ``source``; ``calibrate`` receives the inputs of a run to record float32 magnitudes.

        With ``cpu_options`` None there is no cpu provider.  With a ``pool`` of weights the program runs in full
        precision whatever the model's precision is.
        """
        self.context = ProgramContext(source, resources, self._run_block, pool)
        self._source = source
        self._resources = resources
        self._calibrate = calibrate
        self._builder = ProgramBuilder(self.context, cpu_options)
        self._options = source.options.current  #: on which the plans depend, with what calibrations have measured
        self._cache = StepCache(PlanBound.of(plans, STAGES))
        self._lock = threading.RLock()

    @property
    def full_precision_plans(self) -> Mapping[str, str]:
        """Half-precision plans, by key, that are entirely float32, and the reason."""
        return self._builder.stages.full_precision_plans

    def run(self, feeds: Mapping[str, Any], targets: Mapping[str, Target], record: RunRecord) -> dict[str, Any]:
        """Return outputs by name (see :meth:`Executor.run`), after a calibration where one is due."""
        with self._lock:
            calibration = self._source.calibration
            if self._calibrate is None or calibration is None or not calibration.half:
                self._forget_steps()
                return self._walk(feeds, targets, record)
            if calibration.is_new:
                self._calibrate(feeds)
            self._forget_steps()
            try:
                return self._walk(feeds, targets, record)
            except Uncalibrated:
                self._calibrate(feeds)
                self._forget_steps()
                record.restart()
                self._builder.stages.allows_uncalibrated = True
                try:
                    return self._walk(feeds, targets, record)
                finally:
                    self._builder.stages.allows_uncalibrated = False

    def _forget_steps(self) -> None:
        """Discard the plans that depend on another calibration."""
        options = self._source.options.current
        if self._options != options:
            self._cache.close()
            self._options = options

    def _walk(self, feeds: Mapping[str, Any], targets: Mapping[str, Target], record: RunRecord) -> dict[str, Any]:
        env: Env = {name: RuntimeValue(value, "caller") for name, value in feeds.items()}
        values = self._run_block(self._builder.main, env, targets, record)
        return {name: deliver(name, values[name], target, self._resources.device) for name, target in targets.items()}

    def close(self) -> None:
        with self._lock:
            self._cache.close()

    def _run_block(
        self, block: Block, env: Env, targets: Mapping[str, Target], record: RunRecord
    ) -> dict[str, RuntimeValue]:
        """Run a block and return its outputs by name."""
        state = block.state(block.nodes, frozenset())
        while state.pending:
            key = tuple((name, env[name].describe(name in state.static_names)) for name in state.live if name in env)
            present = self._step(state, key, env)
            held_before = {} if record.observer is None else dict(env)
            try:
                present.step.run(env, targets, record)
            except DeviceLimitError:  # of a plan for many sizes at this one: what the device cannot do is refused then
                if not isinstance(present.step, PlanStep) or present.step.general is None:
                    raise
                present = self._build(state, key, env, is_open=False)
                present.step.run(env, targets, record)
            self.context.placed.update(present.placed)
            if record.observer is not None:
                results = {name: held for name, held in env.items() if held_before.get(name) is not held}
                record.observer.after_step(present.step, results, record.around)
            state = present.following
            live = set(state.live)
            for name in [name for name in env if name not in live]:
                del env[name]
        return {name: env[name] if name in env else self.context.constant(name) for name in block.outputs}

    def _step(self, state: State, key: Key, env: Env) -> NextStep:
        """Return the step that matches the values: one for them, one for a range of their sizes, or a new one."""
        present = self._cache.find(state, key)
        if present is None:
            for general_key in self._source.sizes.history(state.identity).general_keys(key):
                present = self._cache.find(state, general_key)
                if present is not None:
                    break
        return self._build(state, key, env, is_open=self._source.sizes.in_stages) if present is None else present

    def _build(self, state: State, key: Key, env: Env, *, is_open: bool) -> NextStep:
        """Return a new step, and keep it; ``is_open`` allows one for a range of sizes."""
        with self.context.placing() as placed:
            step, following = self._builder.build(state, env, key if is_open else None)
        built = NextStep(step, following, placed)
        if isinstance(step, PlanStep):
            general = step.general
            self._source.sizes.note(state.identity, key, general, step.executor.plan.facts.tiled)
            if step.costs is not None and self.context.pool is None:
                row = f"{state.pending[0].origin}: {key_text(key, general)}"
                self._resources.stats.add(row, step.costs)
            if general is not None:
                key = general.key(key) or key
        before = self._cache.evicted
        self._cache.keep(state, key, built)
        self._resources.stats.evictions += self._cache.evicted - before
        return built

    def plans(self) -> list[Plan]:
        """Return the loaded plans of stages, in the order of last use."""
        return [step.executor.plan for step in self._cache.plans()]

    # -- reports -----------------------------------------------------------------------------------------------------

    def placed(self) -> list[tuple[Origin, str, str, str]]:
        """Return the nodes that ran, or were compiled away: node, domain, provider, reason."""
        return list(self.context.placed.values())

    def placement(self) -> list[Placement]:
        """Return a row for each node of the main graph, and for those of nested graphs that have run."""
        return describe(self.context.imported, self.context.placed)
