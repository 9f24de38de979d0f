"""Records of the calls of a plan: their tensors with layouts, and which ONNX nodes are in which part of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...runtime.plan.facts import CallFacts, StoredLayout, TensorFacts, TensorKind
from ...runtime.plan.notes import CallNotes
from ..ir.dataflow import operands, preorder
from ..ir.graph import Node, Value
from ..ir.layout import Layout
from ..kernels.draft import BuiltKernel
from ..kernels.groups import Group
from ..symbolic.dimensions import serialise


class CallRecorder:
    """Collect facts and notes while calls are made, in order; ``kind_of`` returns what a value is to the plan."""

    def __init__(self, kind_of: Callable[[Value], TensorKind]) -> None:
        self._kind_of = kind_of
        self._numbers: dict[Value, int] = {}
        self.tensors: list[TensorFacts] = []
        self.calls: list[CallFacts] = []
        self.notes: list[CallNotes] = []

    def add(self, group: Group, built: BuiltKernel, in_place: Value | None) -> None:
        """Record one call of the run; ``in_place`` is the operand whose memory the result takes over."""
        anchor = group.region.anchor if group.region else group.output.producer
        own = group.region.nodes if group.region else group.nodes[len(group.inlined) :]
        before = list(group.region.scores.nodes) if group.region and group.region.scores else []
        self.calls.append(
            CallFacts(
                operands=tuple(map(self._number, built.operands)),
                also=tuple(map(self._number, group.also)),
                in_place=None if in_place is None else self._number(in_place),
            )
        )
        self.notes.append(
            CallNotes(
                family=group.family,
                prologue=origins_of([*group.inlined, *before]),
                anchor=origins_of([anchor] if anchor else []),
                epilogue=origins_of(node for node in own if node is not anchor),
                decision=built.decisions[-1].key if built.decisions else None,
            )
        )

    def _number(self, value: Value) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.tensors)
            self.tensors.append(self._describe(value))
        return number

    def _describe(self, value: Value) -> TensorFacts:
        origin = value.producer.origin if value.producer else None
        kind = self._kind_of(value)
        return TensorFacts(
            name=value.name or (_source_name(value) if kind is TensorKind.WEIGHT else ""),
            graph=origin.graph if origin else "main",
            node=str(origin or ""),
            dtype=value.dtype.name,
            shape=tuple(serialise(dim) for dim in value.shape),
            layout=stored_layout(value.layout),
            kind=kind,
            iterations=origin.iterations if origin else (),
        )


def _source_name(value: Value) -> str:
    """Return the first named constant that a transformed weight is made from, in brackets; "" if there is none."""
    sources = preorder([value], operands)
    return next((f"({source.name})" for source in sources if source.is_constant and source.name), "")


def stored_layout(layout: Layout) -> StoredLayout:
    """Return the record of a layout."""
    return StoredLayout(layout.order, layout.padding, layout.blocks, str(layout))


def origins_of(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the ONNX nodes of IR nodes as texts, each once, in order."""
    return tuple(dict.fromkeys(str(origin) for node in nodes for origin in node.origins))
