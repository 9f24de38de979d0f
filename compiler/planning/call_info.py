"""What the planner tells people about its calls: tensors with layouts, and which ONNX nodes are where in a kernel.

The rows are JSON values for ``Plan.report``.  They explain a plan and change nothing about how it runs:

``tensors``
    every tensor that a call of the run binds: name (that of the ONNX tensor whose elements it holds, else "", or for
    a weight a constant that it is made from, in brackets), graph path of the ONNX nodes, the ONNX node whose result it
    is ("" for inputs and constants), dtype, logical shape, layout, and kind: ``input``, ``weight``, ``activation`` or
    ``output``; of nodes in loops that are written out also ``steps``
``call_records``
    one row for each call: ``operands`` (numbers of tensors in binding order, the result last), ``also`` (those of them
    that are further results; plans of older versions have no such entry), ``family``, the ONNX nodes by their part in
    the kernel (``prologue``, ``anchor``, ``epilogue``), ``in_place`` (the number of the tensor that the result
    overwrites and that the kernel reads at the result's binding, or None), the sizes of its loops, and ``choice``: the
    key of the problem that its configuration was chosen for, and where the choice came from; None where there was none
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..fusion import Group
from ..ir.graph import Node, Value
from ..ir.layout import Layout
from ..kernels.context import Built
from ..symbolic import polynomial as ix
from ..symbolic.dimensions import serialise


class CallRecorder:
    """Collects the rows while calls are made, in order; ``kind_of`` tells what a value is to the plan."""

    def __init__(self, kind_of: Callable[[Value], str]) -> None:
        self._kind_of = kind_of
        self._numbers: dict[Value, int] = {}
        self.tensors: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []

    def add(self, group: Group, built: Built, in_place: Value | None) -> None:
        """Record one call of the run; ``in_place`` is the operand whose memory the result takes over."""
        anchor = group.region.anchor if group.region else group.output.producer
        own = group.region.nodes if group.region else group.nodes[len(group.inlined) :]
        before = list(group.region.scores.nodes) if group.region and group.region.scores else []
        self.calls.append(
            {
                "family": group.family,
                "operands": [self._number(value) for value in built.operands],
                "also": [self._number(value) for value in group.also],
                "in_place": None if in_place is None else self._number(in_place),
                "prologue": origins_of([*group.inlined, *before]),
                "anchor": origins_of([anchor] if anchor else []),
                "epilogue": origins_of(node for node in own if node is not anchor),
                "dims": {name: ix.bounds(size)[1] for name, size in built.spec.dims},
                "choice": built.answers[-1].to_json() if built.answers else None,
            }
        )

    def _number(self, value: Value) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.tensors)
            self.tensors.append(self._describe(value))
        return found

    def _describe(self, value: Value) -> dict[str, Any]:
        origin = value.producer.origin if value.producer else None
        kind = self._kind_of(value)
        return {
            "name": value.name or (_source_name(value) if kind == "weight" else ""),
            "graph": origin.graph if origin else "main",
            "node": str(origin or ""),
            "dtype": value.dtype.name,
            "shape": [serialise(dim) for dim in value.shape],
            "layout": describe_layout(value.layout),
            "kind": kind,
            **({"steps": list(origin.steps)} if origin and origin.steps else {}),
        }


def _source_name(value: Value) -> str:
    """The first named constant that a transformed weight is made from, in brackets; "" if there is none."""
    seen: set[Value] = set()
    pending = [value]
    while pending:
        current = pending.pop()
        if current.is_constant and current.name:
            return f"({current.name})"
        if current.producer is not None and current not in seen:
            seen.add(current)
            pending.extend(reversed([operand for operand in current.producer.inputs if operand is not None]))
    return ""


def describe_layout(layout: Layout) -> dict[str, Any]:
    """A layout as JSON: its fields, and its text for people."""
    return {
        "order": list(layout.order),
        "padding": [list(pair) for pair in layout.padding],
        "blocks": [list(pair) for pair in layout.blocks],
        "text": str(layout),
    }


def origins_of(nodes: Iterable[Node]) -> list[str]:
    """The ONNX nodes of IR nodes, each once, in order."""
    return list(dict.fromkeys(str(origin) for node in nodes for origin in node.origins))
