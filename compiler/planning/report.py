"""What a plan tells people about its compilation: where each ONNX node went, and why neighbours are kernels apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..frontend.model import ImportedNode
from ..fusion import Fusion


def describe_compilation(nodes: Sequence[ImportedNode], fusion: Fusion) -> dict[str, Any]:
    """Return JSON values for ``Plan.report``: the placement of ``nodes``, and why neighbours did not share a kernel."""
    running: set[tuple[str, int]] = set()
    constant: set[tuple[str, int]] = set()
    for group in fusion.groups:
        target = constant if group.constant else running
        target.update((origin.graph, origin.index) for node in group.nodes for origin in node.origins)
    placed = "".join(
        "w" if where in running else "c" if where in constant else "f"
        for where in ((node.origin.graph, node.origin.index) for node in nodes)
    )
    on_device, as_weights, folded = (placed.count(letter) for letter in "wcf")
    return {
        "nodes": len(nodes),
        #: a letter a node, in order: w runs on the device, c once (constants), f was evaluated while compiling
        "placed": placed,
        "placement": {
            "wgpu": on_device,
            "cpu": 0,
            "folded": len(nodes) - on_device,
            "reasons": {
                "weights": f"{as_weights} nodes depend on constants alone and run once, when weights are made",
                "folded": f"{folded} nodes were computed while compiling, or became parts of others",
            },
        },
        "not_fused": [
            {
                "producer": str(producer.origin or producer.op),
                "consumer": str(consumer.origin or consumer.op),
                "why": why,
            }
            for producer, consumer, why in fusion.reasons
        ],
    }
