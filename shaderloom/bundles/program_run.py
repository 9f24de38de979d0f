"""Programs of bundles in a session: the steps are data, their stages are plans of the bundle.

Nothing here imports the compiler.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..execution.resources import DeviceResources
from ..execution.steps import Env, PlanStep, RunRecord, read
from ..execution.values import RuntimeValue, deliver
from ..runtime.bundle.program import (
    AliasStep,
    BranchStep,
    CompareStep,
    IterateStep,
    ProgramRecord,
    ReadStep,
    RefuseStep,
    StackedValue,
    StageStep,
    Step,
    step_text,
)
from ..runtime.execution.attachment import Target
from ..runtime.execution.ports import port_size
from ..runtime.memory.stack import stack
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.dimension import evaluate
from ..runtime.plan.dtypes import BY_NAME
from ..runtime.plan.errors import InputError, InternalError, LimitError
from ..runtime.plan.plan import MOST_WORK, Plan, Port
from .plans import BundlePlans

if TYPE_CHECKING:
    from ..compiler.passes.lowering import Lowering


class Stage(Protocol):
    """One stage of a program, where it runs."""

    def dispatches(self, sizes: Mapping[str, int]) -> int:
        """Return how many dispatches a run has for sizes of the symbols."""
        ...

    def run(self, env: Env, targets: Mapping[str, Target], record: RunRecord) -> None:
        """Add what the stage computes to the values."""
        ...


class Stages(Protocol):
    """Where the stages of a program run, and what its loops stack is."""

    def stage(self, step: StageStep, locations: Mapping[str, str | None]) -> Stage:
        """Return a stage whose outputs go to these locations."""
        ...

    def stack(self, rows: Sequence[RuntimeValue], stacked: StackedValue, sizes: Mapping[str, int]) -> RuntimeValue:
        """Return the rows of a loop's iterations along a new first axis; they have the type that ``stacked`` says."""
        ...

    def require_room(self, step: IterateStep, sizes: Mapping[str, int], iterations: int) -> None:
        """Raise :class:`LimitError` if what the loop stacks in so many iterations is more than may be allocated."""
        ...


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
            sizes = fed_sizes(program, {name: feed.shape for name, feed in feeds.items()})
            direct = _apart(targets, feeds.values())
            ProgramRun(self, program, direct, record, sizes).run(program.steps, env, targets)
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

    def stack(self, rows: Sequence[RuntimeValue], stacked: StackedValue, sizes: Mapping[str, int]) -> RuntimeValue:
        """See :class:`Stages`."""
        resources = self._resources
        if all(row.tensor is None for row in rows):
            return stack_on_host(rows, stacked, sizes)
        tensors = [
            row.tensor if row.tensor is not None else Tensor.from_numpy(row.host, resources.device) for row in rows
        ]
        return RuntimeValue(stack(tensors, resources.device, resources.account), "wgpu")

    def require_room(self, step: IterateStep, sizes: Mapping[str, int], iterations: int) -> None:
        """See :class:`Stages`."""
        account, total = self._resources.account, 0
        largest = self._resources.device.profile.limit("max-buffer-size")
        for stacked in step.stacked:
            port = Port(stacked.result, stacked.dtype, (iterations, *stacked.shape))
            shape = (iterations, *(evaluate(size, sizes) for size in stacked.shape))
            size = port_size(port, shape, self._source.caps.tensor_elements).padded
            total += size
            if size > largest:
                raise LimitError(
                    f"has {size:,} bytes with {iterations:,} iterations; a buffer of the device may have {largest:,}",
                    tensor=stacked.result,
                )
            if account.used + total > account.cap:
                raise LimitError(
                    f"needs {size:,} bytes with {iterations:,} iterations on top of {account.used:,}; "
                    f"the cap is {account.cap:,}",
                    tensor=stacked.result,
                    hint="raise caps.device_memory",
                )

    def plans(self) -> list[Plan]:
        """Return the loaded plans of stages."""
        return [stage.executor.plan for stage in self._stages.values()]

    def close(self) -> None:
        with self._lock:
            for stage in self._stages.values():
                stage.close()
            self._stages.clear()


