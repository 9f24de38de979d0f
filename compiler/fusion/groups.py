"""The result of fusion: groups, and a remark for each pair of neighbours that was not fused."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.graph import Node, Value
from ..kernels.groups import Group


@dataclass
class Fusion:
    """The result: groups in execution order; a value without elements has none."""

    groups: list[Group]
    materialised: dict[Value, Group]
    reasons: list[tuple[Node, Node, str]]  #: (producer, consumer, why they do not share a kernel)
