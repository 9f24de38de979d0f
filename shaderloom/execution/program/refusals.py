"""Match refusals to nodes, and combine several into one error."""

from __future__ import annotations

from ...compiler.frontend.model import ImportedModel
from ...compiler.staging.program_graph import PendingNode
from ...model.foreign import refusals_of_readers
from ...runtime.plan.errors import Origin, ShaderloomError, merge_refusals


def computes(item: PendingNode, origin: Origin) -> bool:
    """Return whether the node at ``origin`` is ``item``, or inside one of its graphs."""
    own = item.origin
    inside = f"{own.graph}/{own.name or f'{own.op}_{own.index}'}."
    return own == origin or origin.graph.startswith(inside)


def refusal_of(refused: dict[PendingNode, ShaderloomError], model: ImportedModel | None) -> ShaderloomError:
    """Return one error for all nodes that are refused, and those of the main graph that no device could run either."""
    errors = list(refused.values())
    if model is not None:
        refused_nodes = {(item.origin.graph, item.origin.index) for item in refused}
        errors += [
            node.refusal
            for node in model.refused
            if node.refusal is not None and (node.origin.graph, node.origin.index) not in refused_nodes
        ]
        errors += [*refusals_of_readers(errors, model)]
    return merge_refusals(errors)
