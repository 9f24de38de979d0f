"""Prologues: which map nodes are computed inside the kernels that read them, and which exist in memory.

Nodes are visited from the back, so that the consumers of each are decided.  The rules are in :mod:`.prologue_rules`.
"""

from __future__ import annotations

from ..ir.graph import Node, Value
from ..kernels.family import Reuse
from .inlining_cost import InliningCost
from .partition import Partition
from .prologue_rules import PROLOGUE_RULES, Inlining, MapWork
from .rule import first_remark


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
        self.works = MapWork(partition)
        self.inlined_in: dict[int, int] = {}  #: how many nodes each kernel inlines
        self.cost = InliningCost(partition)

    def place(self, node: Node) -> None:
        """Decide whether a map node is materialised or inlined; its users are decided already."""
        partition = self.partition
        value = node.outputs[0]
        kernels: dict[int, Reuse] = {}
        readers = self._readers(value)
        for user in readers:
            if value not in partition.narrow and self._at_run_time(user) != self._at_run_time(node):
                partition.materialise.add(value)  # a weight, read at run time
                return
            kernels.update(self._kernels_of(user, value))
        points = self.cost.points(readers, value)
        candidate = Inlining(partition, node, kernels, self.inlined_in, self.works, self.cost, points)
        reason = first_remark(PROLOGUE_RULES, candidate)
        if reason is None:
            self.consumers[node] = kernels
            self.cost.add(node, points)
            for kernel in kernels:
                self.inlined_in[kernel] = self.inlined_in.get(kernel, 0) + 1
            return
        partition.materialise.add(value)
        partition.refuse_users(node, reason)

    def _readers(self, value: Value) -> list[Node]:
        """Return the nodes whose kernels load the value, without those that need it at compile time only."""
        return [user for user in value.users if value in self.operators.of(user).data_inputs(user)]

    def _at_run_time(self, node: Node) -> bool:
        """Return whether the node is computed by kernels that run with the model."""
        return node.outputs[0] not in self.partition.constant or node.outputs[0] in self.partition.narrow

    def _kernels_of(self, user: Node, operand: Value) -> dict[int, Reuse]:
        """Return the kernels (by id of their region's anchor or map node) in which ``user`` reads ``operand``."""
        region = self.partition.region_of.get(user)
        if region is not None:
            return {region.anchor.id: self.partition.anchor_family(region).reuse(region, user, operand)}
        if any(value in self.partition.materialise for value in user.outputs):
            return {user.id: Reuse.ONCE}
        return self.consumers[user]
