"""The intermediate representation: values, nodes and graphs in single-assignment form.

Invariants (checked by :func:`verify`):

* a value has exactly one producer: a node's output, a graph input, or a constant;
* ``value.uses`` lists every (node, input position) that reads it, and nothing else; only the methods of :class:`Graph`
  change it;
* ``graph.nodes`` is in topological order after :meth:`Graph.sort`, which every pass calls before it returns;
* shapes are logical, in ONNX order; the physical order is ``value.layout`` alone;
* a node that no value depends on any more is removed by :meth:`Graph.remove_dead`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np

from ...runtime.plan.dtypes import DType
from ...runtime.plan.errors import InternalError, ModelError, Origin
from ...runtime.plan.record import record
from ..symbolic import polynomial as ix
from ..symbolic.polynomial import Dim
from .layout import Layout, contiguous

Shape = tuple[Dim, ...]


class Source(Protocol):
    """The storage of a constant's bytes: inline, or a range of a model or data file (read only when asked)."""

    @property
    def key(self) -> str:
        """Identity for cache keys: a digest of the bytes, or file identity with offset and length."""
        ...

    def read(self) -> np.ndarray:
        """Return the elements as a read-only array of the constant's dtype and shape."""
        ...

    def part(self, start: int, shape: tuple[int, ...]) -> Source:
        """Return the source of ``shape`` of the elements, in row-major order from the one at ``start`` on."""
        ...


class Value:
    """A tensor in the graph."""

    __slots__ = (
        "constant",
        "dtype",
        "id",
        "static_value",
        "layout",
        "name",
        "output_index",
        "producer",
        "shape",
        "storage",
        "uses",
    )

    def __init__(self, identity: int, name: str, dtype: DType, shape: Shape) -> None:
        self.id = identity
        self.name = name
        self.dtype = dtype
        #: the 16-bit type that the file declares for a tensor which is computed as float32 (:mod:`.declared_halves`)
        self.storage: DType | None = None
        self.shape = shape
        self.layout: Layout = contiguous(len(shape))
        self.producer: Node | None = None
        self.output_index = 0
        self.uses: dict[tuple[Node, int], None] = {}  #: in order of first use; a set, as one value may have many
        self.constant: Source | None = None
        #: elements known at compile time as an object array of int | Index | float | bool (small tensors only)
        self.static_value: np.ndarray | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> Dim:
        return ix.product(self.shape)

    @property
    def is_constant(self) -> bool:
        return self.constant is not None

    @property
    def user(self) -> Node:
        """The node that reads this value first."""
        return next(iter(self.uses))[0]

    @property
    def users(self) -> list[Node]:
        """Distinct nodes that read this value, in order of first use."""
        return list(dict.fromkeys(node for node, _ in self.uses))

    def __repr__(self) -> str:
        dims = "x".join(ix.text(dim) for dim in self.shape)
        return f"%{self.id}:{self.dtype}[{dims}]"


class Node:
    """An operation.  ``attributes`` is a frozen dataclass of the operator's own type."""

    __slots__ = ("attributes", "blocks", "domain", "id", "inputs", "op", "origins", "outputs")

    def __init__(
        self,
        identity: int,
        op: str,
        domain: str,
        inputs: list[Value | None],
        attributes: Any,
        origins: Sequence[Origin],
        blocks: tuple[Graph, ...] = (),
    ) -> None:
        self.id = identity
        self.op = op
        self.domain = domain
        self.inputs = inputs
        self.outputs: list[Value] = []
        self.attributes = attributes
        self.origins = origins
        self.blocks = blocks

    @property
    def output(self) -> Value:
        """The only output."""
        if len(self.outputs) != 1:
            raise InternalError(f"{self.op} has {len(self.outputs)} outputs", origin=self.origin)
        return self.outputs[0]

    @property
    def origin(self) -> Origin | None:
        return self.origins[0] if self.origins else None

    def operand(self, position: int) -> Value:
        """Return a required input."""
        value = self.optional(position)
        if value is None:  # of operators outside the standard the importer does not know how many they need
            error = InternalError if self.domain == "loom" else ModelError
            raise error(f"input {position} of {self.op} is missing", origin=self.origin)
        return value

    def optional(self, position: int) -> Value | None:
        return self.inputs[position] if position < len(self.inputs) else None

    def __repr__(self) -> str:
        return f"{', '.join(map(repr, self.outputs))} = {self.op}({', '.join(map(repr, self.inputs))})"


