"""Ahead-of-time compilation of a model that is no single plan: its steps for all values that a run may meet.

A session decides each step of a program when it knows the values (:mod:`..execution.program`).  Here an integer that
decides something is a symbol with a range, as the dimensions of inputs are; a condition is decided both ways, and each
side is compiled to its end.  What a stage computes from symbols alone is known to the stages behind it as polynomials,
so no step computes sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from ..compiler.staging.control_dependence import deciding_names
from ..compiler.staging.partial_compile import Advance, StageInput
from ..compiler.staging.program_graph import PendingNode
from ..compiler.symbolic import polynomial as ix
from ..compiler.symbolic.dimensions import dimension, serialise
from ..compiler.symbolic.polynomial import Undecidable
from ..execution.program.context import ProgramModel
from ..execution.program.refusals import computes, refusal_of
from ..execution.program.state import Block, State
from ..model.feeds import ShapeKey
from ..model.model import Model
from ..runtime.bundle.program import (
    AliasStep,
    BranchStep,
    CompareStep,
    ProgramRecord,
    ReadStep,
    RefuseStep,
    Step,
)
from ..runtime.bundle.structure import schema
from ..runtime.plan.dtypes import BOOL
from ..runtime.plan.errors import (
    InputError,
    InternalError,
    NotKnownError,
    ShaderloomError,
    ShapeError,
    UnsupportedError,
)
from ..runtime.plan.plan import Plan
from ..runtime.plan.size_range import SizeRange
from . import program_comparisons
from .program_bounds import bound_of, within
from .program_choices import axes_rank, choices_of, comparisons
from .program_comparisons import comparison_in, comparison_text
from .program_loop import ProgramLoop
from .program_names import base_name, numbered, of_outputs
from .program_ranges import (
    UPPER_BOUNDS,
    ProgramRanges,
    SmallerRanges,
    extents,
    may_be_negative,
    most_elements,
    upper_bounds,
)
from .program_sizes import integers, partly_known
from .program_stages import CompileStage, ProgramStages, Values


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
        compiler = _ProgramCompiler(model, key, shapes, ranges, most, compile_stage)
        try:
            program = compiler.compile()
        except SmallerRanges as smaller:
            most.update(smaller.bounds)
            continue
        keys = {key for stage in program.stages for key in (stage.key, stage.software) if key is not None}
        return program, {key: plan for key, plan in compiler.plans.items() if key in keys}


class _ProgramCompiler(ProgramStages):
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
        compile_stage: CompileStage,
    ) -> None:
        bound = model.bind(shapes, key)
        super().__init__(ProgramModel(model), bound.symbols, ProgramRanges(ranges, most), compile_stage)
        self._key = key
        self._shapes = bound.shapes
        self._sized: set[str] = set()  #: the symbols that have a size in the steps so far
        self._comparisons = 0
        self._ends: dict[str, list[Values]] = {}  #: what is known of the values where a block ends, for each branch

    def compile(self) -> ProgramRecord:
        """Return the program; once only."""
        imported = self._program.imported
        dtypes = {port.name: port.dtype for port in (*imported.inputs, *imported.overridable)}
        values: Values = {name: StageInput(dtypes[name], shape) for name, shape in self._shapes.items()}
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
            try:
                reached = self._advance(state, values, refused, waiting)
            except (ShapeError, Undecidable) as error:
                return (*steps, *self._compared(state, values, error))
            joined = partly_known(reached) - waiting
            if joined:
                waiting |= joined
                continue
            wanted = sorted(name for name in reached.wanted if name in values and values[name].static_value is None)
            if reached.refused:
                final = [error for error in reached.refused.values() if comparison_in(error) is None]
                misfits = [error for error in final or reached.refused.values() if isinstance(error, ShapeError)]
                if not misfits or len(misfits) < len(final):
                    raise refusal_of(reached.refused, self._program.imported)
                return (*steps, *self._compared(state, values, misfits[0]))
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
            except (ShapeError, Undecidable) as error:
                return (*steps, *self._compared(state, values, error))
            steps += step
        self._ends.setdefault(state.block.name, []).append(values)
        return (*steps, *self._results(state.block, values))

    def _results(self, block: Block, values: Values) -> tuple[Step, ...]:
        """Return the steps that store outputs of a block which are constants of the model."""
        missing = [name for name in block.outputs if name not in values]
        steps, _ = self._stored(block, values, {name: f"{name} result" for name in missing})
        return (*steps, *(AliasStep(name, f"{name} result") for name in missing))

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

    # -- comparisons ---------------------------------------------------------------------------------------------------

    def _compared(self, state: State, values: Values, error: ShapeError | Undecidable) -> tuple[Step, ...]:
        """Return the steps from a comparison on that ``error`` is about, with both sides of it.

        Raises that error where it is about something else, or ranges decide it.
        """
        comparison = comparison_in(error) if self._ranges.compares else None
        if comparison is None:
            raise error
        self._comparisons += 1
        if self._comparisons > program_comparisons.MOST_COMPARISONS:
            raise UnsupportedError(
                f"a program has more than {program_comparisons.MOST_COMPARISONS} comparisons, those of all sides and "
                "attempts counted",
                hint="declare smaller ranges (--range), or ranges of one size",
            )
        sides: list[tuple[Step, ...]] = []
        before, errors = self._decided_sizes, []
        for holds in (True, False):
            self._decided_sizes = before.after(comparison, holds)
            try:
                with ix.assuming(self._decided_sizes.answers):
                    sides.append(self._steps(state, values))
            except ShapeError as refusal:
                text = comparison_text(comparison, holds)
                sides.append((RefuseStep(f"{text}, for which these shapes do not fit: {refusal}"),))
                errors.append(refusal)
            finally:
                self._decided_sizes = before
        if len(errors) == len(sides):
            raise errors[0]
        test, left, right = comparison
        return (CompareStep(test, serialise(left), serialise(right), *sides),)

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
        if value.dtype.is_float or value.dtype is BOOL:
            raise UnsupportedError(
                f"sizes depend on {count} elements of type {value.dtype} in '{name}': a bundle reads integers and "
                "single conditions",
                origin=origin,
                tensor=name,
                hint="export the model with sizes that are computed as integers",
            )
        if count > schema()["reads"]:
            raise UnsupportedError(
                f"sizes depend on {count} integers in '{name}': a step of a bundle reads {schema()['reads']} at most",
                origin=origin,
                tensor=name,
                hint="export the model with fewer sizes that runs decide",
            )
        source = self._equal.source(name)
        same = [other for other in values if self._equal.source(other) == source and values[other].static_value is None]
        bound = None if set(same) & {*state.block.outputs} else bound_of(set(same), state.pending, reached.values)
        key = source if bound is None else f"{source} within {bound}"
        if key not in self._reads:
            self._reads[key] = self._new_symbols(state, values, reached, name, count)
        symbols = self._reads[key]

        def follow() -> tuple[Step, ...]:
            return self._behind_read(state, values, same, symbols, name, bound)

        rank = axes_rank(set(same), state.pending, reached.values, count)
        if rank is not None and self._ranges.declared.keys().isdisjoint(symbols):
            self._ranges.by_symbol.update(dict.fromkeys(symbols, SizeRange(-rank, rank - 1)))
            choices = list(itertools.product(range(rank), repeat=count))
            return (ReadStep(name, symbols), *self._chosen(state, values, same, choices, rank))
        most = most_elements(readers, reached) if bound is None else bound
        tries = upper_bounds(most) if bound is None else (bound,)
        try:
            return self._ranges.search(
                symbols, tries, follow, extents(readers, reached), negative=may_be_negative(name, readers)
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

    def _behind_read(
        self,
        state: State,
        values: Values,
        same: Sequence[str],
        symbols: tuple[str, ...],
        name: str,
        bound: int | None,
    ) -> tuple[Step, ...]:
        """Return the steps from the reading of a value on, whose elements all ``same`` names have: within a bound where
        there is one.
        """
        ranges = {symbol: self._ranges.by_symbol[symbol] for symbol in symbols}
        behind = {**values, **{other: integers(values[other], ranges) for other in same}}
        if not self._sized.isdisjoint(symbols):
            return self._steps(state, behind)
        dtype = values[name].dtype
        assert dtype is not None, "integers are read"
        self._sized.update(symbols)
        try:
            if bound is None:
                return (ReadStep(name, symbols), *self._steps(state, behind))
            nodes, read = within(self._program, name, dtype, bound)
            steps, stored = self._computed(state.block, values, nodes, [read])
            return (*steps, ReadStep(read, symbols), *self._steps(state, {**stored, **behind}))
        finally:
            self._sized.difference_update(symbols)

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
        steps, values = self._computed(state.block, values, nodes, conditions)
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
        """Return names for the integers of a value."""
        symbols = numbered(base_name(name, reached.split, self._parts, self._equal), count)
        trial = integers(values[name], {symbol: SizeRange(0, UPPER_BOUNDS[-1]) for symbol in symbols})
        ahead = self._advance(state, {**values, name: trial}, {}, set())
        taken = {*self._symbols, *(symbol for others in self._reads.values() for symbol in others)}
        return of_outputs(symbols, self._program, ahead.values, taken)


def _is_alias(item: PendingNode, values: Values) -> bool:
    """Return whether a node gives another name to a value that a step has computed."""
    if not item.synthetic or item.node.op != "Identity" or len(item.outputs) != 1:
        return False
    value = values.get(item.inputs[0])
    return value is not None and value.static_value is None and not value.facts.is_wide


def _without(state: State, items: Sequence[PendingNode], before: Sequence[PendingNode] = ()) -> State:
    """Return the state in which some nodes are done, and others are to be done first."""
    return state.block.state((*before, *(item for item in state.pending if item not in items)), frozenset())
