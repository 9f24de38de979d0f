"""Choose the next step: decided once for a state and its current values, and cached (:mod:`.step_cache`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from ...compiler.ir.graph import Value
from ...compiler.options import DEFAULT_LIMITS
from ...compiler.staging.control_dependence import deciding_names
from ...compiler.staging.partial_compile import Advance, Parts, StageInput, StagingContext, advance
from ...compiler.staging.program_graph import PendingNode
from ...compiler.symbolic.polynomial import Undecidable
from ...model.open_sizes import GeneralisedShape, Key
from ...plans.placement import PROVIDERS
from ...runtime.plan.errors import (
    REFUSALS,
    InternalError,
    LimitError,
    NotKnownError,
    ShaderloomError,
    ShapeError,
    UnsupportedError,
)
from ...runtime.plan.facts import EvaluationTime
from ..steps import Env, PlanStep, SizeInput, Step
from .context import ProgramContext
from .host_evaluation import HostEvaluator
from .loops import LoopStep
from .refusals import computes, refusal_of
from .segments import SegmentMaker
from .size_generalisation import open_stage_input, size_inputs, size_stage_input
from .stage_compiler import StageCompiler, Uncalibrated
from .stage_interface import facts_of_outputs
from .state import Block, State, reads_of, stage_input
from .steps import Alias, CpuStep, Fold, HostAction, HostStep, ReadElements

#: Values with more elements are not compiled in, even if the compiler knows them
MOST_STATIC_ELEMENTS = DEFAULT_LIMITS.fold_elements


class ProgramBuilder:
    """Builds the steps of one model's program on one device.  With ``cpu_options`` None there is no cpu provider."""

    def __init__(self, context: ProgramContext, cpu_options: Mapping[str, Any] | None) -> None:
        self._context = context
        self._scope = context.scope
        self._evaluator = HostEvaluator(context)
        outputs = tuple(port.name for port in context.imported.outputs)
        self.main = Block("main", tuple(context.scope.nodes()), outputs)
        self.stages = StageCompiler(context)
        self._segments = None if cpu_options is None else SegmentMaker(context.imported, context.scope, cpu_options)
        self._parts: Parts = {}
        self._loops: dict[tuple[PendingNode, frozenset[str]], LoopStep] = {}

    def build(self, state: State, env: Env, key: Key | None = None) -> tuple[Step, State]:
        """Return the next step from ``state`` and the state after it.

        With the ``key`` of the current values a plan serves a range of sizes if these keep changing.  Raises the
        refusals that no later step and no other provider can resolve.
        """
        aliases = [
            item
            for item in state.pending
            if item.synthetic and item.node.op == "Identity" and item.inputs[0] in env and len(item.outputs) == 1
        ]
        if aliases:
            left = tuple(item for item in state.pending if item not in aliases)
            static_names = state.static_names | {
                item.outputs[0] for item in aliases if item.inputs[0] in state.static_names
            }
            pairs = tuple((item.inputs[0], item.outputs[0]) for item in aliases)
            return self._host_step(*(Alias(*pair) for pair in pairs)), state.block.state(left, static_names)
        refused: dict[PendingNode, ShaderloomError] = {}
        waiting: set[PendingNode] = set()
        while True:
            reached = self._advance(state, env, refused, waiting)
            for item in reached.split:
                self._context.place(item, "wgpu", "in stages: how many elements it gives is counted first")
            if reached.refused and self._segments is None:
                raise refusal_of(reached.refused, self._context.imported if state.block is self.main else None)
            here = tuple(sorted(name for name in reached.wanted if name in env and name not in state.static_names))
            if here:
                return self._host_step(*map(ReadElements, here)), state.block.state(
                    state.pending, state.static_names | set(here)
                )
            folded = self._fold_step(state, reached, env)
            if folded is not None:
                return folded
            if reached.done:
                if key is not None:
                    step = self._open_step(state, reached, key, refused, waiting)
                    if step is not None:
                        return step
                try:
                    recompute = partial(self._advance_from, state, reached.inputs, dict(refused), set(waiting))
                    return self._device_step(state, reached, recompute)
                except REFUSALS as error:
                    self._sort_out(error, reached, refused, waiting)
                    continue
            return self._provider_step(state, reached, env)

    def _advance(
        self,
        state: State,
        env: Env,
        refused: dict[PendingNode, ShaderloomError],
        waiting: set[PendingNode],
    ) -> Advance:
        inputs = {name: stage_input(env[name], name in state.static_names) for name in state.live if name in env}
        return self._advance_from(state, inputs, refused, waiting)

    def _advance_from(
        self,
        state: State,
        inputs: Mapping[str, StageInput],
        refused: Mapping[PendingNode, ShaderloomError],
        waiting: Collection[PendingNode],
    ) -> Advance:
        context = StagingContext(
            self._scope.constants,
            self._context.limits,
            self._context.open_branch,
            self._parts,
            transposed=self._scope.transposed,
        )
        return advance(state.block.name, state.pending, inputs, context, refused, waiting)

    def _host_step(self, *actions: HostAction) -> HostStep:
        return HostStep(actions, self._evaluator)

    def _fold_step(self, state: State, reached: Advance, env: Env) -> tuple[Step, State] | None:
        """Return a step that computes conditions and counts from small values on the host; None if there are none."""
        wanted = set(reached.wanted)
        for item in reached.loops:
            wanted.update(item.inputs[:2] if item.node.op == "Loop" else ())
        nodes, names = self._evaluator.foldable(sorted(wanted), reached, env)
        if not names:
            return None
        left = tuple(
            item
            for item in (*reached.done, *reached.pending)
            if not all(name in names for name in item.outputs if name)
        )
        for item in nodes:
            self._context.place(item, "folded", "computed on the host from small inputs of a run")
        return self._host_step(Fold(tuple(nodes), tuple(names))), state.block.state(
            left, state.static_names | set(names)
        )

    # -- the device --------------------------------------------------------------------------------------------------

    def _open_step(
        self,
        state: State,
        reached: Advance,
        key: Key,
        refused: dict[PendingNode, ShaderloomError],
        waiting: set[PendingNode],
    ) -> tuple[Step, State] | None:
        """Return a plan for a range of the sizes in ``key``; None if these do not change, or if none is possible."""
        sizes = self._context.source.sizes
        history = sizes.history(state.identity)
        while (general := history.generalise(key)) is not None:
            try:
                return self._general_step(state, reached, general, refused, waiting)
            except (LimitError, ShapeError, UnsupportedError, Undecidable) as error:
                reason = str(error) or "a choice of the compiler holds for some of the sizes only"
            except Uncalibrated:
                reason = "in half precision the run that was looked at did not cover it"
            sizes.refuse(state.identity, key, general, reason)
        return None

    def _general_step(
        self,
        state: State,
        reached: Advance,
        general: GeneralisedShape,
        refused: dict[PendingNode, ShaderloomError],
        waiting: set[PendingNode],
    ) -> tuple[Step, State]:
        """Return a plan for all sizes that are ``general``.

        Raises :class:`ShapeError` unless it covers what was ``reached`` for the current sizes, and leaves the same
        nodes pending.
        """
        inputs = {name: open_stage_input(general, name, value) for name, value in reached.inputs.items()}
        rows = size_inputs(general, inputs)
        if rows.keys() & reached.values.keys():
            raise ShapeError("the model uses the name that an input for the size would have")
        inputs.update((name, size_stage_input(size_input.symbol)) for name, size_input in rows.items())
        recompute = partial(self._advance_from, state, inputs, dict(refused), set(waiting))
        wide = recompute()
        if not _is_same_stage(reached, wide):
            raise ShapeError("what can be compiled depends on the size")
        return self._device_step(state, wide, recompute, general, rows)

    def _device_step(
        self,
        state: State,
        reached: Advance,
        recompute: Callable[[], Advance],
        general: GeneralisedShape | None = None,
        size_inputs: Mapping[str, SizeInput] | None = None,
    ) -> tuple[Step, State]:
        """Return the stage as a step; ``recompute`` gives what was ``reached`` again: compiling mutates the graph."""
        pending = tuple(reached.pending)
        computed = {name for item in reached.done for name in item.outputs if name}
        results = set(state.block.outputs)
        read: dict[str, list[PendingNode]] = {}
        for item in pending:
            for name in reads_of(item):
                read.setdefault(name, []).append(item)
        outputs: dict[str, str | None] = {}
        static_names = set(state.static_names)
        for name in sorted(computed & (results | set(read))):
            value = reached.values[name].static_value
            if value is not None and value.dtype != object and value.size <= MOST_STATIC_ELEMENTS:
                static_names.add(name)
                outputs[name] = "cpu"
            elif name in reached.wanted or (name in read and self._host_alone(name, read[name], reached)):
                outputs[name] = "cpu"
                if name in reached.wanted:
                    static_names.add(name)
            else:
                outputs[name] = "gpu-buffer" if name in read else None
        # what the caller gets, and what is compiled in, has the declared type
        crossing = {
            name for name in outputs if name not in static_names and (name in read or state.block is not self.main)
        }
        declared = {name: reached.values[name].dtype for name in crossing}  # compiling changes the values
        following = state.block.state(pending, frozenset(static_names))
        if not outputs:
            for item in reached.done:
                self._context.place(item, *PROVIDERS[EvaluationTime.FOLDED])
            return self._host_step(), following
        compiled, recompile = self.stages.compile(state, reached, outputs, crossing, recompute, general)
        resources = self._context.resources
        executor, costs = resources.load(compiled, self._context.pool, is_range=general is not None)
        for item, placement in zip(reached.done, compiled.plan.facts.nodes):
            self._context.place(item, *PROVIDERS[placement])
        facts = facts_of_outputs(compiled.plan, declared)
        return PlanStep(executor, outputs, resources.device, recompile, size_inputs, general, facts, costs), following

    @staticmethod
    def _host_alone(name: str, readers: Sequence[PendingNode], reached: Advance) -> bool:
        """Return whether all readers of a value read it on the host."""
        return all(
            item in reached.refused or (item in reached.loops and item.node.op == "Loop" and name in item.inputs[:2])
            for item in readers
        )

    def _sort_out(
        self,
        error: ShaderloomError,
        reached: Advance,
        refused: dict[PendingNode, ShaderloomError],
        waiting: set[PendingNode],
    ) -> None:
        """Record the node that the compiler refused after its shapes were known, so that it is not tried again."""
        origin = error.origin
        guilty = [item for item in reached.done if origin is not None and computes(item, origin)]
        if isinstance(error, NotKnownError) and guilty and not waiting.issuperset(guilty):
            waiting.update(guilty)
            return
        if self._segments is None:
            raise error
        error.__traceback__ = error.__context__ = None  # the frames hold values
        refused.update(dict.fromkeys(guilty or reached.done, error))

    # -- the host ----------------------------------------------------------------------------------------------------

    def _provider_step(self, state: State, reached: Advance, env: Env) -> tuple[Step, State]:
        pending = tuple(reached.pending)
        for item in pending:
            if item in reached.loops and all(self._is_there(name, env) for name in item.reads):
                left = tuple(other for other in pending if other is not item)
                return self._loop(item, left, state.block), state.block.state(left, state.static_names)
        if self._segments is not None:
            chosen = self._segments.choose(pending, reached.refused, env)
            if chosen:
                left = tuple(item for item in pending if item not in chosen)
                needed = set(state.block.outputs) | {name for item in left for name in reads_of(item)}
                outputs = [name for item in chosen for name in item.outputs if name and name in needed]
                segment, inputs = self._segments.make(list(chosen), outputs)
                for item, reason in chosen.items():
                    self._context.place(item, "cpu", reason.reason)
                return CpuStep(segment, inputs, chosen), state.block.state(left, state.static_names)
        stuck = ", ".join(str(item.origin) for item in pending[:5])
        raise InternalError(f"no provider can run {stuck}")

    def _is_there(self, name: str, env: Env) -> bool:
        return name in env or self._context.is_constant(name)

    def _loop(self, item: PendingNode, following: Sequence[PendingNode], block: Block) -> LoopStep:
        deciding = deciding_names(following, block.control) if self._context.half else set()
        key = item, frozenset(deciding.intersection(item.outputs))
        if key not in self._loops:
            self._loops[key] = LoopStep(item, self._context, key[1])
        self._context.place(item, "wgpu", "its iterations run one after another; how many is known at run time")
        return self._loops[key]


def _is_same_stage(reached: Advance, wide: Advance) -> bool:
    """Return whether a stage of open sizes has the nodes of the one for the current sizes, and leaves the same pending.

    No known elements may have become open.
    """
    if (reached.done, reached.pending, reached.wanted, reached.loops) != (
        wide.done,
        wide.pending,
        wide.wanted,
        wide.loops,
    ):
        return False
    if reached.refused.keys() != wide.refused.keys():
        return False
    read = {name for item in reached.pending for name in reads_of(item)}
    computed = read & reached.values.keys() - reached.inputs.keys()
    return all(reached.values[name].static_value is None or _is_static(wide.values[name]) for name in computed)


def _is_static(value: Value) -> bool:
    return value.static_value is not None and value.static_value.dtype != object
