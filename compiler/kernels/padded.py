"""Reading an input with a border of zeros."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.graph import Value
from ..symbolic import expr as ex
from ..symbolic.expr import Expr
from ..symbolic.polynomial import Dim
from .context import GroupContext


def read_padded(context: GroupContext, value: Value, image: Dim, channel: Dim, positions: Sequence[Dim]) -> Expr:
    """Read an element of ``value`` [N, C, spatial...]; zero where a spatial position is out of range."""
    element = context.operands.read(value, (image, channel, *positions))
    return ex.guard(are_inside(positions, value.shape[2:]), element, ex.const(0, element.dtype))


def are_inside(positions: Sequence[Dim], sizes: Sequence[Dim]) -> Expr:
    """Return whether spatial positions are in the range of axes of ``sizes``."""
    inside = ex.const(True, "bool")
    for position, size in zip(positions, sizes, strict=True):
        inside = ex.binary("and", inside, ex.in_range(position, 0, size))
    return inside
