"""Interface of a program's steps, the record of a run, and the step that is one plan.

Nothing here imports the compiler: programs of one step run without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..model.header import ModelHeader
from ..model.open_sizes import GeneralisedShape
from ..runtime.device.device import Device
from ..runtime.execution.attachment import Target
from ..runtime.execution.executor import Executor
from ..runtime.execution.timing import Profile
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.facts import PLAIN, ValueFacts
from ..runtime.plan.plan import Plan, Symbol, dispatch_count
from ..runtime.plan.record import record
from .values import Crossing, RuntimeValue, narrowed

if TYPE_CHECKING:
    from ..compiler.passes.lowering import Lowering
    from .resources import KeyStats

#: Values by qualified name
Env = dict[str, RuntimeValue]
#: Recompiles a plan, with its graph, and with further passes disabled; without any it equals the plan that runs
Recompile = Callable[[Collection[str]], "Lowering"]


class Observer:
    """Observes a run without changing its steps.  ``around`` are the iterations, from 0, of the enclosing loops.

    Values are passed as the program has them: bringing one to the host by :meth:`RuntimeValue.read` would change what
    the run does next.
    """

    def before_plan(self, step: PlanStep, feeds: dict[str, Any], around: tuple[int, ...]) -> None:
        """Receive a plan with work to do, before it runs."""

    def before_iteration(self, inputs: Mapping[str, RuntimeValue], around: tuple[int, ...]) -> None:
        """Receive the ``inputs`` of a loop body, by qualified name, before each iteration."""

    def after_step(self, step: Step, results: Mapping[str, RuntimeValue], around: tuple[int, ...]) -> None:
        """Receive the new values of a step, by qualified name, after it ran."""


@dataclass
class RunRecord:
    """Record of one run."""

    steps: list[str] = field(default_factory=list)  #: kinds of the executed steps
    calls: int = 0  #: executed calls on the device
    crossings: list[Crossing] = field(default_factory=list)
    #: executed plans, in order, with the times of their calls, of a measured run; None otherwise
    measured: list[tuple[Plan, Profile]] | None = None
    observer: Observer | None = None
    around: tuple[int, ...] = ()  #: the iterations, from 0, of the enclosing loops, the outermost first

    def restart(self) -> None:
        """Discard the record: the run restarts."""
        self.steps.clear()
        self.calls = 0
        self.crossings.clear()
        self.around = ()
        if self.measured is not None:
            self.measured.clear()


class Step(Protocol):
    """Part of a program.  ``run`` adds what it computes to the values."""

    def run(self, env: Env, targets: Mapping[str, Target], record: RunRecord) -> None: ...

    def close(self) -> None: ...


class StepProgram(Protocol):
    """Runs a model in several steps."""

    def run(self, feeds: Mapping[str, Any], targets: Mapping[str, Target], record: RunRecord) -> dict[str, Any]:
        """Return outputs by name; see :meth:`Executor.run`."""
        ...

    def plans(self) -> list[Plan]:
        """Return the loaded plans of stages."""
        ...

    def close(self) -> None: ...


def host_targets(header: ModelHeader) -> dict[str, Target]:
    """Return the host as the location of every output of a model."""
    return {port.name: "cpu" for port in header.outputs}


def read(env: Env, name: str, record: RunRecord) -> Any:
    """Return a value on the host; record a crossing if the device computed it."""
    value = env[name]
    if not value.on_host and value.maker == "wgpu":
        assert value.tensor is not None, "a value is on the host or on the device"
        record.crossings.append(Crossing(name, "cpu", value.tensor.nbytes))
    return value.read(warn_as=name)


@record
class SizeInput:
    """An input that carries a symbol's size: an element of a value that is compiled in."""

    value: str
    element: int
    symbol: Symbol

    def feed(self, value: np.ndarray) -> np.ndarray:
        """Return an array with the element's value as its number of rows, without elements."""
        return np.empty((int(value.reshape(-1)[self.element]), 0), np.uint8)


class PlanStep:
    """One plan.  ``outputs`` gives the qualified name of each output; None leaves it to the caller of the run."""

    def __init__(
        self,
        executor: Executor,
        outputs: Mapping[str, str | None],
        device: Device,
        recompile: Recompile,
        size_inputs: Mapping[str, SizeInput] | None = None,
        general: GeneralisedShape | None = None,
        facts: Mapping[str, ValueFacts] | None = None,
        costs: KeyStats | None = None,
    ) -> None:
        """Wrap an executor as a step; ``size_inputs`` are plan inputs that carry only a dimension's size.

        ``general`` are the sizes that the plan serves, if they are open.  ``facts`` are those of outputs.  ``costs``
        count the runs.
        """
        self.executor = executor
        self.costs = costs
        self.facts = facts or {}
        self.recompile = recompile
        self.outputs = dict(outputs)
        self.size_inputs = size_inputs or {}
        self.device = device
        self.constant = {constant.output for constant in executor.plan.constants}
        plan = executor.plan
        types = {f"input:{port.name}": (port.dtype, port.shape) for port in plan.inputs}
        own = {port.name: (port.dtype, port.shape) for port in plan.outputs}
        self.aliases = {
            alias.output: alias.source.partition(":")[2]
            for alias in plan.aliases
            if types.get(alias.source) == own[alias.output]  # else it has another shape
        }
        self.general = general
        self.works = bool(executor.plan.calls)

    def dispatches(self, sizes: Mapping[str, int]) -> int:
        """Return how many dispatches a run has for sizes of the plan's symbols, empty ones included."""
        return dispatch_count(self.executor.plan.commands, sizes)

    def run(self, env: Env, targets: Mapping[str, Target], record: RunRecord) -> None:
        feeds = {port.name: self._feed(port.name, env, record) for port in self.executor.plan.inputs}
        wanted: dict[str, Target] = {
            name: location if location is not None else targets.get(name, "gpu-buffer")
            for name, location in self.outputs.items()
            if name not in self.aliases
        }
        aliased = {name: env[source] for name, source in self.aliases.items()}
        if record.measured is not None and self.works:
            record.measured.append((self.executor.plan, self.executor.profile(feeds)))
        if record.observer is not None and self.works:
            record.observer.before_plan(self, feeds, record.around)
        results = self.executor.run(feeds, wanted) if wanted else {}
        for name, value in results.items():
            folded = name in self.constant
            facts = self.facts.get(name, PLAIN)
            if facts.is_wide and not isinstance(value, Tensor):
                value, facts = narrowed(value, warn_as=name), replace(facts, is_wide=False)
            env[name] = RuntimeValue(value, "compiler" if folded else "wgpu", facts)
            if not folded and not isinstance(value, Tensor) and self.outputs[name] == "cpu":
                record.crossings.append(Crossing(name, "cpu", value.nbytes))
        env.update(aliased)
        if self.costs is not None:
            self.costs.runs += 1
        if self.works:
            record.steps.append("wgpu")
            record.calls += len(self.executor.plan.calls)

    def _feed(self, name: str, env: Env, record: RunRecord) -> Any:
        size_input = self.size_inputs.get(name)
        if size_input is not None:
            return size_input.feed(env[size_input.value].read())
        held = env[name]
        if not self.works:  # its results were known at compile time; inputs are not read
            return held.tensor or held.host
        if held.tensor is None and held.maker == "cpu":
            record.crossings.append(Crossing(name, "wgpu", held.host.nbytes))
            held.maker = "both"
        return held.feed(self.device)

    def close(self) -> None:
        self.executor.close()
