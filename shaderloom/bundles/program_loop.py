"""A Loop or Scan of a program that is compiled ahead of time: its trip count, its body, and what it carries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ..compiler.binding.loop_unrolling import body_of
from ..compiler.ir.constants import TensorSource
from ..compiler.staging.control_dependence import deciding_results
from ..compiler.staging.partial_compile import StageInput
from ..compiler.staging.program_graph import PendingNode, ProgramScope, make_node
from ..compiler.symbolic import polynomial as ix
from ..compiler.symbolic.dimensions import declared_dimension, dimension, serialise
from ..compiler.symbolic.polynomial import Dim
from ..execution.program.state import Block
from ..runtime.bundle.program import CarriedValue, IterateStep, StackedValue, Step
from ..runtime.plan.dtypes import BOOL, FLOAT32, INT32, INT64, DType
from ..runtime.plan.errors import LimitError, ModelError, ShapeError, UnsupportedError
from ..runtime.plan.facts import ValueFacts
from ..runtime.plan.plan import MOST_ITERATIONS
from ..runtime.plan.size_range import SizeRange
from .program_scan import ScanForm

#: Carried values have the types that they begin with; rows are copied as whole words
_WORD = 4


class ProgramLoop:
    """One Loop or Scan, with what is known of the ``values`` before it.

    ``unstored`` has the names under which initial values are stored that no step has computed; ``block`` is the body,
    and ``behind`` are nodes that follow the loop.  Raises :class:`UnsupportedError` for a Scan of a batch.

    ``deciding`` are the names on which later control decisions depend.
    """

    def __init__(
        self,
        item: PendingNode,
        constants: Mapping[str, TensorSource],
        values: Mapping[str, StageInput],
        deciding: Collection[str] = (),
    ) -> None:
        self._item = item
        graph = body_of(item.node)
        self._scope = ProgramScope(graph, item.scope, f"{item.scope.prefix}{item.node.op}_{item.origin.index}.body/")
        self._inputs = [self._scope.qualify(port.name) for port in graph.inputs]  #: the carried ones, below
        self._outputs = [self._scope.qualify(port.name) for port in graph.outputs]  #: those of carried values and rows
        self.behind: list[PendingNode] = []
        self._growing: dict[tuple[int, int], str] = {}  #: symbols by position of what is carried, and axis
        self._facts: dict[str, ValueFacts] = {}  #: of what is carried, in any iteration
        self._is_on: str | None = None  #: the body's input that is true in each iteration
        self._going: str | None = None
        self._condition: str | None = None
        nodes = self._scope.nodes()
        if item.node.op == "Loop":
            self._read_loop(constants, values)
        else:
            nodes = [*self._read_scan(values), *nodes]
        self._nodes = nodes
        control = {own for own, name in zip(self._outputs, item.outputs) if name in deciding}
        control |= set() if self._going is None else {self._going}
        self._control = deciding_results(nodes, self._inputs, self._outputs, control)
        self._block_outputs = tuple(dict.fromkeys([*control.difference(self._outputs), *self._outputs]))
        self.unstored = {
            name: f"{self._scope.prefix}{name} first"
            for name in self._initial
            if name not in values or values[name].static_value is not None or values[name].facts.is_wide
        }

    @property
    def block(self) -> Block:
        """The body: its outputs are the condition, what is carried on, and rows."""
        return Block(self._scope.prefix, tuple(self._nodes), self._block_outputs, self._control)

    def _read_loop(self, constants: Mapping[str, TensorSource], values: Mapping[str, StageInput]) -> None:
        """Read the operands of a Loop: its trip count, its condition, and what it carries."""
        item = self._item
        trips, condition, *carried = [*item.inputs, *[""] * (2 - len(item.inputs))]
        self._initial = [name for name in carried if name]
        if len(self._inputs) != 2 + len(self._initial) or len(self._outputs) < 1 + len(self._initial):
            raise ModelError("the body of Loop does not fit its operands", origin=item.origin)
        self.count = self._count(trips, constants, values)
        self._condition = self._first_condition(condition, constants, values)
        self._iteration, self._is_on, *self._inputs = self._inputs
        self._going, *self._outputs = self._outputs
        self._results = [*item.outputs, *[""] * (len(self._outputs) - len(item.outputs))]

    def _read_scan(self, values: Mapping[str, StageInput]) -> list[PendingNode]:
        """Read the operands of a Scan; return the nodes of an iteration that take its elements from the sequences."""
        form = ScanForm(self._item, self._scope, self._inputs, self._outputs)
        self._iteration = form.forwards
        self._initial = list(self._item.inputs[: form.states])
        self._inputs = self._inputs[: form.states]
        sizes = {values[name].shape[axis] for name, axis in form.sequences.items()}
        if len(sizes) != 1:
            raise ShapeError("the sequences of Scan have several lengths", origin=self._item.origin)
        self.count = self._checked(sizes.pop())
        self._results, self.behind = form.stacked()
        return form.reading

    def _count(self, name: str, constants: Mapping[str, TensorSource], values: Mapping[str, StageInput]) -> Dim | None:
        """Return the trip count, None for one without bound."""
        if not name:
            return None
        value = values.get(name)
        elements = constants[name].read() if value is None else value.static_value
        assert elements is not None, "a trip count is read before its loop"
        if elements.size != 1:
            raise ModelError(f"'{name}' is not one element", origin=self._item.origin)
        (count,) = elements.reshape(-1).tolist()
        return None if not isinstance(count, ix.Index) and count > MOST_ITERATIONS else self._checked(count)

    def _checked(self, count: Dim) -> Dim:
        """Return a trip count; raise :class:`LimitError` for one that may be more than a program has."""
        if not isinstance(count, ix.Index):
            count = int(count)
        count = ix.maximum(count, 0)
        if ix.bounds(count)[1] > MOST_ITERATIONS:
            raise LimitError(
                f"{self._item.node.op} may have {ix.bounds(count)[1]:,} iterations; "
                f"a program has {MOST_ITERATIONS:,} at most",
                origin=self._item.origin,
                hint="declare a smaller range of its trip count (--range, --dynamic)",
            )
        return count

    def _first_condition(
        self, name: str, constants: Mapping[str, TensorSource], values: Mapping[str, StageInput]
    ) -> str | None:
        """Return the condition that is read before the first iteration, None where it is known to be true."""
        if not name:
            return None
        value = values.get(name)
        elements = constants[name].read() if value is None else value.static_value
        if elements is None:
            return name
        if not elements.all():
            self.count = 0
        return None

    @property
    def name(self) -> str:
        """The loop's first output, or where it is."""
        return self._item.outputs[0] or str(self._item.origin)

    @property
    def is_exact(self) -> bool:
        """Whether the loop has as many iterations as its trip count says, whatever the run."""
        return self.count is not None and self._condition is None and self._going is None

    @property
    def most(self) -> int | None:
        """The most iterations; None for a loop without bound."""
        return None if self.count is None else ix.bounds(self.count)[1]

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols of the sizes that change from iteration to iteration."""
        return tuple(self._growing.values())

    def inside(self, values: Mapping[str, StageInput], ranges: Mapping[str, SizeRange]) -> dict[str, StageInput]:
        """Return what is known of the values in the body, where sizes that change have these ranges."""
        numbers = {self._iteration: StageInput(INT64, ())}
        if self._is_on is not None:
            numbers[self._is_on] = StageInput(BOOL, (), np.array(True))
        first = [values[self.unstored.get(name, name)] for name in self._initial]
        carried = {}
        for position, (name, value) in enumerate(zip(self._inputs, first)):
            symbols = (self._growing.get((position, axis)) for axis in range(len(value.shape)))
            shape = tuple(
                size if symbol is None else dimension(symbol, *ranges[symbol])
                for size, symbol in zip(value.shape, symbols)
            )
            carried[name] = StageInput(value.dtype, shape, facts=self._facts.get(name, value.facts))
        return {**values, **numbers, **carried}

    def check(self, inside: Mapping[str, StageInput], ends: Sequence[Mapping[str, StageInput]]) -> bool:
        """Check the body's results where it ends, for each of its branches.

        Returns False where sizes change that were taken to be the same in each iteration, or what is known of values,
        and where rows are of a narrow type: from then on they have symbols, facts that hold in all iterations, and a
        wider type, with which the body is compiled again.
        Raises :class:`UnsupportedError` for a carried value of another type or rank than it began with, and for rows of
        changing shapes.
        """
        before = len(self._growing), dict(self._facts)
        origin = self._item.origin
        for end in ends:
            for position, (name, result) in enumerate(zip(self._inputs, self._outputs)):
                carried, following = inside[name], end[result]
                if carried.dtype != following.dtype or len(carried.shape) != len(following.shape):
                    raise UnsupportedError(
                        f"a loop of a bundle carries tensors of one type and rank: '{result}' is not that of '{name}'",
                        origin=origin,
                        tensor=result,
                    )
                self._note_growth(position, carried.shape, following.shape)
                facts = self._facts.get(name, carried.facts).joined(following.facts)
                if facts != carried.facts:
                    self._facts[name] = facts
        if (len(self._growing), self._facts) != before:
            return False
        for end in ends:
            for row in self._rows:
                value, first = end[row], ends[0][row]
                dtype = value.dtype
                if dtype is not None and dtype.itemsize % _WORD:
                    self._widen_row(row, dtype)
                    return False
                grows = any(name in self.symbols for size in value.shape for name in _symbols_of(size))
                is_same = (dtype, value.shape) == (first.dtype, first.shape) and not grows
                if dtype is None or not is_same:
                    raise UnsupportedError(
                        f"'{row}' is no row that has one shape in all iterations", origin=origin, tensor=row
                    )
        conditions = [end[self._going].static_value for end in ends if self._going is not None]
        if all(condition is not None and condition.all() for condition in conditions):
            self._going = None
        self._end = ends[0]
        return True

    def _widen_row(self, row: str, dtype: DType) -> None:
        """Stack a row of elements narrower than a word in a type that has its values, and turn the rows back."""
        wider = FLOAT32 if dtype.is_float else INT32
        position, origin = self._outputs.index(row, len(self._initial)), self._item.origin
        wide, result = f"{row} wide", self._results[position]
        if result:
            self._results[position] = f"{result} wide"
            self.behind.insert(0, make_node("Cast", self._scope, [f"{result} wide"], [result], origin, to=dtype.onnx))
        self._outputs[position] = wide
        if wide not in self._block_outputs:
            self._nodes.append(make_node("Cast", self._scope, [row], [wide], origin, to=wider.onnx))
            self._block_outputs = (*self._block_outputs, wide)

    def _note_growth(self, position: int, shape: Sequence[Dim], following: Sequence[Dim]) -> None:
        """Give a symbol to each axis of a carried value on which it differs in the next iteration."""
        base = f"size of {self._results[position] or self._inputs[position]}"
        for axis, (size, other) in enumerate(zip(shape, following)):
            if size != other and (position, axis) not in self._growing:
                is_first = all(own != position for own, _ in self._growing)
                self._growing[position, axis] = base if is_first else f"{base}[{axis}]"

    @property
    def _rows(self) -> list[str]:
        """The body's values that are stacked."""
        return self._outputs[len(self._initial) :]

    def outputs(self, inside: Mapping[str, StageInput], rows: Dim | None) -> dict[str, StageInput]:
        """Return what is known of the loop's results, whose stacked ones have this many rows."""
        assert rows is not None, "a loop has a number of iterations"
        count = len(self._initial)
        results = {name: inside[own] for name, own in zip(self._results, self._inputs)}
        for name, row in zip(self._results[count:], self._rows):
            value = self._end[row]
            results[name] = StageInput(value.dtype, (rows, *value.shape), facts=value.facts)
        return {name: value for name, value in results.items() if name}

    def _stacked(self, row: str, result: str) -> StackedValue:
        value = self._end[row]
        assert value.dtype is not None, "rows were checked"
        return StackedValue(row, result, value.dtype.name, tuple(map(serialise, value.shape)))

    def _axes(self, position: int) -> tuple[str | None, ...]:
        """Return the symbols of a carried value's axes, none at all if no size changes."""
        if all(own != position for own, _ in self._growing):
            return ()
        rank = len(self._end[self._outputs[position]].shape)
        return tuple(self._growing.get((position, axis)) for axis in range(rank))

    def step(self, body: tuple[Step, ...], symbol: str | None) -> IterateStep:
        """Return the step, whose number of iterations is the size of ``symbol``."""
        count = len(self._initial)
        carried = zip(self._inputs, self._initial, self._outputs, self._results)
        return IterateStep(
            None if self.count is None else serialise(self.count),
            symbol,
            self._condition,
            self._going,
            self._iteration,
            tuple(
                CarriedValue(name, self.unstored.get(initial, initial), following, result or None, self._axes(position))
                for position, (name, initial, following, result) in enumerate(carried)
            ),
            tuple(self._stacked(row, result) for row, result in zip(self._rows, self._results[count:]) if result),
            body,
        )


def _symbols_of(size: Dim) -> set[str]:
    """Return the names of the symbols of a size."""
    if not isinstance(size, ix.Index):
        return set()
    declared = (declared_dimension(name) for name in ix.variables(size))
    return {each.name for each in declared if each is not None}
