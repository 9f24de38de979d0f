"""Stages: how far a graph can be compiled with what is known now, and why the other nodes must wait.

A *program* is a list of :class:`PendingNode`.  :func:`advance` runs the specialiser over those that it can reach from
the values at hand.  A node waits when

* it needs the elements of a value while compiling (a shape, a count, a condition) and they are not known yet: the value
  is *wanted*, and once it has been read the node can proceed;
* it is a Loop or Scan that cannot be unrolled: the program runs it iteration by iteration;
* the compiler *refuses* it: only another provider may run it;
* it reads what a waiting node computes.

An If whose condition is known is replaced by the nodes of the branch that is taken; the other one is never inspected.

Values are identified by the qualified names of :mod:`.program_graph`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from ...runtime.plan.dtypes import DType
from ...runtime.plan.errors import (
    REFUSALS,
    InternalError,
    LimitError,
    ModelError,
    NotKnownError,
    ShaderloomError,
    ShapeError,
    UnsupportedError,
)
from ...runtime.plan.facts import PLAIN, ValueFacts
from ...runtime.plan.record import record
from ..binding.loop_unrolling import body_of
from ..binding.shape_binding import Scope, Specialiser
from ..frontend.model import ImportedGraph, ImportedModel
from ..ir.constants import InlineSource, TensorSource
from ..ir.graph import Graph, Shape, Value
from ..ops.registry import Split
from ..options import Limits
from ..rewriting.builder import ON_DEVICE, GraphBuilder, empty_array, is_empty
from ..symbolic import polynomial as ix
from ..symbolic.dimensions import serialise
from .program_graph import PendingNode, ProgramScope, SplitNodes, branch_nodes

#: Values of at most this many elements may be read back to be known
READABLE = 1 << 20


@record
class StageInput:
    """A value that is there when a stage begins.  ``dtype`` None: the compiler cannot read it (a sequence).

    ``static_value`` are its elements if they are compiled in; an array of objects if some are symbolic.
    """

    dtype: DType | None
    shape: Shape
    static_value: np.ndarray | None = None
    what: str = "a tensor"  #: for messages
    facts: ValueFacts = PLAIN


@dataclass
class Advance:
    """The result of :func:`advance`; ``pending`` are the nodes that wait, in order."""

    graph: Graph
    inputs: Mapping[str, StageInput]
    done: list[PendingNode] = field(default_factory=list)
    pending: list[PendingNode] = field(default_factory=list)
    wanted: set[str] = field(default_factory=set)
    refused: dict[PendingNode, ShaderloomError] = field(default_factory=dict)
    loops: set[PendingNode] = field(default_factory=set)
    unknown: dict[PendingNode, ShaderloomError] = field(default_factory=dict)  #: why nodes wait that are not refused
    split: list[PendingNode] = field(default_factory=list)  #: nodes that others stand for now
    values: dict[str, Value] = field(default_factory=dict)

    def finish(self, outputs: Sequence[str]) -> Graph:
        """Return the stage's graph with these outputs, all computed by completed nodes.

        Unused inputs are removed, except those that determine open sizes.
        """
        graph = self.graph
        graph.outputs = [self.values[name] for name in outputs]
        graph.output_names = list(outputs)
        graph.remove_dead()
        output_ids = set(map(id, graph.outputs))
        needed = {id(value) for value in graph.inputs if value.uses or id(value) in output_ids}
        determined = {size for value in graph.inputs if id(value) in needed for size in value.shape}
        for value in graph.inputs:
            open_sizes = {size for size in value.shape if isinstance(serialise(size), str)}
            if open_sizes - determined:
                needed.add(id(value))
                determined |= open_sizes
        graph.inputs = [value for value in graph.inputs if id(value) in needed]
        return graph


#: Opens the branch of an If that is taken; see :func:`branch_nodes`
OpenBranch = Callable[[PendingNode, bool], list[PendingNode]]
#: The nodes that stand for one that was split
Parts = dict[PendingNode, list[PendingNode]]


@record
class StagingContext:
    """What all stages of a program share.

    ``parts`` keeps what nodes were split into: they are the same nodes then whenever that happens.  With
    ``is_ahead`` nodes are split of which a run alone knows what decides sizes, and not sizes themselves: floats,
    steps, shapes with -1.  ``sizes`` stand for parts of sizes that they equal where the nodes run.  ``transposed``
    are constants that a product of some stage may multiply by the transpose of.
    """

    constants: Mapping[str, TensorSource]
    limits: Limits
    open_branch: OpenBranch
    parts: Parts = field(default_factory=dict)
    is_ahead: bool = False
    sizes: Mapping[ix.Atom, ix.Dim] = field(default_factory=dict)
    transposed: Set[str] = frozenset()


def advance(
    name: str,
    nodes: Sequence[PendingNode],
    inputs: Mapping[str, StageInput],
    context: StagingContext,
    refused: Mapping[PendingNode, ShaderloomError] = MappingProxyType({}),
    waiting: Collection[PendingNode] = (),
) -> Advance:
    """Specialise as many of ``nodes`` as possible into a graph called ``name``.

    ``refused`` and ``waiting`` are nodes that turned out to be so after an earlier attempt.  Raises errors that no
    other provider and no later stage can resolve.
    """
    return _Advancing(name, inputs, context, refused, waiting).run(nodes)


class _Advancing:
    def __init__(
        self,
        name: str,
        inputs: Mapping[str, StageInput],
        context: StagingContext,
        refused: Mapping[PendingNode, ShaderloomError],
        waiting: Collection[PendingNode],
    ) -> None:
        self.parts = context.parts
        self.is_ahead = context.is_ahead
        self.sizes = context.sizes
        self.result = Advance(Graph(name, transposed=context.transposed), inputs)
        self.constants = context.constants
        self.builder = GraphBuilder(self.result.graph, limits=context.limits)
        self.specialiser = Specialiser(self.builder)
        self.open_branch = context.open_branch
        self.refused = refused
        self.waiting = waiting
        self.blocked: set[str] = set()
        for input_name, stage_input in inputs.items():
            value = self._input(input_name, stage_input)
            if value is not None:
                self.result.values[input_name] = self._fitted(value)

    def _input(self, name: str, stage_input: StageInput) -> Value | None:
        graph = self.result.graph
        if stage_input.dtype is None:
            return None
        if stage_input.static_value is not None:
            if stage_input.static_value.dtype == object:
                elements = tuple(stage_input.static_value.reshape(-1))
                return self.builder.op(
                    "Dimensions",
                    domain="loom",
                    elements=elements,
                    shape=stage_input.static_value.shape,
                    dtype=stage_input.dtype,
                )
            value = self.builder.add_constant(name, InlineSource(stage_input.static_value, stage_input.dtype))
            assert value.constant is not None
            value.static_value = value.constant.read()
            return value
        value = graph.add_input(name, stage_input.dtype, stage_input.shape)
        if is_empty(value.shape):
            value.static_value = empty_array(value.shape, value.dtype)
        return value

    def _fitted(self, value: Value) -> Value:
        """Return a value whose shape, and whose elements if they are symbolic, are written with the sizes that parts of
        them equal.
        """
        if not self.sizes:
            return value
        if value.static_value is not None and value.static_value.dtype == object:
            elements = tuple(ix.transform(element, self.sizes.get) for element in value.static_value.reshape(-1))
            if elements == tuple(value.static_value.reshape(-1)):
                return value
            attributes = {"elements": elements, "shape": value.static_value.shape, "dtype": value.dtype}
            return self.builder.op("Dimensions", domain="loom", **attributes)
        shape = tuple(ix.transform(size, self.sizes.get) for size in value.shape)
        return value if shape == value.shape else self.builder.op("Fit", value, domain="loom", shape=shape)

    def run(self, nodes: Sequence[PendingNode]) -> Advance:
        queue = deque(nodes)
        result = self.result
        while queue:
            item = queue.popleft()
            if any(name in self.blocked for name in item.reads):
                self._wait(item)
                continue
            if item.is_branch:
                taken = self._condition(item)
                if taken is None:
                    self._wait(item)
                else:
                    queue.extendleft(reversed(self.open_branch(item, taken)))
                continue
            try:
                self._apply(item)
            except NotKnownError as error:
                parts = self._parts(item)
                _forget_frames(error)
                if parts:
                    self.result.unknown[item] = error
                    queue.extendleft(reversed(parts))
                else:
                    self.result.unknown[item] = error
                    self._not_known(item, error)
            except REFUSALS as error:
                error.origin = error.origin or item.origin
                result.refused[item] = _forget_frames(error)
                self._wait(item)
            except LimitError:
                if not item.is_loop:
                    raise
                result.loops.add(item)
                self._wait(item)
        return result

    def _wait(self, item: PendingNode) -> None:
        self.blocked.update(name for name in item.outputs if name)
        self.result.pending.append(item)

    def _condition(self, item: PendingNode) -> bool | None:
        """Return the value of an If's condition; if it is unknown, record it as wanted and return None."""
        name = item.inputs[0] if item.inputs else ""
        value = self._lookup(name) if name else None
        if value is None:
            raise ModelError("If needs a condition", origin=item.origin)
        if value.static_value is None and value.constant is not None:
            value.static_value = value.constant.read()
        if value.static_value is None:
            self.result.wanted.add(name)
            self.result.unknown[item] = NotKnownError(
                "the condition of If is computed from elements of the model's inputs", origin=item.origin
            )
            return None
        if value.static_value.size != 1:
            raise ShapeError("the condition of If is not one element", origin=item.origin)
        return bool(value.static_value.reshape(-1)[0])

    def _apply(self, item: PendingNode) -> None:
        if item.node.refusal is not None:
            raise item.node.refusal
        if item in self.refused:
            raise self.refused[item]
        for name in item.reads:
            stage_input = self.result.inputs.get(name)
            if stage_input is not None and stage_input.dtype is None:
                raise UnsupportedError(
                    f"it reads '{name}', {stage_input.what}, which no device can hold", origin=item.origin
                )
            if name in item.scope.foreign and stage_input is None:
                raise UnsupportedError(f"it reads '{name}', of a type that no device can hold", origin=item.origin)
        inputs = [self._lookup(name) if name else None for name in item.inputs]
        if item in self.waiting:
            raise NotKnownError("an operand must be known", origin=item.origin)
        try:
            results = self.specialiser.apply(item.node, inputs, _Names(item.scope, self._lookup))
        except ShaderloomError as error:
            error.origin = error.origin or item.origin
            raise
        if len(results) < len(item.outputs):
            raise ModelError(f"{item.node.op} has {len(results)} outputs", origin=item.origin)
        for value in results:
            if not value.dtype.on_device and value in self.result.graph.inputs:  # it is passed on, which no device does
                raise UnsupportedError.of_result(item.node.op, value.dtype.name, ON_DEVICE, origin=item.origin)
        self.result.values.update((name, self._fitted(value)) for name, value in zip(item.outputs, results) if name)
        self.result.done.append(item)

    def _lookup(self, name: str) -> Value:
        value = self.result.values.get(name)
        if value is None:
            source = self.constants.get(name)
            if source is None:
                raise InternalError("no value of this name is in scope", tensor=name)
            value = self.result.values[name] = self.builder.add_constant(name, source)
        return value

    def _parts(self, item: PendingNode) -> list[PendingNode]:
        """Return the nodes that a node is split into; empty unless the device can store all its operands."""
        split = self._split(item)
        if split is None:
            return []
        if not all(self.result.values[name].dtype.on_device for name in item.inputs if name):
            return []
        if item not in self.parts:
            builder = SplitNodes(item)
            split(builder, item.inputs, item.outputs, item.node.attributes)
            self.parts[item] = builder.nodes
        self.result.split.append(item)
        return self.parts[item]

    def _split(self, item: PendingNode) -> Split | None:
        """Return how a node is split; None where its operands can be read instead."""
        definition = item.node.definition
        if definition is None or definition.split is not None or not self.is_ahead:
            return None if definition is None else definition.split
        is_float = any(self.result.values[name].dtype.is_float for name in self._unknown(item))
        operands = [self.result.values[name] if name else None for name in item.inputs]
        is_ahead = definition.is_split_ahead(operands, item.node.attributes)
        is_ahead = is_ahead and not item.synthetic  # a part is not split again
        return definition.split_ahead if is_float or is_ahead else None

    def _not_known(self, item: PendingNode, error: NotKnownError) -> None:
        result = self.result
        if item.is_loop:
            inside = refusal_in(body_of(item.node))
            if inside is not None:
                result.refused[item] = inside
            else:
                result.loops.add(item)
            self._wait(item)
            return
        wanted = self._unknown(item)
        foreign = [name for name in wanted if not self.result.values[name].dtype.on_device]
        if foreign:
            dtype = self.result.values[foreign[0]].dtype
            result.refused[item] = UnsupportedError(
                f"{item.node.op} reads elements of type {dtype}, which no device holds",
                origin=item.origin,
                tensor=foreign[0],
            )
            self._wait(item)
            return
        if not wanted:  # nothing that could be read would help
            error.origin = error.origin or item.origin
            result.refused[item] = error
        result.wanted |= wanted
        self._wait(item)

    def _unknown(self, item: PendingNode) -> set[str]:
        """Return the operands to read: those that the operator always needs, else all that are small enough."""
        unknown = {
            position: name
            for position, name in enumerate(item.inputs)
            if name and self.result.values[name].static_value is None
        }
        definition = item.node.definition
        always = definition.static_inputs if definition is not None else ()
        static = {unknown[position] for position in always if position in unknown}
        return static or {
            name for name in unknown.values() if ix.bounds(self.result.values[name].elements)[1] <= READABLE
        }


