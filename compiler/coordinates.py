"""Arithmetic on the coordinates of elements that several modules share."""

from __future__ import annotations

from collections.abc import Sequence

from .index import Dim
from .ir import Shape


def broadcast_coordinates(coordinates: Sequence[Dim], shape: Shape, operand_shape: Shape) -> Shape:
    """Coordinates in an operand that is broadcast to ``shape``."""
    offset = len(shape) - len(operand_shape)
    return tuple(
        0 if size == 1 and shape[offset + axis] != 1 else coordinates[offset + axis]
        for axis, size in enumerate(operand_shape)
    )
