"""Which values of a program are the same, whatever the run: an integer is read once, and two sizes are one symbol."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from ..compiler.ir.graph import Value
from ..compiler.staging.program_graph import PendingNode
from ..runtime.plan.dtypes import BOOL

#: Operators whose results have the elements of their first operand, in the same order, if both are integers
_VIEWS = frozenset({"Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Cast"})
#: Operators that give something else each time
_RANDOM = frozenset({
    "Random", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli",
    "Dropout",
})  # fmt: skip


class Equalities:
    """The values that steps have computed, by what they were computed from."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}  #: of equal values, the one that was computed first
        self._computed: dict[tuple[Hashable, ...], str] = {}  #: that value, by its operator, operands and position
        self._sources: dict[str, str] = {}  #: of integers in another shape or type, whose elements they are

    def note(self, item: PendingNode, block: str, values: Mapping[str, Value]) -> None:
        """Note what a node of a block computes."""
        node = item.node
        if node.definition is None or node.op in _RANDOM:
            return
        operands = tuple(self.first(name) for name in item.inputs)
        for position, name in enumerate(item.outputs):
            key = (block, node.domain, node.op, node.attributes, operands, position)
            try:
                first = self._computed.setdefault(key, name)
            except TypeError:  # attributes with a tensor, which no count depends on
                return
            if name and first != name:
                self._first[name] = first
        if _is_integer_view(item, values):
            self._sources[self.first(item.outputs[0])] = self.source(item.inputs[0])

    def first(self, name: str) -> str:
        """Return the first of the values that equal ``name``."""
        return self._first.get(name, name)

    def source(self, name: str) -> str:
        """Return the value whose elements those of ``name`` are, in the same order."""
        first = self.first(name)
        return self._sources.get(first, first)


def _is_integer_view(item: PendingNode, values: Mapping[str, Value]) -> bool:
    """Return whether a node gives integers another shape or type."""
    if item.node.op not in _VIEWS or item.node.domain or not {item.inputs[0], item.outputs[0]} <= values.keys():
        return False
    dtypes = [values[name].dtype for name in (item.inputs[0], item.outputs[0])]
    return all(dtype is not None and dtype is not BOOL and not dtype.is_float for dtype in dtypes)