class ProgramRun:
    """One run of a program.  ``sizes`` has those of the symbols that are known."""

    def __init__(
        self,
        stages: Stages,
        program: ProgramRecord,
        targets: Mapping[str, Target],
        record: RunRecord,
        sizes: dict[str, int],
    ) -> None:
        self._stages = stages
        self._program = program
        self._targets = targets
        self._record = record
        self.sizes = sizes
        self._uses: dict[int, _Uses] = {}  #: by the identity of the steps of a block
        self._work = 0  #: steps and dispatches so far
        self._depth = 0  #: loops around the step that runs

    def run(self, steps: Sequence[Step], env: Env, results: Collection[str], decisive: Collection[str] = ()) -> None:
        """Run steps to the end of their block; of its ``results`` those that are ``decisive`` are read on the host."""
        use = self._uses.get(id(steps))
        if use is None:
            use = self._uses[id(steps)] = _Uses(steps, results, decisive)
        for name in [name for name in env if name not in use.before]:
            del env[name]
        for position, step in enumerate(steps):
            self._count(1, step)
            if isinstance(step, StageStep):
                self._run_stage(step, env, use.locations[position])
            elif isinstance(step, ReadStep):
                self._read(step, env)
            elif isinstance(step, AliasStep):
                if step.source in env:  # it is not where nothing reads the alias
                    env[step.value] = env[step.source]
            elif isinstance(step, IterateStep):
                self._run_loop(step, env)
            elif isinstance(step, RefuseStep):
                raise InputError(step.reason)
            elif isinstance(step, CompareStep):
                self.branch(step, self._holds(step), env, results, decisive)
            else:
                self.branch(step, self._is_true(step.condition, env), env, results, decisive)
            for name in use.last[position]:
                env.pop(name, None)

    def branch(
        self,
        step: BranchStep | CompareStep,
        taken: bool,
        env: Env,
        results: Collection[str],
        decisive: Collection[str],
    ) -> None:
        """Run the side of a branch that its condition takes, or that of a comparison."""
        self.run(step.then if taken else step.otherwise, env, results, decisive)

    def _holds(self, step: CompareStep) -> bool:
        left, right = evaluate(step.left, self.sizes), evaluate(step.right, self.sizes)
        return left < right if step.test == "less" else left == right

    def _is_true(self, name: str, env: Env) -> bool:
        return bool(np.asarray(read(env, name, self._record)).reshape(-1)[0])

    def _run_stage(self, step: StageStep, env: Env, locations: Mapping[str, str | None]) -> None:
        for port, symbol in step.sizes.items():
            env[port] = RuntimeValue(np.empty((self.sizes[symbol], 0), np.uint8), "caller")
        stage = self._stages.stage(step, locations)
        self._count(stage.dispatches(self.sizes), step)
        stage.run(env, self._targets if self._depth == 0 else {}, self._record)

    def _run_loop(self, step: IterateStep, env: Env) -> None:
        """Run the iterations of a loop, whose carried values and rows stay on the device."""
        count = None if step.count is None else evaluate(step.count, self.sizes)
        carried = [env[each.initial] for each in step.carried]
        rows: list[list[RuntimeValue]] = [[] for _ in step.stacked]
        results = {*(each.following for each in step.carried), *(each.row for each in step.stacked)}
        decisive = {step.going} if step.going is not None else set()
        if count is not None and step.condition is None and step.going is None:
            self._stages.require_room(step, self.sizes, count)
        going, iteration = step.condition is None or self._is_true(step.condition, env), 0
        self._set_sizes(step, carried)
        self._depth += 1
        while going and (count is None or iteration < count):
            self._count(1, step)
            self._stages.require_room(step, self.sizes, iteration + 1)
            if step.symbol is not None:
                self._set(step.symbol, iteration + 1, step.symbol, is_final=False)
            inner = dict(env)
            inner[step.iteration] = RuntimeValue(np.array(iteration, np.int64), "caller")
            inner.update(zip((each.name for each in step.carried), carried))
            self.run(step.steps, inner, results | decisive, decisive)
            carried = [inner[each.following] for each in step.carried]
            for row, stacked in zip(rows, step.stacked):
                row.append(inner[stacked.row])
            going = step.going is None or self._is_true(step.going, inner)
            self._set_sizes(step, carried)
            iteration += 1
        self._depth -= 1
        if step.symbol is not None:
            self._set(step.symbol, iteration, step.symbol)
        env.update((each.result, value) for each, value in zip(step.carried, carried) if each.result is not None)
        for row, stacked in zip(rows, step.stacked):
            env[stacked.result] = self._stages.stack(row, stacked, self.sizes)

    def _set_sizes(self, step: IterateStep, values: Sequence[RuntimeValue]) -> None:
        """Set the symbols of what a loop carries to the sizes that it has now."""
        for each, value in zip(step.carried, values):
            for symbol, size in zip(each.symbols, value.shape):
                if symbol is not None:
                    self._set(symbol, size, each.name)

    def _count(self, number: int, step: Step) -> None:
        """Count steps, iterations and dispatches; raise :class:`InputError` for more than a run may have."""
        self._work += number
        if self._work > MOST_WORK:
            most = f"a run carries out at most {MOST_WORK:,} steps and dispatches"
            raise InputError(f"{most}; this one has more with its {step_text(step)}")

    def _read(self, step: ReadStep, env: Env) -> None:
        array = np.asarray(read(env, step.value, self._record)).reshape(-1)
        for symbol, element in zip(step.symbols, array.tolist(), strict=True):
            self._set(symbol, element, step.value)

    def _set(self, symbol: str, size: int, value: str, *, is_final: bool = True) -> None:
        """Set the size of a symbol; raise :class:`InputError` if it is outside of its range, or will be."""
        allowed = self._program.ranges[symbol]
        if size > allowed.high or (is_final and not allowed.allows(size)):
            raise InputError(
                f"'{symbol}' is {size} in this run, and the bundle was compiled for {allowed}",
                tensor=value,
                hint=f"compile it with --range '{symbol}=LOW:HIGH'"
                + ("; a size that is no number is read as -1" if size == -1 else ""),
            )
        self.sizes[symbol] = size - allowed.shift


