"""The fusion decisions so far, and the facts about a graph that fusion's steps query."""

from __future__ import annotations

from ..ir.graph import Graph, Node, Value
from ..kernels.family import KernelFamily, family_of
from ..kernels.groups import Region
from ..ops.registry import Registry
from ..rewriting.rules import is_static
from .dequant_fusion import narrow_values

#: Nodes that a kernel may inline: they bound the size of a shader
INLINE_LIMIT = 128


class Partition:
    """A graph whose nodes are being divided among kernels.

    ``region_of`` grows first, then ``materialise``: the values that exist in memory.  A node in no region whose value
    is not materialised is inlined.
    """

    def __init__(
        self,
        graph: Graph,
        enabled: bool,
        max_operands: int,
        operators: Registry,
        converts_halves: bool,
        longest_own_row: int,
    ) -> None:
        self.graph = graph
        self.enabled = enabled
        self.max_operands = max_operands
        self.operators = operators
        self.longest_own_row = longest_own_row
        self.rank = {node: position for position, node in enumerate(graph.nodes)}
        self.outputs = set(graph.outputs)
        self.constant = constant_values(graph)
        self.narrow: set[Value] = set()
        if enabled:
            self.narrow = narrow_values(graph, self.constant, operators, converts_halves=converts_halves)
        self.region_of: dict[Node, Region] = {}
        self.materialise: set[Value] = set()
        self.reasons: dict[tuple[int, int], tuple[Node, Node, str]] = {}  #: the first of each pair

    def family_of(self, node: Node) -> KernelFamily | None:
        """Return the kernel family of a node; None for maps."""
        return family_of(node, self.operators)

    def anchor_family(self, region: Region) -> KernelFamily:
        """Return the kernel family of a region's anchor."""
        family = self.family_of(region.anchor)
        assert family is not None
        return family

    def refuse(self, producer: Node, consumer: Node, reason: str) -> None:
        """Record why two neighbours do not share a kernel."""
        self.reasons.setdefault((producer.id, consumer.id), (producer, consumer, reason))

    def refuse_users(self, node: Node, reason: str) -> None:
        for user in node.outputs[0].users:
            self.refuse(node, user, reason)

    @property
    def too_many_buffers(self) -> str:
        """The remark on a kernel that would exceed the limit of buffers."""
        return f"the kernel would bind more than {self.max_operands} buffers"

    def owners(self) -> list[Value]:
        """Return the outputs of kernels, in the order of the nodes that compute them."""
        placed = {
            value: (self.rank[value.producer], value.output_index)
            for value in self.materialise
            if value.producer is not None
        }
        return sorted(placed, key=lambda value: placed[value])

    def operands(self, output: Value) -> tuple[list[Value], list[Node]]:
        """Return the values that the kernel of ``output`` loads, and the nodes that it inlines."""
        assert output.producer is not None
        region = self.region_of.get(output.producer)
        own = region.own if region else [output.producer]
        reads: dict[Value, None] = {}
        inlined: dict[Node, None] = dict.fromkeys(own)
        for node in own:
            self._visit(node, reads, inlined)
        for member in own:
            inlined.pop(member, None)
        inner = {node.outputs[0] for node in own}
        return [value for value in reads if value not in inner], sorted(inlined, key=self.rank.__getitem__)

    def _visit(self, node: Node, reads: dict[Value, None], inlined: dict[Node, None]) -> None:
        stack = self.operators.of(node).data_inputs(node)[::-1]
        while stack:
            value = stack.pop()
            if is_literal(value):
                continue
            producer = value.producer
            if producer is None or value in self.materialise:
                reads[value] = None
                continue
            if producer in inlined:
                continue
            inlined[producer] = None
            stack.extend(reversed(self.operators.of(producer).data_inputs(producer)))


def constant_values(graph: Graph) -> set[Value]:
    """Return the values that depend on constants alone, not even on dynamic dimensions."""
    constant = set(graph.constants)
    for node in graph.nodes:
        operands = [value for value in node.inputs if value is not None]
        if operands and all(value in constant for value in operands) and is_static(node):
            constant.update(node.outputs)
    return constant


def is_literal(value: Value) -> bool:
    """Return whether kernels embed the value in their text (one known element), or never read it (empty)."""
    return (value.static_value is not None and value.static_value.size <= 1) or value.elements == 0
