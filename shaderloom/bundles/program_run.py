"""Programs of bundles in a session: the steps are data, their stages are plans of the bundle.

Nothing here imports the compiler.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..execution.resources import DeviceResources
from ..execution.steps import Env, PlanStep, RunRecord, read
from ..execution.values import RuntimeValue, deliver
from ..runtime.bundle.program import AliasStep, BranchStep, ProgramRecord, ReadStep, RefuseStep, StageStep, Step
from ..runtime.execution.attachment import Target
from ..runtime.plan.errors import InputError, InternalError
from ..runtime.plan.plan import Plan
from .plans import BundlePlans

if TYPE_CHECKING:
    from ..compiler.passes.lowering import Lowering


class BundleProgram:
    """The programs of a bundle on one device.

    Runs of several threads are serialised from the first step to the last: each depends on values that it reads back.
    Stages are loaded when they first run, and stay.
    """

    def __init__(self, source: BundlePlans, resources: DeviceResources) -> None:
        self._source = source
        self._resources = resources
        self._stages: dict[str, PlanStep] = {}  #: by the key of the plan for GPUs
        self._lock = threading.RLock()

    def run(self, feeds: Mapping[str, Any], targets: Mapping[str, Target], record: RunRecord) -> dict[str, Any]:
        """Return outputs by name; see :meth:`Executor.run`.

        Raises :class:`InputError` for shapes without a program, and for an integer that is outside of its range.
        """
        with self._lock:
            program = self._source.program({name: feed.shape for name, feed in feeds.items()})
            env: Env = {name: RuntimeValue(value, "caller") for name, value in feeds.items()}
            sizes = {
                dim: size
                for name, dims in program.shapes.items()
                for dim, size in zip(dims, feeds[name].shape)
                if isinstance(dim, str)
            }
            _ProgramRun(self, program, targets, record, sizes).run(program.steps, env)
            return {name: deliver(name, env[name], target, self._resources.device) for name, target in targets.items()}

    def stage(self, step: StageStep, locations: Mapping[str, str | None]) -> PlanStep:
        """Return the loaded plan of a stage, whose outputs go to these locations."""
        present = self._stages.get(step.key)
        if present is None:
            device = self._resources.device
            executor = self._resources.executor(self._source.load(step, device.profile))
            present = self._stages[step.key] = PlanStep(executor, locations, device, _no_compiler)
        present.outputs = dict(locations)
        return present

    def plans(self) -> list[Plan]:
        """Return the loaded plans of stages."""
        return [stage.executor.plan for stage in self._stages.values()]

    def close(self) -> None:
        with self._lock:
            for stage in self._stages.values():
                stage.close()
            self._stages.clear()


class _ProgramRun:
    """One run of a program.  ``sizes`` has those of the symbols that are known."""

    def __init__(
        self,
        programs: BundleProgram,
        program: ProgramRecord,
        targets: Mapping[str, Target],
        record: RunRecord,
        sizes: dict[str, int],
    ) -> None:
        self._programs = programs
        self._program = program
        self._targets = targets
        self._record = record
        self._sizes = sizes

    def run(self, steps: Sequence[Step], env: Env) -> None:
        """Run steps to the end of the program."""
        for position, step in enumerate(steps):
            following = steps[position + 1 :]
            if isinstance(step, StageStep):
                self._run_stage(step, env, following)
            elif isinstance(step, ReadStep):
                self._read(step, env)
            elif isinstance(step, AliasStep):
                env[step.value] = env[step.source]
            elif isinstance(step, RefuseStep):
                raise InputError(step.reason)
            else:
                taken = bool(np.asarray(read(env, step.condition, self._record)).reshape(-1)[0])
                self.run(step.then if taken else step.otherwise, env)
            live = _live(following, self._targets)
            for name in [name for name in env if name not in live]:
                del env[name]

    def _run_stage(self, step: StageStep, env: Env, following: Sequence[Step]) -> None:
        device, host = _live(following, (), on_host=False), _live(following, ())
        locations: dict[str, str | None] = {
            port.name: "gpu-buffer" if port.name in device else "cpu" if port.name in host else None
            for port in step.outputs
        }
        for port, symbol in step.sizes.items():
            env[port] = RuntimeValue(np.empty((self._sizes[symbol], 0), np.uint8), "caller")
        self._programs.stage(step, locations).run(env, self._targets, self._record)

    def _read(self, step: ReadStep, env: Env) -> None:
        array = np.asarray(read(env, step.value, self._record)).reshape(-1)
        for symbol, element in zip(step.symbols, array.tolist(), strict=True):
            allowed = self._program.ranges[symbol]
            if not allowed.allows(element):
                raise InputError(
                    f"'{symbol}' is {element} in this run, and the bundle was compiled for {allowed}",
                    tensor=step.value,
                    hint=f"compile it with --range '{symbol}=LOW:HIGH'",
                )
            self._sizes[symbol] = element


def _live(steps: Sequence[Step], results: Collection[str], *, on_host: bool = True) -> set[str]:
    """Return the values that these steps read, ``results`` behind them included; without ``on_host`` only those that
    stages read.
    """
    names = set(results)
    for step in reversed(steps):
        if isinstance(step, StageStep):
            names.update(step.inputs)
        elif isinstance(step, AliasStep):
            if step.value in names:
                names.add(step.source)
        elif isinstance(step, BranchStep):
            names = _live(step.then, results, on_host=on_host) | _live(step.otherwise, results, on_host=on_host)
            names |= {step.condition} if on_host else set()
        elif isinstance(step, RefuseStep):
            names = set()
        elif on_host:
            names.add(step.value)
    return names


def _no_compiler(disabled: Collection[str]) -> Lowering:
    raise InternalError("a bundle's plans are not compiled again")
