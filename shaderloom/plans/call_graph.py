"""The calls of a plan as a graph: what ``inspect --html`` and notebooks draw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ..runtime.plan.facts import TensorKind
from ..runtime.plan.plan import Plan
from ..runtime.plan.record import record
from .graph_layout import place


@record
class CallGraph:
    """Boxes for the calls of a plan, then its inputs, then its outputs, and the tensors that lead from one to another.

    ``inputs`` and ``outputs`` are tensors, as positions among the plan's facts; an output that no call writes is not
    there.  ``edges`` are ``(from box, to box, tensor)``.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    edges: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, plan: Plan) -> CallGraph:
        """Return the graph of a plan."""
        writers, readers = plan.facts.writers(), readers_of(plan)
        tensors, count = plan.facts.tensors, len(plan.calls)
        inputs = [number for number, row in enumerate(tensors) if row.kind is TensorKind.INPUT]
        outputs = [number for number, row in enumerate(tensors) if row.kind is TensorKind.OUTPUT and number in writers]
        edges = [
            (count + position, reader, tensor) for position, tensor in enumerate(inputs) for reader in readers[tensor]
        ]
        edges += [(writer, reader, tensor) for tensor, writer in writers.items() for reader in readers[tensor]]
        edges += [(writers[tensor], count + len(inputs) + position, tensor) for position, tensor in enumerate(outputs)]
        return cls(tuple(inputs), tuple(outputs), tuple(edges))

    def place(self, sizes: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Return the upper left corner of every box, whose widths and heights are ``sizes``; see :func:`place`."""
        return place(sizes, [(source, target) for source, target, _ in self.edges])


def readers_of(plan: Plan) -> defaultdict[int, list[int]]:
    """Return the calls that read each tensor, by the tensor's position among the plan's facts."""
    readers: defaultdict[int, list[int]] = defaultdict(list)
    for number, call in enumerate(plan.facts.calls):
        for operand in dict.fromkeys(call.reads):
            readers[operand].append(number)
    return readers