@record
class PortWindow:
    """The part of an input or output of the model that a graph has in its place: neighbouring rows of the whole."""

    whole: str  #: name of the input or output
    shape: Shape  #: of the whole
    axis: int  #: of the rows; those before it have one element
    start: int  #: row of the whole with which the part begins

    @property
    def first(self) -> Dim:
        """The element of the whole with which the part begins."""
        return ix.multiply(ix.product(self.shape[self.axis + 1 :]), self.start)


@dataclass
class Graph:
    """A list of nodes with inputs and outputs; also the body of a control-flow node."""

    name: str
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)
    #: element types of the outputs in the file, once halves are computed as float32 (:mod:`.declared_halves`)
    output_types: list[DType] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    constants: list[Value] = field(default_factory=list)
    #: by their names the inputs and outputs that are parts of those of the model (:mod:`..passes.large_tensors.ports`)
    windows: dict[str, PortWindow] = field(default_factory=dict)
    #: names of constants by whose transpose products of other stages may multiply (:mod:`..passes.tied_weights`)
    transposed: Set[str] = frozenset()
    _next_id: int = 0

    def whole_name(self, name: str) -> str:
        """Return the model's input or output of which the one with a name is a window; the name itself for others."""
        return self.windows[name].whole if name in self.windows else name

    # -- building ------------------------------------------------------------------------------------------------

    def _fresh(self) -> int:
        self._next_id += 1
        return self._next_id

    def new_value(self, name: str, dtype: DType, shape: Iterable[Dim]) -> Value:
        return Value(self._fresh(), name, dtype, tuple(shape))

    def add_input(self, name: str, dtype: DType, shape: Iterable[Dim]) -> Value:
        value = self.new_value(name, dtype, shape)
        self.inputs.append(value)
        return value

    def add_constant(self, name: str, dtype: DType, shape: Iterable[Dim], source: Source) -> Value:
        value = self.new_value(name, dtype, shape)
        value.constant = source
        self.constants.append(value)
        return value

    def add_node(
        self,
        op: str,
        inputs: Sequence[Value | None],
        attributes: Any,
        outputs: Sequence[tuple[str, DType, Shape]],
        *,
        domain: str = "",
        origins: Sequence[Origin] = (),
        blocks: tuple[Graph, ...] = (),
    ) -> Node:
        """Append a node.  ``outputs`` gives name, dtype and shape of each result."""
        node = Node(self._fresh(), op, domain, list(inputs), attributes, origins, blocks)
        for position, value in enumerate(node.inputs):
            if value is not None:
                value.uses[node, position] = None
        for output_index, (name, dtype, shape) in enumerate(outputs):
            value = self.new_value(name, dtype, shape)
            value.producer, value.output_index = node, output_index
            node.outputs.append(value)
        self.nodes.append(node)
        return node

    # -- changing: the only code that touches use lists -----------------------------------------------------------

    def set_input(self, node: Node, position: int, value: Value | None) -> None:
        old = node.inputs[position]
        if old is not None:
            del old.uses[node, position]
        node.inputs[position] = value
        if value is not None:
            value.uses[node, position] = None

    def replace(self, old: Value, new: Value) -> None:
        """Let ``new`` stand for ``old``: its readers, its name and its declared storage, where ``new`` has none."""
        if not new.name:
            new.name = old.name
        if new.storage is None and new.producer is not None and not new.uses:
            new.storage = old.storage
        self.replace_uses(old, new)

    def replace_uses(self, old: Value, new: Value) -> None:
        """Let every reader of ``old``, and the graph's outputs, read ``new``."""
        if old is new:
            return
        for node, position in old.uses:
            node.inputs[position] = new
            new.uses[node, position] = None
        old.uses.clear()
        self.outputs = [new if value is old else value for value in self.outputs]

    def remove_dead(self) -> int:
        """Remove nodes and constants that no output depends on; gives the number of nodes removed."""
        live_outputs = set(map(id, self.outputs))
        dead: set[int] = set()
        for node in reversed(self.nodes):
            if all(not value.uses and id(value) not in live_outputs for value in node.outputs):
                for position, value in enumerate(node.inputs):
                    if value is not None:
                        del value.uses[node, position]
                        node.inputs[position] = None
                dead.add(id(node))
        if dead:
            self.nodes = [node for node in self.nodes if id(node) not in dead]
        self.constants = [value for value in self.constants if value.uses or id(value) in live_outputs]
        return len(dead)

    def sort(self) -> None:
        """Restore topological order, keeping the present order where there is a choice.

        Every pass calls this, so it is written out: networkx takes 13 times as long (8,000 nodes: 148 against 12 ms).
        """
        if self._is_sorted():
            return
        rank = {id(node): position for position, node in enumerate(self.nodes)}
        waiting: dict[int, int] = {}
        ready: list[int] = []
        for position, node in enumerate(self.nodes):
            producers = {
                id(value.producer) for value in node.inputs if value is not None and value.producer is not None
            }
            waiting[id(node)] = sum(1 for producer in producers if producer in rank)
            if not waiting[id(node)]:
                ready.append(position)
        heapq.heapify(ready)
        ordered: list[Node] = []
        while ready:
            node = self.nodes[heapq.heappop(ready)]
            ordered.append(node)
            for reader in dict.fromkeys(reader for value in node.outputs for reader, _ in value.uses):
                if id(reader) in waiting:
                    waiting[id(reader)] -= 1
                    if not waiting[id(reader)]:
                        heapq.heappush(ready, rank[id(reader)])
        if len(ordered) != len(self.nodes):
            stuck = next(node for node in self.nodes if waiting[id(node)])
            raise InternalError("the graph has a cycle", origin=stuck.origin)
        self.nodes = ordered

    def _is_sorted(self) -> bool:
        """Return whether the nodes are in topological order: every node comes after the producers of its operands."""
        later = set(self.nodes)
        for node in self.nodes:
            if any(value is not None and value.producer in later for value in node.inputs):
                return False
            later.discard(node)
        return True

    # -- looking -------------------------------------------------------------------------------------------------

    def values(self) -> Iterator[Value]:
        yield from self.inputs
        yield from self.constants
        for node in self.nodes:
            yield from node.outputs

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self.nodes)} nodes)"

    def __str__(self) -> str:
        """Return a listing for people: one line for each constant and node, the same for equal graphs."""
        lines = [f"graph {self.name}({', '.join(f'{value!r} {value.name}' for value in self.inputs)})"]
        lines += [f"  {value!r} = constant {value.name}" for value in self.constants]
        for node in self.nodes:
            origins = ", ".join(str(origin.index) for origin in node.origins)
            layouts = " ".join(str(value.layout) for value in node.outputs if not value.layout.is_contiguous)
            attributes = repr(node.attributes) if fields(node.attributes) else ""
            lines.append(" ".join(filter(None, (f"  {node!r}", attributes, layouts, f"# onnx {origins}"))))
        lines.append(f"  return {', '.join(map(repr, self.outputs))}")
        return "\n".join(lines)