def fed_sizes(program: ProgramRecord, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the sizes of the dynamic dimensions of a program's inputs, which have these shapes."""
    return {
        dim: size
        for name, dims in program.shapes.items()
        for dim, size in zip(dims, shapes[name])
        if isinstance(dim, str)
    }


def stack_on_host(rows: Sequence[RuntimeValue], stacked: StackedValue, sizes: Mapping[str, int]) -> RuntimeValue:
    """Return rows that are on the host, or none at all, along a new first axis."""
    if rows:
        return RuntimeValue(np.stack([row.host for row in rows]), "compiler")
    shape = (0, *(evaluate(size, sizes) for size in stacked.shape))
    return RuntimeValue(np.empty(shape, BY_NAME[stacked.dtype].numpy), "compiler")


def _apart(targets: Mapping[str, Target], feeds: Iterable[Any]) -> dict[str, Target]:
    """Return where stages may write outputs: to no tensor whose buffer is fed, since later stages may read it."""
    fed = {feed._storage.gpu.uid for feed in feeds if isinstance(feed, Tensor)}
    return {
        name: "gpu-buffer" if isinstance(target, Tensor) and target._storage.gpu.uid in fed else target
        for name, target in targets.items()
    }


class _Uses:
    """Which values the steps of a block read, in time linear in their number.

    ``before`` are those that are read at all, ``last`` for each step those that nothing behind it reads, ``locations``
    where the outputs of a stage go: on the device if a stage reads them, else to the host if a run does.
    """

    def __init__(self, steps: Sequence[Step], results: Collection[str], decisive: Collection[str]) -> None:
        self.locations: list[dict[str, str | None]] = []
        self.last: list[list[str]] = []
        device, host, live = set[str](), set(decisive), set(results)
        for step in reversed(steps):
            outputs = [port.name for port in step.outputs] if isinstance(step, StageStep) else []
            places = ("gpu-buffer" if name in device else "cpu" if name in host else None for name in outputs)
            self.locations.append(dict(zip(outputs, places)))
            self.last.append([name for name in _touched(step) if name not in live])
            device = _read_from(step, device, (), on_host=False)
            host = _read_from(step, host, decisive)
            live = _read_from(step, live, results)
        self.before = live
        self.locations.reverse()
        self.last.reverse()


def _touched(step: Step) -> set[str]:
    """Return the values that a step reads or defines in its own block."""
    names = _read_from(step, set(), ())
    if isinstance(step, StageStep):
        names.update(port.name for port in step.outputs)
        names.update(step.sizes)
    elif isinstance(step, AliasStep):
        names |= {step.value, step.source}
    elif isinstance(step, IterateStep):
        names.update(each.result for each in step.carried if each.result is not None)
        names.update(each.result for each in step.stacked)
    return names


def _live(steps: Sequence[Step], results: Collection[str], *, on_host: bool = True) -> set[str]:
    """Return the values that these steps read, ``results`` behind them included; without ``on_host`` only those that
    stages read.
    """
    names = set(results)
    for step in reversed(steps):
        names = _read_from(step, names, results, on_host=on_host)
    return names


def _read_from(step: Step, names: set[str], results: Collection[str], *, on_host: bool = True) -> set[str]:
    """Return the values that are read from a step on; ``names``, which this changes, are those read behind it."""
    if isinstance(step, StageStep):
        names.update(step.inputs)
    elif isinstance(step, AliasStep):
        if step.value in names:
            names.add(step.source)
    elif isinstance(step, (BranchStep, CompareStep)):
        names = _live(step.then, results, on_host=on_host) | _live(step.otherwise, results, on_host=on_host)
        names |= {step.condition} if on_host and isinstance(step, BranchStep) else set()
    elif isinstance(step, IterateStep):
        ends = {*(each.following for each in step.carried), *(each.row for each in step.stacked)}
        names |= _live(step.steps, ends, on_host=on_host) | {each.initial for each in step.carried}
        names |= {step.condition} if on_host and step.condition is not None else set()
    elif isinstance(step, RefuseStep):
        names = set()
    elif on_host:
        names.add(step.value)
    return names


def _no_compiler(disabled: Collection[str]) -> Lowering:
    raise InternalError("a bundle's plans are not compiled again")
