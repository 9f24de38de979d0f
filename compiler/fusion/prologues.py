"""Prologues: which map nodes are computed inside the kernels that read them, and which exist in memory.

Nodes are visited from the back, so that the consumers of each are decided.
"""

from __future__ import annotations

from ..ir.graph import Node, Value
from ..kernels.family import Reuse
from ..ops.registry import OpDef
from ..symbolic import expr as ex
from .partition import INLINE_LIMIT, Partition

#: Work of an inlined prologue, in simple operations, that a consumer may repeat
LIGHT_WORK = 8
#: The same where each repetition stands beside the loads of a whole column of weights: a product of few rows
ROW_WORK = 24
#: Work that several consumers may repeat each
SHARED_WORK = 2
#: Work that a convolution may repeat for every position of its window besides
WINDOW_WORK = 2


def place_maps(partition: Partition) -> None:
    """Decide for every node in no region whether its value is materialised."""
    inliner = _Inliner(partition)
    for node in reversed(partition.graph.nodes):
        if node not in partition.region_of:
            inliner.place(node)


class _Inliner:
    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.operators = partition.operators
        self.consumers: dict[Node, dict[int, Reuse]] = {}  #: inlined node -> kernels that compute it
        self.own_work: dict[Node, int] = {}
        self.inlined_in: dict[int, int] = {}  #: how many nodes each kernel inlines

    def place(self, node: Node) -> None:
        """Decide whether a map node is materialised or inlined; its users are decided already."""
        partition = self.partition
        value = node.outputs[0]
        kernels: dict[int, Reuse] = {}
        for user in self._readers(value):
            if value not in partition.narrow and self._at_run_time(user) != self._at_run_time(node):
                partition.materialise.add(value)  # a weight, read at run time
                return
            kernels.update(self._kernels_of(user, value))
        reason = self._why_materialise(node, value, kernels)
        if reason is None:
            self.consumers[node] = kernels
            for kernel in kernels:
                self.inlined_in[kernel] = self.inlined_in.get(kernel, 0) + 1
            return
        partition.materialise.add(value)
        partition.refuse_users(node, reason)

    def _readers(self, value: Value) -> list[Node]:
        """Nodes whose kernels load the value; those that need it while compiling do not."""
        return [user for user in value.users if value in self.operators.of(user).data_inputs(user)]

    def _at_run_time(self, node: Node) -> bool:
        """Whether the node is computed by kernels that run with the model."""
        return node.outputs[0] not in self.partition.constant or node.outputs[0] in self.partition.narrow

    def _kernels_of(self, user: Node, operand: Value) -> dict[int, Reuse]:
        """Kernels (by id of their region's anchor or map node) in which ``user`` reads ``operand``."""
        region = self.partition.region_of.get(user)
        if region is not None:
            return {region.anchor.id: self.partition.anchor_family(region).reuse(region, user, operand)}
        if any(value in self.partition.materialise for value in user.outputs):
            return {user.id: Reuse.ONCE}
        return self.consumers[user]

    def _why_materialise(self, node: Node, value: Value, kernels: dict[int, Reuse]) -> str | None:
        definition = self.operators.of(node)
        if value in self.partition.outputs:
            return "the value is an output of the model"
        if node.op == "Relayout":
            return "a weight in the layout of its consumer"
        if not self.partition.enabled:
            return "fusion is off"
        if any(self.inlined_in.get(kernel, 0) >= INLINE_LIMIT for kernel in kernels):
            return f"the consumer inlines {INLINE_LIMIT} nodes already"
        if value in self.partition.narrow:
            return None
        reuse = max(kernels.values(), default=Reuse.ONCE)
        if definition.is_view:
            many = len(definition.data_inputs(node)) > 2
            if many and reuse > Reuse.ONCE:
                return f"{node.op} chooses among operands: too slow inside a loop"
            return None
        work = self._work(node)
        if len(kernels) > 1 and work > SHARED_WORK:
            return "several kernels would compute it again"
        if reuse > Reuse.ONCE and work > (ROW_WORK if reuse is Reuse.FEW else LIGHT_WORK):
            return "its work would be repeated for every use of an element"
        if reuse is Reuse.WINDOW and work > WINDOW_WORK:
            return "its work would be repeated for every position of a window"
        return None

    def _work(self, node: Node) -> int:
        """Simple operations to compute one element, inlined operands included; not counted on beyond ROW_WORK."""
        total, stack = 0, [node]
        while stack and total <= ROW_WORK:
            current = stack.pop()
            total += self._own_work(current)
            for value in current.inputs:
                if value is None or value.producer is None or value in self.partition.materialise:
                    continue
                producer = value.producer
                inlined = self.operators.of(producer).is_map and producer not in self.partition.region_of
                if inlined and len(value.users) == 1:
                    stack.append(producer)
        return total

    def _own_work(self, node: Node) -> int:
        found = self.own_work.get(node)
        if found is None:
            definition = self.operators.of(node)
            if definition.is_view:
                found = 0
            elif definition.gather is not None:
                found = 4 * definition.reads
            else:
                found = _element_work(definition, node)
            self.own_work[node] = found
        return found


def _element_work(definition: OpDef, node: Node) -> int:
    """Cost of an elementwise operator: its expression's operations, expensive functions counted four times."""
    arguments = [
        ex.register(f"x{position}", value.dtype.compute)
        for position, value in enumerate(node.inputs)
        if value is not None
    ]
    assert definition.element is not None
    result = definition.element(node, arguments)
    return sum(4 if inner.op in ex.EXPENSIVE else 1 for inner in ex.walk(result) if inner.args)
