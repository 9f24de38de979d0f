"""Placement of each ONNX node of a model: its provider, and the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..runtime.plan.errors import Origin
from ..runtime.plan.facts import EvaluationTime
from ..runtime.plan.record import record

if TYPE_CHECKING:
    from ..compiler.frontend.model import ImportedModel
    from ..runtime.plan.plan import Plan

#: (names of the graphs around a node, position in its graph) -> node, domain, provider, reason
Placed = Mapping[tuple[str, int], tuple[Origin, str, str, str]]


@record
class Placement:
    """The placement of one ONNX node.

    ``node`` is its path in the file: the name, or operator and position where it has none, prefixed by its nested graph
    if it is not in the main graph.  ``provider`` is "wgpu", "cpu", or "folded" for what compilation evaluated away.
    ``reason`` is empty for a node that runs on wgpu like any other.
    """

    node: str
    op_type: str
    domain: str
    provider: str
    reason: str = ""


#: How a plan computes a node -> provider and reason
PROVIDERS = {
    EvaluationTime.RUN: ("wgpu", ""),
    EvaluationTime.WEIGHTS: ("folded", "depends on constants alone: runs once, when weights are made"),
    EvaluationTime.FOLDED: ("folded", "evaluated while compiling, or part of another node"),
}


def describe(model: ImportedModel, placed: Placed) -> list[Placement]:
    """Return the placement of each node of the main graph, in the order of the file with functions inlined, then of the
    nodes of nested graphs that are in ``placed``.
    """
    assert model.proto is not None, "a model that was read has its message"
    nodes = {node.origin.index: node for node in model.graph.nodes if not node.added}
    rows = []
    for index, node in enumerate(model.proto.graph.node):
        imported = nodes.get(index)
        placement = placed.get(("", index))
        if imported is None:
            provider, reason = "folded", "a constant"
        elif placement is not None:
            _, _, provider, reason = placement
        elif imported.refusal is not None:
            provider, reason = "cpu", imported.refusal.reason
        else:
            provider, reason = "wgpu", "not compiled yet"
        rows.append(Placement(node.name or f"{node.op_type}_{index}", node.op_type, node.domain, provider, reason))
    for (prefix, index), (origin, domain, provider, reason) in sorted(placed.items()):
        if prefix:
            label = f"{prefix}{origin.name or f'{origin.op}_{index}'}"
            rows.append(Placement(label, origin.op, domain, provider, reason))
    return rows


def of_plan(model: ImportedModel, plan: Plan) -> list[Placement]:
    """Return the placements of a model that is one plan."""
    return describe(
        model,
        {
            ("", node.origin.index): (node.origin, node.domain, *PROVIDERS[placement])
            for node, placement in zip(model.graph.nodes, plan.facts.nodes)
            if not node.added
        },
    )


def count_placements(rows: Sequence[Placement]) -> str:
    """Format the number of nodes of each provider."""
    counts = Counter(row.provider for row in rows)
    return ", ".join(f"{counts[name]} {name}" for name in ("wgpu", "cpu", "folded") if counts[name])