def verify(graph: Graph) -> None:
    """Check the invariants; raises :class:`InternalError` naming the first that does not hold."""
    defined = {id(value) for value in graph.inputs} | {id(value) for value in graph.constants}
    names_of_uses: dict[int, list[tuple[int, int]]] = {}
    for constant in graph.constants:
        if constant.constant is None:
            raise InternalError(f"constant {constant!r} has no source")
    for node in graph.nodes:
        for position, value in enumerate(node.inputs):
            if value is None:
                continue
            if id(value) not in defined:
                raise InternalError(f"{value!r} is read by {node!r} before it is defined", origin=node.origin)
            names_of_uses.setdefault(id(value), []).append((id(node), position))
        for output_index, value in enumerate(node.outputs):
            if value.producer is not node or value.output_index != output_index:
                raise InternalError(f"{value!r} does not know its producer {node!r}", origin=node.origin)
            if id(value) in defined:
                raise InternalError(f"{value!r} is defined twice", origin=node.origin)
            if value.layout.rank != value.rank:
                raise InternalError(f"layout {value.layout} does not fit {value!r}", origin=node.origin)
            defined.add(id(value))
    for value in graph.values():
        recorded = sorted((id(node), position) for node, position in value.uses)
        if recorded != sorted(names_of_uses.get(id(value), [])):
            raise InternalError(f"the use list of {value!r} is wrong")
    for value in graph.outputs:
        if id(value) not in defined:
            raise InternalError(f"output {value!r} is not defined")
    if len(graph.outputs) != len(graph.output_names):
        raise InternalError("outputs and output names differ in number")
