"""Ahead-of-time compilation of a model that is no single plan: its steps for all values that a run may meet.

A session decides each step of a program when it knows the values (:mod:`..execution.program`).  Here an integer that
decides something is a symbol with a range, as the dimensions of inputs are; a condition is decided both ways, and each
side is compiled to its end.  What a stage computes from symbols alone is known to the stages behind it as polynomials,
so no step computes sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..compiler.ir.graph import Value
from ..compiler.options import DEFAULT_LIMITS, Limits
from ..compiler.passes.lowering import CompilationUnit
from ..compiler.staging.control_dependence import deciding_names
from ..compiler.staging.partial_compile import Advance, Parts, StageInput, StagingContext, advance
from ..compiler.staging.program_graph import PendingNode, make_node
from ..compiler.symbolic import polynomial as ix
from ..compiler.symbolic.dimensions import dimension, serialise
from ..execution.program.context import ProgramModel
from ..execution.program.refusals import computes, refusal_of
from ..execution.program.stage_interface import constraints, facts_of_outputs
from ..execution.program.state import Block, State, reads_of
from ..model.feeds import ShapeKey
from ..model.model import Model
from ..runtime.bundle.program import AliasStep, BranchStep, ProgramRecord, ReadStep, RefuseStep, StageStep, Step
from ..runtime.plan.dtypes import BOOL
from ..runtime.plan.errors import (
    InputError,
    InternalError,
    LimitError,
    NotKnownError,
    Origin,
    ShaderloomError,
    ShapeError,
    UnsupportedError,
)
from ..runtime.plan.plan import Plan, Symbol
from ..runtime.plan.size_range import SizeRange
from .program_choices import axes_rank, choices_of, comparisons
from .program_equality import Equalities
from .program_loop import ProgramLoop
from .program_ranges import (
    UPPER_BOUNDS,
    ProgramRanges,
    SmallerRanges,
    extents,
    may_be_negative,
    most_elements,
    upper_bounds,
)
from .program_sizes import integers, partly_known, size_inputs, symbols_of

#: What is known of values while compiling, by qualified name
Values = dict[str, StageInput]

#: Values with more elements are not compiled in; more integers than the second are not read
KNOWN_ELEMENTS, READ_ELEMENTS = DEFAULT_LIMITS.fold_elements, 64
#: Stages of a program, those of all branches counted
MOST_STAGES = 256

#: The origin of nodes that store results which no node of the file computes in a step
_NOWHERE = Origin("main", 0, "Identity")

#: Returns the plan of a unit for the target, and the one for adapters that compute on the CPU; compiling a unit changes
#: it, so there is a function for each new one
CompileStage = Callable[[Callable[[], CompilationUnit], Limits], tuple[Plan, "Plan | None"]]


def compile_program(
    model: Model,
    key: ShapeKey,
    shapes: Mapping[str, tuple[int, ...]],
    ranges: Mapping[str, SizeRange],
    compile_stage: CompileStage,
) -> tuple[ProgramRecord, dict[str, Plan]]:
    """Return the program of a model for one shape key, and the plans of its stages by key.

    ``ranges`` are those of the integers that a run reads, by the name of the value, with the position among its
    elements if it has several: ``count``, ``sizes[1]``.  ``compile_stage`` compiles each of the stages.

    Raises the refusals of nodes that need the cpu, :class:`UnsupportedError` for decisions that depend on floats, and
    :class:`LimitError` where no range fits the target.
    """
    most: dict[str, int] = {}
    while True:
        compiler = _ProgramCompiler(model, key, shapes, ranges, most)
        try:
            program = compiler.compile(compile_stage)
        except SmallerRanges as smaller:
            most.update(smaller.bounds)
            continue
        keys = {key for stage in program.stages for key in (stage.key, stage.software) if key is not None}
        return program, {key: plan for key, plan in compiler.plans.items() if key in keys}


class _ProgramCompiler:
    """Compiles one program; see :func:`compile_program`.  Sizes without a declared range are at most those in ``most``,
    by symbol.
    """

    def __init__(
        self,
        model: Model,
        key: ShapeKey,
        shapes: Mapping[str, tuple[int, ...]],
        ranges: Mapping[str, SizeRange],
        most: Mapping[str, int],
    ) -> None:
        self._program = ProgramModel(model)
        self._key = key
        self._bound = model.bind(shapes, key)
        self._ranges = ProgramRanges(ranges, most)
        self._reads: dict[str, tuple[str, ...]] = {}  #: the symbols of a value's elements
        self._equal = Equalities()
        self._parts: Parts = {}
        self._stages = 0
        self._ends: dict[str, list[Values]] = {}  #: what is known of the values where a block ends, for each branch
        self._symbols = {symbol.name: symbol for symbol in self._bound.symbols}
        self.plans: dict[str, Plan] = {}

    def compile(self, compile_stage: CompileStage) -> ProgramRecord:
        """Return the program; once only."""
        self._compile_stage = compile_stage
        imported = self._program.imported
        dtypes = {port.name: port.dtype for port in (*imported.inputs, *imported.overridable)}
        values: Values = {name: StageInput(dtypes[name], shape) for name, shape in self._bound.shapes.items()}
        outputs = tuple(port.name for port in imported.outputs)
        block = Block("main", tuple(self._program.scope.nodes()), outputs)
        steps = self._steps(block.state(block.nodes, frozenset()), values)
        unread = self._ranges.declared.keys() - self._ranges.by_symbol.keys()
        if unread:
            raise InputError(
                f"no run reads '{min(unread)}', for which there is a range",
                hint=f"what is read are {', '.join(sorted(self._ranges.by_symbol)) or 'no integers'}",
            )
        return ProgramRecord.of(dict(self._key.dims), self._ranges.by_symbol, steps)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _steps(self, state: State, values: Values) -> tuple[Step, ...]:
        """Return the steps from a state to the end of its block.  ``values`` is what is known of the values there."""
        steps: list[Step] = []
        refused: dict[PendingNode, ShaderloomError] = {}
        waiting: set[PendingNode] = set()
        while state.pending:
            aliases = [item for item in state.pending if _is_alias(item, values)]
            if aliases:
                steps += [AliasStep(item.outputs[0], item.inputs[0]) for item in aliases]
                values = {**values, **{item.outputs[0]: values[item.inputs[0]] for item in aliases}}
                state = _without(state, aliases)
                continue
            reached = self._advance(state, values, refused, waiting)
            joined = partly_known(reached) - waiting
            if joined:
                waiting |= joined
                continue
            wanted = sorted(name for name in reached.wanted if name in values and values[name].static_value is None)
            if reached.refused:
                raise refusal_of(reached.refused, self._program.imported)
            if wanted:
                return (*steps, *self._decided(state, values, reached, wanted[0]))
            if not reached.done:
                return (*steps, *self._looped(state, values, reached))
            try:
                step, state, values = self._stage(state, values, reached, refused, waiting)
            except NotKnownError as error:
                guilty = [item for item in reached.done if error.origin is not None and computes(item, error.origin)]
                if not guilty or waiting.issuperset(guilty):
                    raise
                waiting.update(guilty)
                continue
            steps += step
        self._ends.setdefault(state.block.name, []).append(values)
        return (*steps, *self._results(state.block, values))

    def _advance(
        self,
        state: State,
        values: Values,
        refused: Mapping[PendingNode, ShaderloomError],
        waiting: set[PendingNode],
        further: Mapping[str, StageInput] | None = None,
    ) -> Advance:
        """Specialise what can be from the ``values`` that the state reads, and ``further`` ones."""
        inputs = {name: values[name] for name in state.live if name in values}
        program = self._program
        context = StagingContext(program.scope.constants, program.limits, program.open_branch, self._parts, True)
        return advance(state.block.name, state.pending, {**inputs, **(further or {})}, context, refused, waiting)

    def _results(self, block: Block, values: Values) -> tuple[Step, ...]:
        """Return the steps that store outputs of a block which are constants of the model."""
        missing = [name for name in block.outputs if name not in values]
        steps, _ = self._stored(block, values, {name: f"{name} result" for name in missing})
        return (*steps, *(AliasStep(name, f"{name} result") for name in missing))

    def _stored(self, block: Block, values: Values, names: Mapping[str, str]) -> tuple[list[Step], Values]:
        """Return the stage that computes values under other names, of which no step has computed some."""
        if not names:
            return [], values
        scope = self._program.scope
        nodes = [make_node("Identity", scope, [name], [other], _NOWHERE) for name, other in names.items()]
        inner = Block(f"{block.name} {min(names.values())}", tuple(nodes), tuple(names.values()))
        state = inner.state(inner.nodes, frozenset())
        steps, _, following = self._stage(state, values, self._advance(state, values, {}, set()), {}, set())
        return steps, following

    # -- loops ---------------------------------------------------------------------------------------------------------

    def _looped(self, state: State, values: Values, reached: Advance) -> tuple[Step, ...]:
        """Return the steps from a loop to the end of its block."""
        item = next((item for item in reached.pending if item in reached.loops and self._is_ready(item, values)), None)
        if item is None:
            raise InternalError(f"nothing can run {reached.pending[0].origin}")
        if item.node.op == "Loop" and item.inputs[0] in values and values[item.inputs[0]].static_value is None:
            return self._decided(state, values, reached, item.inputs[0])
        deciding = frozenset[str]()
        if self._program.half:
            following = [other for other in state.pending if other is not item]
            deciding = frozenset(deciding_names(following, state.block.control))
        loop = ProgramLoop(item, self._program.scope.constants, values, deciding)
        steps, values = self._stored(state.block, values, loop.unstored)
        return (*steps, *self._iterated(state, values, item, loop))

    def _iterated(self, state: State, values: Values, item: PendingNode, loop: ProgramLoop) -> tuple[Step, ...]:
        """Return the steps from a loop on, whose initial values are stored."""

        def follow() -> tuple[Step, ...]:
            self._ends.pop(loop.block.name, None)
            inside = loop.inside(values, self._ranges.by_symbol)
            block = loop.block
            body = self._steps(block.state(block.nodes, frozenset()), inside)
            if not loop.check(inside, self._ends.pop(loop.block.name)):
                return self._iterated(state, values, item, loop)
            return self._behind(_without(state, [item], loop.behind), values, inside, loop, body)

        return self._ranges.search(loop.symbols, UPPER_BOUNDS, follow) if loop.symbols else follow()

    def _behind(
        self, state: State, values: Values, inside: Values, loop: ProgramLoop, body: tuple[Step, ...]
    ) -> tuple[Step, ...]:
        """Return the step of a loop, and those behind it."""
        if loop.is_exact:
            return (loop.step(body, None), *self._steps(state, {**values, **loop.outputs(inside, loop.count)}))
        symbol = f"iterations of {loop.name}"

        def follow() -> tuple[Step, ...]:
            rows = dimension(symbol, *self._ranges.by_symbol[symbol])
            return (loop.step(body, symbol), *self._steps(state, {**values, **loop.outputs(inside, rows)}))

        return self._ranges.search((symbol,), upper_bounds(loop.most), follow)

    def _is_ready(self, item: PendingNode, values: Values) -> bool:
        return all(name in values or self._program.is_constant(name) for name in item.reads)

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _decided(self, state: State, values: Values, reached: Advance, name: str) -> tuple[Step, ...]:
        """Return the steps behind a value whose elements decide something."""
        value = values[name]
        readers = [item for item in reached.pending if name in item.inputs]
        origin = readers[0].origin if readers else None
        sizes = tuple(size for size in value.shape if isinstance(size, int))
        if len(sizes) < len(value.shape):
            raise UnsupportedError(f"how many elements of '{name}' are read must be known", origin=origin, tensor=name)
        count = math.prod(sizes)
        assert value.dtype is not None, "the compiler reads no other value"
        if value.dtype is BOOL and count == 1:
            return (self._branch(state, values, name, sizes),)
        if value.dtype.is_float or value.dtype is BOOL or count > READ_ELEMENTS:
            raise UnsupportedError(
                f"sizes depend on {count} elements of type {value.dtype} in '{name}': a bundle reads integers, "
                f"{READ_ELEMENTS} at most, and single conditions",
                origin=origin,
                tensor=name,
                hint="export the model with sizes that are computed as integers",
            )
        source = self._equal.source(name)
        if source not in self._reads:
            self._reads[source] = self._new_symbols(state, values, reached, name, count)
        symbols = self._reads[source]
        same = [other for other in values if self._equal.source(other) == source and values[other].static_value is None]

        def follow() -> tuple[Step, ...]:
            ranges = {symbol: self._ranges.by_symbol[symbol] for symbol in symbols}
            elements = {other: integers(values[other], ranges) for other in same}
            return (ReadStep(name, symbols), *self._steps(state, {**values, **elements}))

        rank = axes_rank(set(same), state.pending, reached.values, count)
        if rank is not None and self._ranges.declared.keys().isdisjoint(symbols):
            self._ranges.by_symbol.update(dict.fromkeys(symbols, SizeRange(-rank, rank - 1)))
            choices = list(itertools.product(range(rank), repeat=count))
            return (ReadStep(name, symbols), *self._chosen(state, values, same, choices, rank))
        most = most_elements(readers, reached)
        try:
            return self._ranges.search(
                symbols, upper_bounds(most), follow, extents(readers, reached), negative=may_be_negative(name, readers)
            )
        except (ShapeError, UnsupportedError):
            possible = [
                self._ranges.declared.get(each, None if most is None else SizeRange(0, most)) for each in symbols
            ]
            choices = choices_of(possible) if self._ranges.refuse(symbols) else []
            if not choices:
                raise
        self._ranges.by_symbol.update((symbol, sizes) for symbol, sizes in zip(symbols, possible) if sizes is not None)
        return (ReadStep(name, symbols), *self._chosen(state, values, same, choices))

    def _chosen(
        self,
        state: State,
        values: Values,
        names: Sequence[str],
        choices: Sequence[tuple[int, ...]],
        rank: int | None = None,
    ) -> tuple[Step, ...]:
        """Return the steps behind integers, all ``names`` of which are the same, with a branch for each of ``choices``:
        a run has read one of them, for axes of tensors of a ``rank`` counted from the front.
        """
        name = names[0]
        value = values[name]
        assert value.dtype is not None, "integers are read"
        arrays = [np.array(each).reshape([ix.number(size) for size in value.shape]) for each in choices]
        nodes, conditions = comparisons(self._program, self._program.scope, name, value.dtype, arrays[:-1], rank)
        inner = Block(f"{state.block.name} {name} chosen", tuple(nodes), tuple(conditions))
        first = inner.state(inner.nodes, frozenset())
        steps, _, values = self._stage(first, values, self._advance(first, values, {}, set()), {}, set())
        *sides, rest = self._sides(state, values, names, arrays)
        for condition, taken in reversed(list(zip(conditions, sides, strict=True))):
            rest = (BranchStep(condition, taken, rest),)
        return (*steps, *rest)

    def _sides(
        self, state: State, values: Values, names: Sequence[str], arrays: Sequence[np.ndarray]
    ) -> list[tuple[Step, ...]]:
        """Return the steps behind values, all ``names`` of which are the same, for each of their ``arrays``; where the
        shapes do not fit for one, runs with it are refused.

        Raises :class:`ShapeError` if they fit for none.
        """
        sides: list[tuple[Step, ...]] = []
        errors: list[ShapeError] = []
        for array in arrays:
            fixed = {
                name: StageInput(value.dtype, value.shape, array.reshape([ix.number(size) for size in value.shape]))
                for name, value in values.items()
                if name in names
            }
            try:
                sides.append(self._steps(state, {**values, **fixed}))
            except ShapeError as error:
                text = " ".join(str(element).lower() for element in array.reshape(-1).tolist())
                sides.append((RefuseStep(f"'{names[0]}' is {text}, for which these shapes do not fit: {error}"),))
                errors.append(error)
        if len(errors) == len(sides):
            raise errors[0]
        return sides

    def _branch(self, state: State, values: Values, name: str, sizes: tuple[int, ...]) -> BranchStep:
        """Return both sides of a condition; one for which the shapes do not fit is refused in runs.

        Raises :class:`ShapeError` if they fit neither.
        """
        arrays = [np.full(sizes, taken) for taken in (True, False)]
        return BranchStep(name, *self._sides(state, values, (name,), arrays))

    def _new_symbols(self, state: State, values: Values, reached: Advance, name: str, count: int) -> tuple[str, ...]:
        """Return names for the integers of a value: those of the outputs' dimensions that they are, where declared.

        Otherwise that of the value, or of what an operator gives whose elements are counted.
        """
        counted = [item.outputs[0] for item in reached.split if name in self._parts_outputs(item)]
        base = counted[0] if counted else self._equal.source(name)
        symbols = [base if count == 1 else f"{base}[{position}]" for position in range(count)]
        value = values[name]
        trial = integers(value, {symbol: SizeRange(0, UPPER_BOUNDS[-1]) for symbol in symbols})
        ahead = self._advance(state, {**values, name: trial}, {}, set())
        taken = {*self._symbols, *(symbol for others in self._reads.values() for symbol in others)}
        named: set[str] = set()
        for port in self._program.imported.outputs:
            result = ahead.values.get(port.name)
            for size, dim in zip(result.shape, port.dims or ()) if result is not None else ():
                symbol = serialise(size)
                if isinstance(dim, str) and dim not in taken | named and symbol in symbols:
                    symbols[symbols.index(symbol)] = dim
                    named.add(dim)
        while taken.intersection(symbols):
            symbols = [f"{symbol} read" if symbol in taken else symbol for symbol in symbols]
        return tuple(symbols)

    def _parts_outputs(self, item: PendingNode) -> set[str]:
        """Return the names of what the parts of a split node compute."""
        return {name for part in self._parts.get(item, ()) for name in part.outputs}

    # -- stages --------------------------------------------------------------------------------------------------------

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

        def unit() -> CompilationUnit:
            again = self._advance(state, values, refused, set(waiting), rows)
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


def _is_alias(item: PendingNode, values: Values) -> bool:
    """Return whether a node gives another name to a value that a step has computed."""
    if not item.synthetic or item.node.op != "Identity" or len(item.outputs) != 1:
        return False
    value = values.get(item.inputs[0])
    return value is not None and value.static_value is None and not value.facts.is_wide


def _without(state: State, items: Sequence[PendingNode], before: Sequence[PendingNode] = ()) -> State:
    """Return the state in which some nodes are done, and others are to be done first."""
    return state.block.state((*before, *(item for item in state.pending if item not in items)), frozenset())
