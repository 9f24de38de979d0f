"""The kinds of steps of a program, and the record of a run.

A step is a plan on the device (:class:`DeviceStep`), a segment on the cpu provider (:class:`CpuStep`), a few actions on
the host (:class:`HostStep`), or a loop over a block of further steps (:class:`.loops.LoopStep`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...compiler.staging.program_graph import PendingNode
from ...cpu.segment import CpuSegment
from ...runtime.device.device import Device
from ...runtime.execution.attachment import Target
from ...runtime.execution.executor import Executor
from ...runtime.execution.timing import Profile
from ...runtime.memory.tensor import Tensor
from ...runtime.plan.errors import InternalError, ShaderloomError
from ...runtime.plan.plan import Plan
from .host_evaluation import HostEvaluator
from .size_generalisation import SizeInput
from .stage_source import StageSource
from .state import Block, Env
from .values import Crossing, RuntimeValue


class Observer:
    """Looks at a run, which takes the same steps as without.  ``around`` are the steps of the loops that are running.

    Values are as the program has them: bringing one to the host by :meth:`RuntimeValue.read` would change what the run
    does next.
    """

    def before_plan(self, step: DeviceStep, feeds: dict[str, Any], around: tuple[int, ...]) -> None:
        """A plan that does something is about to run."""

    def before_iteration(self, inputs: Mapping[str, RuntimeValue], around: tuple[int, ...]) -> None:
        """The body of a loop is about to run once on ``inputs``, by qualified name."""

    def after_step(self, step: Step, made: Mapping[str, RuntimeValue], around: tuple[int, ...]) -> None:
        """A step has run; ``made`` are the values that are new, by qualified name."""


class RunBlock(Protocol):
    """Runs a block of a program on the values of ``env`` and returns its outputs by name."""

    def __call__(
        self, block: Block, env: Env, targets: Mapping[str, Target], record: RunRecord
    ) -> dict[str, RuntimeValue]: ...


@dataclass
class RunRecord:
    """What one run did, and how its steps run blocks."""

    run_block: RunBlock
    steps: list[str] = field(default_factory=list)  #: kinds of the steps that did work
    crossings: list[Crossing] = field(default_factory=list)
    #: plans that ran, in order, with the times of their calls, of a run that is measured; None: it is not
    measured: list[tuple[Plan, Profile]] | None = None
    observer: Observer | None = None
    around: tuple[int, ...] = ()  #: the steps, from 0, of the loops that are running, the outermost first

    def start_again(self) -> None:
        """Forget what was done: the run begins anew."""
        self.steps.clear()
        self.crossings.clear()
        self.around = ()
        if self.measured is not None:
            self.measured.clear()


class Step(Protocol):
    """Part of a program.  ``run`` adds what it computes to the values."""

    def run(self, env: Env, targets: Mapping[str, Target], record: RunRecord) -> None: ...

    def close(self) -> None: ...


def read(env: Env, name: str, record: RunRecord) -> Any:
    """Return a value on the host; a crossing if the device computed it."""
    value = env[name]
    if not value.on_host and value.maker == "wgpu":
        assert value.tensor is not None, "a value is on the host or on the device"
        record.crossings.append(Crossing(name, "cpu", value.tensor.nbytes))
    return value.read()


class DeviceStep:
    """One plan.  ``outputs`` says where each output goes; None leaves it to the caller of the run."""

    def __init__(
        self,
        executor: Executor,
        outputs: Mapping[str, str | None],
        device: Device,
        source: StageSource,
        size_inputs: Mapping[str, SizeInput] | None = None,
    ) -> None:
        """``source`` is what the plan was made from.  ``size_inputs`` are inputs that tell nothing but a size."""
        self.executor = executor
        self.source = source
        self.outputs = dict(outputs)
        self.size_inputs = size_inputs or {}
        self.device = device
        self.constant = {constant.output for constant in executor.plan.constants}
        self.aliases = {
            alias.output: alias.source.partition(":")[2]
            for alias in executor.plan.aliases
            if alias.source.startswith("input:")
        }
        self.is_open = bool(executor.plan.symbols)
        self.works = bool(executor.plan.calls)

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
            env[name] = RuntimeValue(value, "compiler" if folded else "wgpu")
            if not folded and not isinstance(value, Tensor) and self.outputs[name] == "cpu":
                record.crossings.append(Crossing(name, "cpu", value.nbytes))
        env.update(aliased)
        if self.works:
            record.steps.append("wgpu")

    def _feed(self, name: str, env: Env, record: RunRecord) -> Any:
        size_input = self.size_inputs.get(name)
        if size_input is not None:
            return size_input.feed(env[size_input.value].read())
        held = env[name]
        if not self.works:  # what it gives was known when it was compiled; inputs are not looked at
            return held.tensor or held.host
        if held.tensor is None and held.maker == "cpu":
            record.crossings.append(Crossing(name, "wgpu", held.host.nbytes))
            held.maker = "both"
        return held.feed(self.device)

    def close(self) -> None:
        self.executor.close()


class CpuStep:
    """One segment on the host.  ``refusal`` is why it is there."""

    def __init__(self, segment: CpuSegment, inputs: tuple[str, ...], refusal: ShaderloomError) -> None:
        self.segment = segment
        self.inputs = inputs
        self.refusal = refusal

    def run(self, env: Env, targets: Mapping[str, Target], record: RunRecord) -> None:
        values = {name: read(env, name, record) for name in self.inputs if name in env}
        try:
            results = self.segment.run(values)
        except ShaderloomError as error:
            raise type(error)(
                f"{error.reason}; wgpu: {self.refusal.reason}", origin=self.refusal.origin, hint=error.hint
            ) from error
        env.update((name, RuntimeValue(value, "cpu")) for name, value in results.items())
        record.steps.append("cpu")

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class ReadElements:
    """Bring a value to the host: its elements are compiled into later stages."""

    name: str

    def run(self, env: Env, record: RunRecord, evaluator: HostEvaluator) -> None:
        read(env, self.name, record)


@dataclass(frozen=True, slots=True)
class Alias:
    """Give a value another name: what leaves a branch.  Nothing is copied."""

    source: str
    target: str

    def run(self, env: Env, record: RunRecord, evaluator: HostEvaluator) -> None:
        env[self.target] = env[self.source]


@dataclass(frozen=True, slots=True)
class Fold:
    """Compute conditions and counts from small integers that are on the host.

    Raises :class:`InternalError` if the nodes' rules of folding fail for values of the kinds that they were chosen for.
    """

    nodes: tuple[PendingNode, ...]
    outputs: tuple[str, ...]

    def run(self, env: Env, record: RunRecord, evaluator: HostEvaluator) -> None:
        values = evaluator.evaluate(self.nodes, self.outputs, env)
        if values is None:
            raise InternalError(f"the host cannot compute {', '.join(self.outputs)} for these values")
        env.update((name, RuntimeValue(value, "compiler")) for name, value in values.items())


HostAction = ReadElements | Alias | Fold


class HostStep:
    """Moves values without the device or another provider.  Without actions it only leads to the next state."""

    def __init__(self, actions: Sequence[HostAction], evaluator: HostEvaluator) -> None:
        self.actions = tuple(actions)
        self._evaluator = evaluator

    def run(self, env: Env, targets: Mapping[str, Target], record: RunRecord) -> None:
        for action in self.actions:
            action.run(env, record, self._evaluator)

    def close(self) -> None:
        pass
