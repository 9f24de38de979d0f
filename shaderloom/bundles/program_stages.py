"""The stages of a program that is compiled ahead of time: how far known values lead, and the plan of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..compiler.ir.graph import Value
from ..compiler.options import DEFAULT_LIMITS, Limits
from ..compiler.passes.lowering import CompilationUnit
from ..compiler.staging.partial_compile import Advance, Parts, StageInput, StagingContext, advance
from ..compiler.staging.program_graph import PendingNode, make_node
from ..compiler.symbolic import polynomial as ix
from ..execution.program.context import ProgramModel
from ..execution.program.stage_interface import constraints, facts_of_outputs
from ..execution.program.state import Block, State, reads_of
from ..runtime.bundle.program import StageStep, Step
from ..runtime.plan.errors import LimitError, Origin, ShaderloomError
from ..runtime.plan.plan import Plan, Symbol
from .program_comparisons import Decided
from .program_equality import Equalities
from .program_ranges import ProgramRanges
from .program_sizes import size_inputs, symbols_of

#: What is known of values while compiling, by qualified name
Values = dict[str, StageInput]

#: Values with more elements are not compiled in
KNOWN_ELEMENTS = DEFAULT_LIMITS.fold_elements
#: Stages of a program, those of all branches counted
MOST_STAGES = 256

#: The origin of nodes that store results which no node of the file computes in a step
_NOWHERE = Origin("main", 0, "Identity")

#: Returns the plan of a unit for the target, and the one for adapters that compute on the CPU; compiling a unit changes
#: it, so there is a function for each new one
CompileStage = Callable[[Callable[[], CompilationUnit], Limits], tuple[Plan, "Plan | None"]]


class ProgramStages:
    """Compiles the stages of one program with ``compile_stage``; ``plans`` has theirs by key.

    ``symbols`` are those of the dimensions of inputs, ``ranges`` has those of integers that are read.
    """

    def __init__(
        self,
        program: ProgramModel,
        symbols: Sequence[Symbol],
        ranges: ProgramRanges,
        compile_stage: CompileStage,
    ) -> None:
        self._program = program
        self._ranges = ranges
        self._compile_stage = compile_stage
        self._symbols = {symbol.name: symbol for symbol in symbols}
        self._reads: dict[str, tuple[str, ...]] = {}  #: the symbols of a value's elements
        self._equal = Equalities()
        self._decided_sizes = Decided()
        self._parts: Parts = {}
        self._stages = 0
        self.plans: dict[str, Plan] = {}

    def _advance(
        self,
        state: State,
        values: Values,
        refused: Mapping[PendingNode, ShaderloomError],
        waiting: set[PendingNode],
        further: Mapping[str, StageInput] | None = None,
        decided: Decided | None = None,
    ) -> Advance:
        """Specialise what can be from the ``values`` that the state reads, and ``further`` ones."""
        inputs = {name: values[name] for name in state.live if name in values}
        program = self._program
        sizes = (decided or self._decided_sizes).sizes
        scope = program.scope
        context = StagingContext(
            scope.constants, program.limits, program.open_branch, self._parts, True, sizes, scope.transposed
        )
        return advance(state.block.name, state.pending, {**inputs, **(further or {})}, context, refused, waiting)

    def _stored(self, block: Block, values: Values, names: Mapping[str, str]) -> tuple[list[Step], Values]:
        """Return the stage that computes values under other names, of which no step has computed some."""
        if not names:
            return [], values
        scope = self._program.scope
        nodes = [make_node("Identity", scope, [name], [other], _NOWHERE) for name, other in names.items()]
        return self._computed(block, values, nodes, tuple(names.values()))

    def _computed(
        self, block: Block, values: Values, nodes: Sequence[PendingNode], results: Sequence[str]
    ) -> tuple[list[Step], Values]:
        """Return the stage of nodes that no file has, beside a block, and what is known behind it."""
        inner = Block(f"{block.name} {min(results)}", tuple(nodes), tuple(results))
        state = inner.state(inner.nodes, frozenset())
        steps, _, following = self._stage(state, values, self._advance(state, values, {}, set()), {}, set())
        return steps, following

    def _stage(
        self,
        state: State,
        values: Values,
        reached: Advance,
        refused: Mapping[PendingNode, ShaderloomError],
        waiting: set[PendingNode],
    ) -> tuple[list[Step], State, Values]:
        """Compile what was reached; return the step, the state behind it and what is known there."""
        read = {name for item in reached.pending for name in reads_of(item)}
        results = set(state.block.outputs)
        following = dict(values)
        outputs, declared = [], {}
        for item in reached.done:
            self._equal.note(item, state.block.name, reached.values)
        for name in sorted({name for item in reached.done for name in item.outputs if name} & (results | read)):
            value = reached.values[name]
            static = value.static_value if value.static_value is not None else self._equal_symbols(name, value, values)
            is_compiled_in = static is not None and static.size <= KNOWN_ELEMENTS
            following[name] = StageInput(value.dtype, value.shape, static if is_compiled_in else None)
            declared[name] = value.dtype
            if not is_compiled_in or name in results:
                outputs.append(name)
        behind = state.block.state(tuple(reached.pending), frozenset())
        if not outputs:
            return [], behind, following
        rows = size_inputs(reached, self._symbol)
        crossing = {name for name in outputs if name not in results and following[name].static_value is None}

        decided = self._decided_sizes

        def unit() -> CompilationUnit:
            again = self._advance(state, values, refused, set(waiting), rows, decided)
            interface = constraints(self._program, state.block, again, outputs, crossing)
            nodes = [item.node for item in again.done]
            symbols = tuple(self._symbol(name) for name in sorted(symbols_of(again)))
            return CompilationUnit(lambda _: again.finish(outputs), nodes, symbols, interface)

        self._stages += 1
        if self._stages > MOST_STAGES:
            raise LimitError(f"a program has more than {MOST_STAGES} stages, those of all branches counted")
        plan, software = self._compile_stage(unit, self._program.limits)
        self.plans.update((each.key, each) for each in (plan, software) if each is not None)
        for name, facts in facts_of_outputs(plan, declared).items():
            held = following[name]
            following[name] = StageInput(held.dtype, held.shape, held.static_value, facts=facts)
        names = [port.name for port in plan.inputs]
        sizes = {name: rows[name].symbol for name in names if name in rows}
        step = StageStep(
            plan.key,
            None if software is None else software.key,
            tuple(name for name in names if name not in rows),
            sizes,
            plan.outputs,
        )
        return [step], behind, following

    def _equal_symbols(self, name: str, value: Value, values: Values) -> np.ndarray | None:
        """Return the symbols of integers that equal those of a value which was read; None if there is none."""
        symbols = self._reads.get(self._equal.source(name), ())
        if not symbols or value.dtype is None or value.dtype.is_float:
            return None
        same = (values.get(other) for other in values if self._equal.source(other) == self._equal.source(name))
        static = next((each.static_value for each in same if each is not None and each.static_value is not None), None)
        return None if static is None else static.reshape([ix.number(size) for size in value.shape])

    def _symbol(self, name: str) -> Symbol:
        return self._symbols.get(name) or Symbol(name, *self._ranges.by_symbol[name].sizes)
