"""Rules of backward fusion: the map nodes that their readers' kernels compute, and the work that this repeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ..ir.graph import Node, Value
from ..kernels.family import Reuse
from ..ops.registry import OpDef
from ..symbolic import expr as ex
from .inlining_cost import EVALUATION_LIMIT, NESTING_LIMIT, InliningCost
from .partition import INLINE_LIMIT, Partition
from .rule import FusionRule

#: Work of an inlined prologue, in simple operations, that a consumer may repeat
LIGHT_WORK = 8
#: The same where each repetition comes with the loads of a whole column of weights: a product of few rows
ROW_WORK = 24
#: Work that several consumers may repeat each; for a single number LIGHT_WORK, as a kernel would only start and end
SHARED_WORK = 2
#: Work that a convolution may repeat for every position of its window besides
WINDOW_WORK = 2


class MapWork:
    """The work of map nodes, in simple operations."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._own_work: dict[Node, int] = {}

    def of(self, node: Node) -> int:
        """Return the work of one element, inlined operands included; not counted on beyond ROW_WORK.

        Operands that are narrow do not count: every kernel that reads them computes them, whatever it costs.
        """
        total, stack = 0, [node]
        while stack and total <= ROW_WORK:
            current = stack.pop()
            total += self._own(current)
            for value in current.inputs:
                if value is None or value.producer is None or value in self._partition.materialise:
                    continue
                if value in self._partition.narrow:
                    continue
                producer = value.producer
                inlined = self._partition.operators.of(producer).is_map and producer not in self._partition.region_of
                if inlined and len(value.users) == 1:
                    stack.append(producer)
        return total

    def _own(self, node: Node) -> int:
        work = self._own_work.get(node)
        if work is None:
            definition = self._partition.operators.of(node)
            if definition.is_view:
                work = 0
            elif definition.gather is not None:
                work = 1 if definition.reads_word(node) else 4 * definition.reads
            else:
                work = _element_work(definition, node)
            self._own_work[node] = work
        return work


@dataclass
class Inlining:
    """A candidate: map ``node``, to be computed in every one of ``kernels``, each with how often it would."""

    partition: Partition
    node: Node
    kernels: Mapping[int, Reuse]
    inlined_in: Mapping[int, int]  #: how many nodes each kernel inlines
    works: MapWork
    cost: InliningCost
    points: Mapping[int, set[int]]  #: where each kernel would compute it

    @property
    def value(self) -> Value:
        return self.node.outputs[0]

    @cached_property
    def definition(self) -> OpDef:
        return self.partition.operators.of(self.node)

    @cached_property
    def reuse(self) -> Reuse:
        """The degree of recomputation in the kernel that repeats the value most."""
        return max(self.kernels.values(), default=Reuse.ONCE)

    @property
    def is_narrow(self) -> bool:
        """Whether the value is dequantised in the kernels that read it, whatever it costs."""
        return self.value in self.partition.narrow

    @cached_property
    def work(self) -> int:
        """Simple operations for an element; 0 for views, and for narrow values."""
        return 0 if self.is_narrow or self.definition.is_view else self.works.of(self.node)


#: What keeps a map out of the kernels that read it; the first rule that holds gives the remark
PROLOGUE_RULES: tuple[FusionRule[Inlining], ...] = (
    FusionRule("output", lambda c: c.value in c.partition.outputs, "the value is an output of the model"),
    FusionRule("weight-layout", lambda c: c.node.op == "Relayout", "a weight in the layout of its consumer"),
    FusionRule("fusion-off", lambda c: not c.partition.enabled, "fusion is off"),
    FusionRule(
        "inline-limit",
        lambda c: any(c.inlined_in.get(kernel, 0) >= INLINE_LIMIT for kernel in c.kernels),
        f"the consumer inlines {INLINE_LIMIT} nodes already",
    ),
    FusionRule(
        "nesting-limit",
        lambda c: c.cost.nests_too_deep(c.points),
        f"more than {NESTING_LIMIT} nodes would compute one coordinate",
    ),
    FusionRule(
        "evaluation-limit",
        lambda c: c.cost.computes_too_much(c.points),
        f"the consumer would compute more than {EVALUATION_LIMIT} elements for each of its own",
    ),
    FusionRule(
        "choice-in-a-loop",
        lambda c: (
            not c.is_narrow
            and c.definition.is_view
            and c.reuse > Reuse.ONCE
            and len(c.definition.data_inputs(c.node)) > 2
        ),
        "{c.node.op} chooses among operands: too slow inside a loop",
    ),
    FusionRule(
        "several-kernels",
        lambda c: len(c.kernels) > 1 and c.work > (LIGHT_WORK if c.value.elements == 1 else SHARED_WORK),
        "several kernels would compute it again",
    ),
    FusionRule(
        "repeated-work",
        lambda c: c.reuse > Reuse.ONCE and c.work > (ROW_WORK if c.reuse is Reuse.FEW else LIGHT_WORK),
        "its work would be repeated for every use of an element",
    ),
    FusionRule(
        "window-work",
        lambda c: c.reuse is Reuse.WINDOW and c.work > WINDOW_WORK,
        "its work would be repeated for every position of a window",
    ),
)


def _element_work(definition: OpDef, node: Node) -> int:
    """Return the number of operations in an elementwise operator's expression; expensive functions count four times."""
    arguments = [
        ex.register(f"x{position}", value.dtype.compute)
        for position, value in enumerate(node.inputs)
        if value is not None
    ]
    assert definition.element is not None
    result = definition.element(node, arguments)
    return sum(4 if inner.op in ex.EXPENSIVE else 1 for inner in ex.walk(result) if inner.args)
