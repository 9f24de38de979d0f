"""Batch axes: along which axis of a value the rows of a batch lie.

A value carries the batch along one axis, of ``outer * rows * inner`` elements: element ``(o, n, i)`` of it belongs to
row ``n``.  Views keep the distance of two rows in row-major order and so find ``inner`` again: ``[rows, 12, 64]`` and
``[rows * 12, 64]`` are both of rows that are 768 apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from ...runtime.plan.record import record
from ..ir.graph import Shape, Value
from ..symbolic import polynomial as ix
from ..symbolic.dimensions import dimension, dimension_variable
from ..symbolic.polynomial import Dim

_NAME = "rows"
#: The variable of the number of rows, and that of the row of an element; the other sizes are numbers
ROWS, ROW = dimension_variable(_NAME, 1), "row"


@record
class BatchAxis:
    """The axis of a value that carries the batch, and the number of neighbours along it that belong to one row."""

    axis: int
    inner: Dim = 1


def batch_dimension(most: int) -> Dim:
    """Return the number of rows as a dimension, from 1 to ``most``, which is at least 2."""
    return dimension(_NAME, 1, most)


def depends_on_rows(value: Any) -> bool:
    """Return whether an integer, or one of a tuple's or an attribute's, depends on the batch or on the row."""
    if isinstance(value, ix.Index):
        return not {ROWS, ROW}.isdisjoint(ix.variables(value))
    if isinstance(value, tuple):
        return any(map(depends_on_rows, value))
    if is_dataclass(value) and not isinstance(value, type):
        return any(depends_on_rows(getattr(value, each.name)) for each in fields(value))
    return False


def axis_of_rows(shape: Shape, rows: Dim) -> tuple[int, Dim] | None:
    """Return the only axis whose size depends on the number of rows, a multiple of it, and the factor; else None."""
    dependent = [axis for axis, size in enumerate(shape) if depends_on_rows(size)]
    if len(dependent) != 1:
        return None
    factor = ix.divide(shape[dependent[0]], rows)
    return None if factor is None or depends_on_rows(factor) else (dependent[0], factor)


def candidates(value: Value, rows: Dim, operands: Sequence[tuple[Value, BatchAxis]]) -> Iterator[BatchAxis]:
    """Yield the batch axes that a result may have: with all of a factor inside, or as its operands have it."""
    located = axis_of_rows(value.shape, rows)
    if located is None:
        return
    axis, factor = located
    behind = ix.product(value.shape[axis + 1 :])
    inners: dict[Dim, None] = {factor: None}
    for operand, batch in operands if value.elements != 0 else ():
        distance = ix.multiply(batch.inner, ix.product(operand.shape[batch.axis + 1 :]))
        inners.update({inner: None for inner in (batch.inner, ix.divide(distance, behind)) if inner})
    for inner in inners:
        if ix.divide(factor, inner) is not None:
            yield BatchAxis(axis, inner)
