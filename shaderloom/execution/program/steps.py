"""The kinds of steps of a program, and the states between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from ...compiler.staging.program_graph import PendingNode
from ...cpu.segment import CpuSegment
from ...runtime.device.device import Device
from ...runtime.execution.attachment import Target
from ...runtime.execution.executor import Executor
from ...runtime.execution.timing import Profile
from ...runtime.memory.tensor import Tensor
from ...runtime.plan.errors import InternalError, ShaderloomError
from ...runtime.plan.plan import Plan
from .size_generalisation import Carrier, SizesSeen
from .values import Crossing, Held

if TYPE_CHECKING:
    from .build import ProgramBuilder
    from .loops import LoopStep
    from .stage_source import StageSource

Env = dict[str, Held]


class Observer:
    """Looks at a run, which takes the same steps as without.  ``around`` are the steps of the loops that are running.

    Values are as they are held: bringing one to the host by :meth:`Held.read` would change what the run does next.
    """

    def before_plan(self, step: DeviceStep, feeds: dict[str, Any], around: tuple[int, ...]) -> None:
        """A plan that does something is about to run."""

    def before_iteration(self, loop: LoopStep, given: Mapping[str, Held], around: tuple[int, ...]) -> None:
        """The body of a loop is about to run once; ``given`` are its inputs, by qualified name."""

    def after_step(self, step: Step, made: Mapping[str, Held], around: tuple[int, ...]) -> None:
        """A step has run; ``made`` are the values that are new, by qualified name."""


@dataclass
class RunRecord:
    """What one run did."""

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


@dataclass(eq=False)
class State:
    """A place in a block: the nodes that still have to run, and the values that are compiled in.

    ``live`` are the names that those nodes, or the outputs of the block, read.  The next step depends on what the
    values are then (:mod:`.step_cache`).
    """

    block: Block
    pending: tuple[PendingNode, ...]
    known: frozenset[str]
    live: tuple[str, ...]
    sizes: SizesSeen = field(default_factory=SizesSeen)


@dataclass(eq=False)
class Block:
    """A graph as a program: the main graph, or the body of a loop.  ``states`` are those that a step or a run holds."""

    name: str
    nodes: tuple[PendingNode, ...]
    outputs: tuple[str, ...]
    #: outputs that decide about the steps of a loop, or about what comes behind it
    deciding: frozenset[str] = frozenset()
    states: WeakValueDictionary[tuple[tuple[int, ...], frozenset[str]], State] = field(
        default_factory=WeakValueDictionary
    )

    def state(self, pending: tuple[PendingNode, ...], known: frozenset[str]) -> State:
        """The one state of these nodes and known values."""
        read = {name for item in pending for name in reads_of(item)} | set(self.outputs)
        kept = frozenset(name for name in known if name in read)
        key = (tuple(map(id, pending)), kept)
        found = self.states.get(key)
        if found is None:
            found = self.states[key] = State(self, pending, kept, tuple(sorted(read)))
        return found


def reads_of(item: PendingNode) -> list[str]:
    """Names that a node reads, in the compiler's form or in that of the file."""
    names = dict.fromkeys(item.reads)
    names.update(dict.fromkeys(file_reads(item)))
    return list(names)


def file_reads(item: PendingNode) -> list[str]:
    """Names that the node of the file reads."""
    proto = item.node.proto
    if proto is None:
        return list(item.reads)
    if item.made:
        return [name for name in proto.input if name]
    found = (item.scope.find(name) for name in proto.input if name)
    return [name for name in dict.fromkeys((*found, *item.captured)) if name is not None]


class Step(Protocol):
    """Part of a program.  ``run`` adds what it computes to the values."""

    def run(self, env: Env, targets: Mapping[str, Target], record: RunRecord) -> None: ...

    def close(self) -> None: ...


def read(env: Env, name: str, record: RunRecord) -> Any:
    """A value on the host; a crossing if the device computed it."""
    held = env[name]
    if not held.on_host:
        if held.maker == "wgpu":
            assert held.tensor is not None, "a value is somewhere"
            record.crossings.append(Crossing(name, "cpu", held.tensor.nbytes))
        return held.read()
    return held.host


class DeviceStep:
    """One plan.  ``outputs`` says where each output goes; None leaves it to the caller of the run."""

    def __init__(
        self,
        executor: Executor,
        outputs: Mapping[str, str | None],
        device: Device,
        source: StageSource | None = None,
        carriers: Mapping[str, Carrier] | None = None,
    ) -> None:
        """``source`` is what the plan was made from, where somebody wants to make it again.  ``carriers`` are inputs
        that tell nothing but a size.
        """
        self.executor = executor
        self.source = source
        self.outputs = dict(outputs)
        self.carriers = carriers or {}
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
            env[name] = Held(value, "compiler" if folded else "wgpu")
            if not folded and not isinstance(value, Tensor) and self.outputs[name] == "cpu":
                record.crossings.append(Crossing(name, "cpu", value.nbytes))
        env.update(aliased)
        if self.works:
            record.steps.append("wgpu")

    def _feed(self, name: str, env: Env, record: RunRecord) -> Any:
        carrier = self.carriers.get(name)
        if carrier is not None:
            return carrier.feed(env[carrier.value].read())
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
        env.update((name, Held(value, "cpu")) for name, value in results.items())
        record.steps.append("cpu")

    def close(self) -> None:
        pass


class ReadStep:
    """Brings values to the host, to be compiled in from here on."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def run(self, env: Env, targets: Mapping[str, Target], record: RunRecord) -> None:
        for name in self.names:
            read(env, name, record)

    def close(self) -> None:
        pass


class FoldStep:
    """Small values that the host computes: conditions and counts that follow from what the caller feeds."""

    def __init__(self, nodes: Sequence[PendingNode], names: tuple[str, ...], program: ProgramBuilder) -> None:
        self.nodes = nodes
        self.names = names
        self.program = program

    def run(self, env: Env, targets: Mapping[str, Target], record: RunRecord) -> None:
        values = self.program.fold(self.nodes, self.names, env)
        if values is None:
            raise InternalError(f"the host cannot compute {', '.join(self.names)} for these values")
        env.update((name, Held(value, "compiler")) for name, value in values.items())

    def close(self) -> None:
        pass


class AliasStep:
    """Gives values other names: what leaves a branch.  Nothing is copied."""

    def __init__(self, pairs: tuple[tuple[str, str], ...]) -> None:
        self.pairs = pairs

    def run(self, env: Env, targets: Mapping[str, Target], record: RunRecord) -> None:
        for source, target in self.pairs:
            env[target] = env[source]

    def close(self) -> None:
        pass
