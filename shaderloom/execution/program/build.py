"""Which step comes next: found once for a state and the values that are there, and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from onnx import numpy_helper

from ...compiler.frontend.model import ImportedModel
from ...compiler.ir.constants import InlineSource
from ...compiler.ir.graph import Value
from ...compiler.options import DEFAULT_LIMITS
from ...compiler.passes.lowering import CompilationUnit
from ...compiler.precision.float16_storage import Borders
from ...compiler.staging.control_dependence import deciding_names
from ...compiler.staging.partial_compile import Advance, Operand, Parts, advance
from ...compiler.staging.program_graph import PendingNode, ProgramScope, branch_nodes
from ...compiler.symbolic.polynomial import Undecidable
from ...model.model import Model
from ...model.plan_source import Compiled
from ...plans.placement import PROVIDERS
from ...runtime.execution.weight_pool import WeightPool
from ...runtime.plan.dtypes import to_border
from ...runtime.plan.errors import (
    DeviceLimitError,
    InputError,
    InternalError,
    LimitError,
    NotKnownError,
    Origin,
    ShaderloomError,
    ShapeError,
    UnsupportedError,
)
from ...runtime.plan.facts import NodePlacement
from ...runtime.plan.plan import Symbol
from ..engine import WgpuEngine
from .loops import LoopStep
from .refusals import computes, refusal_of
from .segments import SegmentMaker
from .size_generalisation import Carrier, Opened
from .stage_interface import BorderFacts
from .stage_source import StageSource
from .steps import AliasStep, Block, CpuStep, DeviceStep, Env, FoldStep, ReadStep, State, Step, reads_of
from .values import Held

#: Values with more elements are not compiled in, even if the compiler knows them
KNOWN_ELEMENTS = DEFAULT_LIMITS.fold_elements
#: What the host computes between stages: from values of at most so many elements, by at most so many nodes
FOLDED_ELEMENTS, FOLDED_NODES = 64, 32


#: Why a stage of a model in half precision is float32 as a whole
NOT_SEEN = "the run in full precision that was looked at took other branches or sizes, so what it reaches is not known"


class NotSeen(Exception):
    """A stage in half precision has nodes that no calibration has seen."""


class ProgramBuilder:
    """Makes the steps of one model's program on one device."""

    def __init__(
        self,
        source: Model,
        engine: WgpuEngine,
        cpu_options: dict[str, Any] | None,
        run_block: Any,
        pool: WeightPool | None = None,
    ) -> None:
        """``cpu_options`` None: there is no cpu provider.  ``run_block`` runs a block, for loops.

        With a ``pool`` of weights it is a program in full precision whatever the model's precision is.
        """
        self.pool = pool
        self.half = source.half and pool is None
        self.keep_sources = False  #: of stages, for somebody who looks into them
        self.settled = False  #: nodes that no calibration has seen stay in full precision
        self.facts = BorderFacts()
        self.whole: dict[str, str] = {}  #: plans that are float32 as a whole in half precision, and why
        self.source = source
        self.engine = engine
        self.imported: ImportedModel = source.imported
        self.scope = ProgramScope(self.imported.graph)
        self.main = Block("main", tuple(self.scope.nodes()), tuple(port.name for port in self.imported.outputs))
        self.segments = None if cpu_options is None else SegmentMaker(self.imported, self.scope, cpu_options)
        limits = source.limits
        self.limits = replace(limits, loop_steps=min(limits.loop_steps, DEFAULT_LIMITS.loop_steps), every_size=True)
        self.run_block = run_block
        #: (graph, index) of a node -> (provider, reason)
        self.placed: dict[tuple[str, int], tuple[Origin, str, str, str]] = {}
        self._branches: dict[tuple[PendingNode, bool], list[PendingNode]] = {}
        self._parts: Parts = {}
        self._loops: dict[tuple[PendingNode, frozenset[str]], LoopStep] = {}
        self._count = 0

    def build(self, state: State, env: Env, opened: Opened | None = None) -> tuple[Step, State]:
        """The next step from here, if it is a plan for all sizes that are ``opened``, should that be possible.  Raises
        what no later step can mend.
        """
        aliases = [
            item
            for item in state.pending
            if item.made and item.node.op == "Identity" and item.inputs[0] in env and len(item.outputs) == 1
        ]
        if aliases:
            left = tuple(item for item in state.pending if item not in aliases)
            known = state.known | {item.outputs[0] for item in aliases if item.inputs[0] in state.known}
            pairs = tuple((item.inputs[0], item.outputs[0]) for item in aliases)
            self.facts.same(pairs)
            return AliasStep(pairs), state.block.state(left, known)
        refused: dict[PendingNode, ShaderloomError] = {}
        waiting: set[PendingNode] = set()
        while True:
            found = self._advance(state, env, refused, waiting)
            for item in found.split:
                self._place(item, "wgpu", "in stages: how many elements it gives is counted first")
            if found.refused and self.segments is None:
                raise refusal_of(found.refused, self.imported if state.block is self.main else None)
            here = tuple(sorted(name for name in found.wanted if name in env and name not in state.known))
            if here:
                return ReadStep(here), state.block.state(state.pending, state.known | set(here))
            folded = self._fold_step(state, found, env)
            if folded is not None:
                return folded
            if found.done:
                if opened is not None:
                    step = self._open_step(state, found, opened, refused, waiting)
                    if step is not None:
                        return step
                try:
                    again = partial(self._advance_from, state, found.operands, dict(refused), set(waiting))
                    return self._device_step(state, found, again)
                except (UnsupportedError, ShapeError, DeviceLimitError) as error:
                    self._sort_out(error, found, refused, waiting)
                    continue
            return self._host_step(state, found, env)

    def _advance(
        self,
        state: State,
        env: Env,
        refused: dict[PendingNode, ShaderloomError],
        waiting: set[PendingNode],
    ) -> Advance:
        operands = {name: env[name].operand(name in state.known) for name in state.live if name in env}
        return self._advance_from(state, operands, refused, waiting)

    def _advance_from(
        self,
        state: State,
        operands: Mapping[str, Operand],
        refused: Mapping[PendingNode, ShaderloomError],
        waiting: Collection[PendingNode],
    ) -> Advance:
        return advance(
            state.block.name,
            state.pending,
            operands,
            self.scope.constants,
            self.limits,
            self._open_branch,
            refused=refused,
            waiting=waiting,
            parts=self._parts,
        )

    def _open_branch(self, item: PendingNode, taken: bool) -> list[PendingNode]:
        """The nodes of a branch, and one for each output of the If."""
        key = (item, taken)
        if key in self._branches:
            return self._branches[key]
        nodes = branch_nodes(item, taken)
        side = "then_branch" if taken else "else_branch"
        self._place(item, "folded", f"the condition is known when its stage is compiled: {side} stands in its place")
        self._branches[key] = nodes
        return nodes

    # -- the compiler ------------------------------------------------------------------------------------------------

    def _fold_step(self, state: State, found: Advance, env: Env) -> tuple[Step, State] | None:
        """Conditions and counts that follow from small values on the host: computed here, without the device."""
        wanted = set(found.wanted)
        for item in found.loops:
            wanted.update(item.inputs[:2] if item.node.op == "Loop" else ())
        nodes: list[PendingNode] = []
        names: list[str] = []
        for name in sorted(wanted):
            needed = self._ancestors(name, found, env)
            if needed and self.fold(needed, [name], env) is not None:
                names.append(name)
                nodes += [item for item in needed if item not in nodes]
        if not names:
            return None
        ordered = [item for item in found.done if item in nodes]
        left = tuple(
            item for item in (*found.done, *found.pending) if not all(name in names for name in item.outputs if name)
        )
        for item in ordered:
            self._place(item, "folded", "computed on the host from small inputs of a run")
        return FoldStep(ordered, tuple(names), self), state.block.state(left, state.known | set(names))

    def _ancestors(self, name: str, found: Advance, env: Env) -> list[PendingNode]:
        """The nodes that a value comes from, if there are few and all that they read is small and on the host.

        Integers and bools only: floats would be rounded otherwise than on the device.
        """
        needed, nodes = {name}, []
        for item in reversed(found.done):
            if needed.intersection(item.outputs):
                nodes.append(item)
                needed.update(item.reads)
        for read_name in needed:
            held = env.get(read_name)
            if held is not None and not (held.on_host and _is_small_integer(held)):
                return []
        return nodes[::-1] if len(nodes) <= FOLDED_NODES else []

    def fold(self, nodes: Sequence[PendingNode], names: Sequence[str], env: Env) -> dict[str, np.ndarray] | None:
        """The values of ``names`` by the operators' rules of folding; None if those do not tell."""
        reads = {name for item in nodes for name in item.reads if name in env}
        found = advance(
            "host",
            nodes,
            {name: env[name].operand(True) for name in reads},
            self.scope.constants,
            self.limits,
            self._open_branch,
            refused={},
            waiting=(),
        )
        values: dict[str, np.ndarray] = {}
        for name in names:
            value = found.values.get(name)
            if value is None or value.known is None or value.known.dtype == object:
                return None
            values[name] = to_border(value.known, value.dtype)
        return values

    # -- the device --------------------------------------------------------------------------------------------------

    def _open_step(
        self,
        state: State,
        found: Advance,
        opened: Opened,
        refused: dict[PendingNode, ShaderloomError],
        waiting: set[PendingNode],
    ) -> tuple[Step, State] | None:
        """A plan for all sizes that are ``opened``; None unless it goes as far as what was ``found`` for the sizes at
        hand, and leaves the same behind.
        """
        operands = {name: opened.operand(name, operand) for name, operand in found.operands.items()}
        carriers = opened.carriers(operands)
        if carriers.keys() & found.values.keys():
            return None  # of all names a model has taken these
        operands.update((name, carrier.operand) for name, carrier in carriers.items())
        again = partial(self._advance_from, state, operands, dict(refused), set(waiting))
        try:
            wide = again()
            if not _is_same_stage(found, wide):
                return None
            return self._device_step(state, wide, again, opened.symbols, carriers)
        except (LimitError, ShapeError, UnsupportedError, Undecidable):  # too large, or not the same for all the sizes
            return None

    def _device_step(
        self,
        state: State,
        found: Advance,
        again: Callable[[], Advance],
        symbols: tuple[Symbol, ...] = (),
        carriers: Mapping[str, Carrier] | None = None,
    ) -> tuple[Step, State]:
        """``again`` gives what was ``found`` once more: compiling changes the graph."""
        pending = tuple(found.pending)
        made = {name for item in found.done for name in item.outputs if name}
        results = set(state.block.outputs)
        read: dict[str, list[PendingNode]] = {}
        for item in pending:
            for name in reads_of(item):
                read.setdefault(name, []).append(item)
        outputs: dict[str, str | None] = {}
        known = set(state.known)
        for name in sorted(made & (results | set(read))):
            value = found.values[name].known
            if value is not None and value.dtype != object and value.size <= KNOWN_ELEMENTS:
                known.add(name)
                outputs[name] = "cpu"
            elif name in found.wanted or (name in read and self._host_alone(name, read[name], found)):
                outputs[name] = "cpu"
                if name in found.wanted:
                    known.add(name)
            else:
                outputs[name] = "gpu-buffer" if name in read else None
        following = state.block.state(pending, frozenset(known))
        if not outputs:
            self._place_folded(found)
            return ReadStep(()), following
        compiled, source = self._compile(state, found, outputs, again, symbols)
        executor = self.engine.executor_for(compiled, self.pool)
        for item, placement in zip(found.done, compiled.plan.facts.nodes):
            self._place(item, *PROVIDERS[placement])
        kept = source if self.keep_sources else None
        return DeviceStep(executor, outputs, self.engine.device, kept, carriers), following

    def _compile(
        self,
        state: State,
        found: Advance,
        outputs: dict[str, str | None],
        again: Callable[[], Advance],
        symbols: tuple[Symbol, ...],
    ) -> tuple[Compiled, StageSource]:
        """The plan of a stage.  In half precision it rests on what a run in full precision has reached; raises
        :class:`NotSeen` if none took its nodes.
        """
        graph = found.finish(list(outputs))
        nodes = [item.node for item in found.done]
        entries = self._entries(found, state, outputs, symbols)
        profile = self.engine.device.profile

        def make(options: Mapping[str, Any], borders: Borders | None) -> tuple[Compiled, StageSource]:
            unit = CompilationUnit(lambda _: graph, nodes, symbols, borders)
            compiled = self.source.compile_stage(
                {**entries, "borders": borders.to_json()} if borders is not None else entries,
                profile,
                unit,
                options,
                self.limits,
            )
            compilation = replace(self.source.compilation(profile, options), limits=self.limits)
            fresh = replace(unit, specialise=lambda _: again().finish(list(outputs)))
            return compiled, StageSource(fresh, compilation)

        if not self.half:
            return make(self.source.reference_options if self.source.half else self.source.full_precision, None)
        deciding = {*state.block.deciding, *found.wanted}
        inputs = [value.name for value in graph.inputs]
        compiled, source = make(
            self.source.compiler_options, self.facts.of_stage(inputs, outputs, found.pending, deciding)
        )
        precision = compiled.plan.facts.precision
        assert precision is not None, "the plan is in half precision"
        calibration = self.source.calibration
        if calibration is not None and not calibration.covers(precision.measured):
            if not self.settled:
                raise NotSeen
            # chance, or a provider's rounding, has decided otherwise in the run that was looked at
            graph = again().finish(list(outputs))
            compiled, source = make(self.source.reference_options, None)
            self.whole[compiled.plan.key] = NOT_SEEN
            return compiled, source
        self.facts.learn(precision)
        return compiled, source

    @staticmethod
    def _host_alone(name: str, readers: Sequence[PendingNode], found: Advance) -> bool:
        """Whether all that read a value read it on the host."""
        return all(
            item in found.refused or (item in found.loops and item.node.op == "Loop" and name in item.inputs[:2])
            for item in readers
        )

    @staticmethod
    def _entries(
        found: Advance, state: State, outputs: dict[str, str | None], symbols: tuple[Symbol, ...]
    ) -> dict[str, Any]:
        """What tells the plan of this stage from every other plan of the model."""
        digest = hashlib.sha256()
        for name, operand in sorted(found.operands.items()):
            digest.update(f"{name}\0{operand.dtype}\0{list(operand.shape)}\0".encode())
            if operand.known is not None and operand.known.dtype == object:
                digest.update(f"{operand.known.tolist()}".encode())
            elif operand.known is not None:
                digest.update(np.ascontiguousarray(operand.known).tobytes())
        nodes = [[item.scope.prefix, item.origin.index, item.node.op, item.made] for item in found.done]
        return {
            "block": state.block.name,
            "nodes": nodes,
            "operands": digest.hexdigest(),
            "outputs": sorted(outputs),
            "symbols": [[symbol.name, *symbol.range] for symbol in symbols],
        }

    def _sort_out(
        self,
        error: ShaderloomError,
        found: Advance,
        refused: dict[PendingNode, ShaderloomError],
        waiting: set[PendingNode],
    ) -> None:
        """The compiler refused a node after its shapes were known; it must not be tried again."""
        origin = error.origin
        guilty = [item for item in found.done if origin is not None and computes(item, origin)]
        if isinstance(error, NotKnownError) and guilty and not waiting.issuperset(guilty):
            waiting.update(guilty)
            return
        if self.segments is None:
            raise error
        error.__traceback__ = error.__context__ = None  # the frames hold values
        refused.update(dict.fromkeys(guilty or found.done, error))

    # -- the host ----------------------------------------------------------------------------------------------------

    def _host_step(self, state: State, found: Advance, env: Env) -> tuple[Step, State]:
        pending = tuple(found.pending)
        for item in pending:
            if item in found.loops and all(self._is_there(name, env) for name in item.reads):
                left = tuple(other for other in pending if other is not item)
                return self._loop(item, left, state.block), state.block.state(left, state.known)
        if self.segments is not None:
            chosen = self.segments.choose(pending, found.refused, env)
            if chosen:
                left = tuple(item for item in pending if item not in chosen)
                needed = set(state.block.outputs) | {name for item in left for name in reads_of(item)}
                outputs = [name for item in chosen for name in item.outputs if name and name in needed]
                segment, inputs = self.segments.make(list(chosen), outputs)
                for item, reason in chosen.items():
                    self._place(item, "cpu", reason.reason)
                return CpuStep(segment, inputs, next(iter(chosen.values()))), state.block.state(left, state.known)
        stuck = ", ".join(str(item.origin) for item in pending[:5])
        raise InternalError(f"no provider can go on with {stuck}")

    def _is_there(self, name: str, env: Env) -> bool:
        return name in env or name in self.scope.constants or name in self.scope.foreign

    def _loop(self, item: PendingNode, following: Sequence[PendingNode], block: Block) -> LoopStep:
        deciding = deciding_names(following, block.deciding) if self.half else set()
        key = item, frozenset(deciding.intersection(item.outputs))
        if key not in self._loops:
            self._loops[key] = LoopStep(item, self, key[1])
        self._place(item, "wgpu", "its steps run one after another; how many is known at run time")
        return self._loops[key]

    # -- constants ---------------------------------------------------------------------------------------------------

    def constant(self, name: str) -> Held:
        """A constant of the model as a value."""
        source = self.scope.constants.get(name)
        if source is not None:
            return Held(to_border(source.read(), source.dtype), "compiler")
        foreign = self.scope.foreign[name]
        assert self.imported.restore is not None, "a model that was read has its payloads"
        if hasattr(foreign, "values"):
            raise InputError("a sparse initializer cannot be an output", tensor=name)
        return Held(numpy_helper.to_array(self.imported.restore(foreign)), "compiler")

    def add_constant(self, name: str, array: np.ndarray) -> None:
        self.scope.constants[name] = InlineSource(array)

    # -- reports -----------------------------------------------------------------------------------------------------

    def _place(self, item: PendingNode, provider: str, reason: str) -> None:
        if not item.made:
            where = (item.scope.prefix, item.origin.index)
            self.placed[where] = (item.origin, item.node.domain, provider, reason)

    def _place_folded(self, found: Advance) -> None:
        for item in found.done:
            self._place(item, *PROVIDERS[NodePlacement.FOLDED])


def _is_same_stage(found: Advance, wide: Advance) -> bool:
    """Whether a stage of open sizes has the nodes of the one for the sizes at hand, and leaves the same to others: no
    elements that were known may have become open.
    """
    if (found.done, found.pending, found.wanted, found.loops) != (wide.done, wide.pending, wide.wanted, wide.loops):
        return False
    if found.refused.keys() != wide.refused.keys():
        return False
    read = {name for item in found.pending for name in reads_of(item)}
    made = read & found.values.keys() - found.operands.keys()
    return all(found.values[name].known is None or _is_known(wide.values[name]) for name in made)


def _is_known(value: Value) -> bool:
    return value.known is not None and value.known.dtype != object


def _is_small_integer(held: Held) -> bool:
    dtype = held.dtype
    return dtype is not None and not dtype.is_float and held.host.size <= FOLDED_ELEMENTS
