"""Arithmetic on the coordinates of elements that several modules share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..symbolic import polynomial as ix
from ..symbolic.polynomial import Dim
from .graph import Shape, Value

Sizes = Mapping[str, int]  #: variables of declared dynamic dimensions -> their values in one run


def shape_of(value: Value, sizes: Sizes) -> tuple[int, ...]:
    """Return the shape of a value for given sizes of the dynamic dimensions."""
    return tuple(int(ix.evaluate(dim, sizes)) for dim in value.shape)


def domain_variables(domain: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the variables ``a0, a1, ...`` over a domain: the coordinates of a fused region."""
    return tuple(ix.variable(f"a{axis}", 0, max(ix.bounds(size)[1] - 1, 0)) for axis, size in enumerate(domain))


def broadcast_coordinates(coordinates: Sequence[Dim], shape: Shape, operand_shape: Shape) -> Shape:
    """Map coordinates in ``shape`` to coordinates in an operand that is broadcast to it."""
    offset = len(shape) - len(operand_shape)
    return tuple(
        0 if size == 1 and shape[offset + axis] != 1 else coordinates[offset + axis]
        for axis, size in enumerate(operand_shape)
    )
