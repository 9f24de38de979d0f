"""The compilation record of a plan: how each ONNX node is computed, and why neighbours are separate kernels."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.plan.facts import EvaluationTime
from ...runtime.plan.notes import FusionRefusal
from ..frontend.model import ImportedNode
from ..fusion import Fusion


def node_placements(nodes: Sequence[ImportedNode], fusion: Fusion) -> tuple[EvaluationTime, ...]:
    """Return how each ONNX node is computed."""
    running: set[tuple[str, int]] = set()
    constant: set[tuple[str, int]] = set()
    for group in fusion.groups:
        target = constant if group.constant else running
        target.update((origin.graph, origin.index) for node in group.nodes for origin in node.origins)
    return tuple(
        EvaluationTime.RUN
        if position in running
        else EvaluationTime.WEIGHTS
        if position in constant
        else EvaluationTime.FOLDED
        for position in ((node.origin.graph, node.origin.index) for node in nodes)
    )


def fusion_refusals(fusion: Fusion) -> tuple[FusionRefusal, ...]:
    """Return why neighbours did not share a kernel."""
    return tuple(
        FusionRefusal(str(producer.origin or producer.op), str(consumer.origin or consumer.op), why)
        for producer, consumer, why in fusion.reasons
    )
