"""Prologues: which map nodes are computed inside the kernels that read them, and which exist in memory.

Nodes are visited from the back, so that the consumers of each are decided.
"""

from __future__ import annotations

import math

from ..ir.graph import Node, Value
from ..ops.registry import OpDef
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..tuning.attention_tiles import FEW_ROWS
from .groups import Region
from .partition import INLINE_LIMIT, REUSING_FAMILIES, Partition

#: Work of an inlined prologue, in simple operations, that a consumer may repeat
LIGHT_WORK = 8
#: The same where each repetition stands beside the loads of a whole column of weights: a product of few rows
ROW_WORK = 24
#: Work that several consumers may repeat each
SHARED_WORK = 2
#: Work that a convolution may repeat for every position of its window besides
WINDOW_WORK = 2
#: Families that compare elements with each other: they read each of them time and again
_COMPARING_FAMILIES = frozenset({"rank", "merge", "suppress"})
#: Uses of an operand, as :meth:`_Inliner.kernels_of` names them, that read each element many times
_LOOPS = REUSING_FAMILIES | _COMPARING_FAMILIES | {"reduce", "window", "windowed"}
_REUSING = _LOOPS | {"row", "winograd_input"}
#: Operations that cost about four simple ones
EXPENSIVE = frozenset(
    "exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf pow sqrt div mod fmod".split()
)


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
        self.consumers: dict[Node, dict[int, str]] = {}  #: inlined node -> kernels that compute it, with family
        self.own_work: dict[Node, int] = {}
        self.inlined_in: dict[int, int] = {}  #: how many nodes each kernel inlines

    def place(self, node: Node) -> None:
        """Decide whether a map node is materialised or inlined; its users are decided already."""
        partition = self.partition
        value = node.outputs[0]
        kernels: dict[int, str] = {}
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

    def _kernels_of(self, user: Node, operand: Value) -> dict[int, str]:
        """Kernels (by id of their region's anchor or map node) in which ``user`` reads ``operand``, with the use.

        A use is a family, or "windowed" (once for every position of a window) or "row" (beside a column of weights).
        """
        region = self.partition.region_of.get(user)
        if region is not None:
            return {region.anchor.id: self._use_in(region, user, operand)}
        if any(value in self.partition.materialise for value in user.outputs):
            return {user.id: "map"}
        return self.consumers[user]

    def _use_in(self, region: Region, user: Node, operand: Value) -> str:
        family = self.operators.of(region.anchor).family or "map"
        if family == "attention":
            return "gemm" if _read_for_every_block(region, user, operand) else "map"
        if user is not region.anchor and family in REUSING_FAMILIES:
            family = "map"  # read once per result element by the epilogue
        if family in ("conv", "conv_transpose") and math.prod(region.anchor.attributes.kernel) > 1:
            return "windowed"
        if family == "reduce" and len(region.reductions) == 1 and region.exit.producer in region.reductions:
            return "map"
        if family == "gemm" and user is region.anchor and operand is user.operand(0) and _has_few_rows(region):
            return "row"
        return family

    def _why_materialise(self, node: Node, value: Value, kernels: dict[int, str]) -> str | None:
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
        uses = set(kernels.values())
        reused = not uses.isdisjoint(_REUSING)
        if definition.is_view:
            many = len(definition.data_inputs(node)) > 2
            if many and reused:
                return f"{node.op} chooses among operands: too slow inside a loop"
            return None
        work = self._work(node)
        if len(kernels) > 1 and work > SHARED_WORK:
            return "several kernels would compute it again"
        light = ROW_WORK if uses.isdisjoint(_LOOPS) else LIGHT_WORK
        if reused and work > light:
            return "its work would be repeated for every use of an element"
        if "windowed" in uses and work > WINDOW_WORK:
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


def _has_few_rows(region: Region) -> bool:
    return len(region.domain) >= 2 and ix.bounds(region.domain[-2])[1] <= FEW_ROWS


def _read_for_every_block(region: Region, user: Node, operand: Value) -> bool:
    """Whether an attention reads an element of ``operand`` once for each of several blocks of queries: keys, values."""
    if region.anchor.attributes.parts > 1 or ix.bounds(region.domain[-2])[1] <= FEW_ROWS:
        return False
    many = user.operand(1) if user is region.anchor or (region.scores and user is region.scores.product) else None
    return operand is many


def _element_work(definition: OpDef, node: Node) -> int:
    """Cost of an elementwise operator: its expression's operations, expensive functions counted four times."""
    arguments = [
        ex.register(f"x{position}", value.dtype.compute)
        for position, value in enumerate(node.inputs)
        if value is not None
    ]
    assert definition.element is not None
    result = definition.element(node, arguments)
    return sum(4 if inner.op in EXPENSIVE else 1 for inner in ex.walk(result) if inner.args)
