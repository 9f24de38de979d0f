"""The cost of inlining to a kernel: the elements it computes, and the nesting depth of its index arithmetic.

A node that several inlined nodes read at different coordinates is computed once for each of them, and what it reads as
often, so that a chain of ``x = Gather(x, x)`` doubles with every node.  A *point* is one coordinate tuple at which a
kernel reads a value; two points are the same if they come from the same point through equal operators.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from ..ir.graph import Node, Shape, Value
from ..ops.registry import OpDef
from ..rewriting.rules import operator_key
from .partition import Partition

#: Elements that one thread may compute for each element of its kernel's result: inlined nodes, each at every point
EVALUATION_LIMIT = 256
#: Nodes that compute coordinates, each from those of the one before: bounds the depth of index arithmetic
NESTING_LIMIT = 32


class EvaluationPoints:
    """The points of a graph, numbered, each with the depth to which nodes may still compute coordinates from its own.

    Where a node reads one operand at what another one holds, the two share the depth: each may nest in the other.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._depths: list[int] = []

    def start(self, kernel: Node, shape: Shape) -> int:
        """Return the point of a kernel's own element, in a value of ``shape``."""
        return self._point((kernel.id, shape), NESTING_LIMIT)

    def may_nest(self, points: Iterable[int]) -> bool:
        """Return whether a node may be computed at ``points``."""
        return all(self._depths[point] >= 0 for point in points)

    def read(self, user: Node, definition: OpDef, operand: Value, points: Iterable[int]) -> set[int]:
        """Return where ``user``, which is computed at ``points``, reads ``operand``."""
        shape = operand.shape
        if definition.element is not None:
            if shape == user.outputs[0].shape:
                return set(points)
            return {self._point(("broadcast", point, shape), self._depths[point]) for point in points}
        operands = definition.data_inputs(user)
        reads = -(-definition.reads // len(operands))  # of each operand
        sharing = 1 if definition.is_view else len(operands)
        others = tuple(value.id for value in user.inputs if value is not None and value is not operand)
        places: set[int] = set()
        for position, value in enumerate(user.inputs):
            if value is operand:
                rule = operator_key(user), repr(user.attributes), position, shape, others
                places.update(
                    self._point((rule, point, number), (self._depths[point] - 1) // sharing)
                    for point in points
                    for number in range(reads)
                )
        return places

    def _point(self, key: Hashable, depth: int) -> int:
        number = self._numbers.setdefault(key, len(self._depths))
        if number == len(self._depths):
            self._depths.append(depth)
        return number


class InliningCost:
    """The points at which each kernel computes the nodes that it inlines."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._numbering = EvaluationPoints()
        self._points: dict[Node, Mapping[int, set[int]]] = {}
        self._evaluated: dict[int, int] = {}  #: how many elements each kernel computes

    def points(self, readers: Iterable[Node], operand: Value) -> dict[int, set[int]]:
        """Return where each kernel, by the id of its anchor or map node, reads ``operand``."""
        places: dict[int, set[int]] = {}
        for user in dict.fromkeys(readers):
            region = self._partition.region_of.get(user)
            if region is not None:
                point = self._numbering.start(region.anchor, operand.shape)
                places.setdefault(region.anchor.id, set()).add(point)
                continue
            own = self._points.get(user) or {user.id: {self._numbering.start(user, user.outputs[0].shape)}}
            for kernel, points in own.items():
                read = self._numbering.read(user, self._partition.operators.of(user), operand, points)
                places.setdefault(kernel, set()).update(read)
        return places

    def add(self, node: Node, points: Mapping[int, set[int]]) -> None:
        """Note that kernels inline ``node``, each at its ``points``."""
        self._points[node] = points
        for kernel, each in points.items():
            self._evaluated[kernel] = self._evaluated.get(kernel, 0) + len(each)

    def nests_too_deep(self, points: Mapping[int, set[int]]) -> bool:
        """Return whether more than ``NESTING_LIMIT`` nodes would compute one coordinate."""
        return not all(map(self._numbering.may_nest, points.values()))

    def computes_too_much(self, points: Mapping[int, set[int]]) -> bool:
        """Return whether a kernel would compute more than ``EVALUATION_LIMIT`` elements for each of its own."""
        return any(self._evaluated.get(kernel, 0) + len(each) > EVALUATION_LIMIT for kernel, each in points.items())