def _forget_frames(error: ShaderloomError) -> ShaderloomError:
    """Drop the traceback of an error that is stored, so that it does not keep frames and their values alive.

    A comparison that is its cause stays.
    """
    error.__traceback__ = error.__context__ = None
    if isinstance(error.__cause__, ix.Undecidable):
        error.__cause__.__traceback__ = error.__cause__.__context__ = None
    else:
        error.__cause__ = None
    return error


class _Names(Scope):
    """The scope of the enclosing program as visible in the body of a Loop or Scan."""

    def __init__(self, scope: ProgramScope, lookup: Callable[[str], Value]) -> None:
        super().__init__(scope.graph, None)
        self._scope = scope
        self._lookup = lookup

    def lookup(self, name: str, builder: GraphBuilder) -> Value:
        """Return the value of a name of the program; constants join the graph there."""
        return self._lookup(self._scope.qualify(name))


def survey(model: ImportedModel, shapes: Mapping[str, tuple[int, ...]], limits: Limits) -> list[ShaderloomError]:
    """Return the reasons why the model is no single plan for these input shapes.

    There is one error for each node that is refused or must wait for values of a run; nodes that depend on those are
    left out.
    """
    scope = ProgramScope(model.graph)
    inputs = {port.name: StageInput(port.dtype, tuple(shapes[port.name])) for port in model.inputs}
    reached = advance("main", scope.nodes(), inputs, StagingContext(scope.constants, limits, branch_nodes))
    errors = {**reached.unknown, **reached.refused}
    for item, error in errors.items():
        error.origin = error.origin or item.origin
    return list(errors.values())


def refusal_in(graph: ImportedGraph) -> ShaderloomError | None:
    """Return the first refusal among the nodes that run whenever the graph runs; branches are ignored."""
    for node in graph.nodes:
        if node.refusal is not None:
            return node.refusal
        if node.op in ("Loop", "Scan") and node.definition is None:
            inside = refusal_in(body_of(node))
            if inside is not None:
                return inside
    return None
