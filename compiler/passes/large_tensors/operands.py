"""What a kernel loads of tensors beyond a binding for the elements of a value."""

from __future__ import annotations

from collections.abc import Sequence

from ...fusion import constant_values
from ...fusion.dequant_fusion import narrow_values
from ...ir.dataflow import operands, post_order, reachable
from ...ir.graph import Graph, Value
from ...ops.registry import registry
from ...rewriting.rules import operator_key
from ...target import Target
from .ports import exceeds


class LargeOperands:
    """The tensors of a graph beyond what a target binds: those that depend on constants alone, or else those of the
    run.
    """

    def __init__(self, graph: Graph, target: Target, *, of_constants: bool) -> None:
        self.target = target
        self.of_constants = of_constants
        self.constant = constant_values(graph)
        self._narrow = narrow_values(graph, self.constant)
        self._large: dict[Value, frozenset[Value]] = {}  #: tensors beyond the limit that are loaded for a value
        self._near: dict[Value, bool] = {}
        self._wholes: set[Value] = set()  #: results of parts side by side

    def loaded(self, value: Value) -> frozenset[Value]:
        """Return the tensors beyond the limit that a kernel loads for elements of ``value``."""

        def above(current: Value) -> Sequence[Value]:
            return () if current in self._large or self._is_stored(current) else operands(current)

        for current in post_order([value], above):
            if current in self._large:
                continue
            if self._is_stored(current):
                counts = exceeds(current, self.target) and (current in self.constant) == self.of_constants
                self._large[current] = frozenset([current] if counts else [])
            else:
                self._large[current] = frozenset().union(*(self._large[operand] for operand in operands(current)))
        return self._large[value]

    def _is_stored(self, value: Value) -> bool:
        """Return whether a value is surely in memory when it is read, and not computed in the kernel that reads it."""
        node = value.producer
        if node is None or len(node.outputs) != 1 or not registry.of(node).is_map:
            return True
        is_view = registry.of(node).is_view and operator_key(node) != "loom.Unpack"
        return value in self.constant and value not in self._narrow and not is_view

    def loaded_for(self, value: Value) -> frozenset[Value]:
        """Return the tensors beyond the limit that are loaded for the operands of a value's node."""
        return frozenset().union(*map(self.loaded, operands(value)))

    def add_whole(self, value: Value) -> None:
        """Note that a value is parts side by side."""
        self._wholes.add(value)

    def is_near(self, value: Value) -> bool:
        """Return whether a value is too large or has parts, or is computed of one, with maps at most in between."""

        def above(current: Value) -> Sequence[Value]:
            is_map = current.producer is not None and registry.of(current.producer).is_map
            return operands(current) if is_map and current not in self._near else ()

        for current in post_order([value], above):
            if current not in self._near:
                near = any(exceeds(each, self.target) for each in (current, *operands(current)))
                self._near[current] = (
                    near or current in self._wholes or any(self._near.get(each, False) for each in above(current))
                )
        return self._near[value]


def is_attended(value: Value) -> bool:
    """Return whether an attention kernel may compute a value: parts of open size are not worth stored scores."""

    def below(current: Value) -> list[Value]:
        return [user.output for user, _ in current.uses if registry.of(user).is_map]

    readers = (user for each in reachable([value], below) for user, _ in each.uses)
    return any(operator_key(user) == "loom.SoftmaxProduct" for user in readers)
