"""A change of physical layout: elements keep their values and move in memory."""

from __future__ import annotations

from ....runtime.plan.record import record
from ...ir.graph import Node
from ...ir.layout import Layout
from ..registry import Inferred, register


@record
class RelayoutAttributes:
    """``layout`` of the result."""

    layout: Layout


def _infer(node: Node) -> Inferred:
    operand = node.operand(0)
    return [(operand.dtype, operand.shape)]


register(
    name="Relayout",
    domain="loom",
    infer=_infer,
    attributes=RelayoutAttributes,
    gather=lambda node, coordinates, read: read(0, coordinates),
    store_map=lambda node, coordinates: coordinates,
)
