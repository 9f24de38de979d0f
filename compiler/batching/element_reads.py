"""Operators that compute each element from coordinates: which rows an element reads is read from its expression.

One rule serves all of them.  An element of row ``n`` may read elements of row ``n``, and whatever belongs to no row.
Neither its other coordinates nor the numbers in its expression may depend on ``n``, or on how many rows there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.coordinates import broadcast_coordinates
from ..ir.graph import Node, Value
from ..ops.registry import OpDef
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.polynomial import Dim
from .batch_axis import ROW, BatchAxis, depends_on_rows

BatchAxes = Mapping[Value, BatchAxis]


def reads_own_row(node: Node, definition: OpDef, result: BatchAxis, axes: BatchAxes, rows: Dim) -> bool:
    """Return whether an element of ``node``, whose batch is along ``result``, reads no other row than its own."""
    if node.output.elements == 0:
        return True
    row = ix.coordinate(ROW, rows)
    loads, numbers = _accesses(node, definition, _coordinates(node.output, result, row, rows))
    if any(map(depends_on_rows, numbers)):
        return False
    return all(_is_of_row(coordinates, operand, axes.get(operand), row, rows) for operand, coordinates in loads)


def _coordinates(value: Value, batch: BatchAxis, row: Dim, rows: Dim) -> tuple[Dim, ...]:
    """Return coordinates of any element of row ``row``."""
    coordinates = [ix.coordinate(f"axis_{axis}", size) for axis, size in enumerate(value.shape)]
    block = ix.multiply(rows, batch.inner)
    outer = ix.divide(value.shape[batch.axis], block)
    assert outer is not None, "a batch axis is a multiple of its rows"
    before = ix.multiply(ix.coordinate("outer", outer), block)
    inside = ix.add(ix.multiply(row, batch.inner), ix.coordinate("inner", batch.inner))
    coordinates[batch.axis] = ix.add(before, inside)
    return tuple(coordinates)


def _accesses(
    node: Node, definition: OpDef, coordinates: tuple[Dim, ...]
) -> tuple[list[tuple[Value, tuple[Dim, ...]]], list[Dim]]:
    """Return the operands that an element reads, each with coordinates, and the integers that it computes with."""
    if definition.gather is None:
        operands = [value for value in node.inputs if value is not None]
        shape = node.output.shape
        return [(value, broadcast_coordinates(coordinates, shape, value.shape)) for value in operands], []

    def read(position: int, coordinates: Sequence[Dim]) -> ex.Expr:
        operand = node.operand(position)
        return ex.load(position, operand.dtype.name, tuple(coordinates), operand.dtype.compute)

    parts = ex.walk(definition.gather(node, coordinates, read))
    loads = [(node.operand(each.payload.operand), each.payload.coordinates) for each in parts if each.op == "load"]
    return loads, [each.payload for each in parts if each.op == "coordinate"]


def _is_of_row(coordinates: tuple[Dim, ...], operand: Value, batch: BatchAxis | None, row: Dim, rows: Dim) -> bool:
    """Return whether an element of an operand is of a row for certain; any is where the operand has no batch."""
    others = [each for axis, each in enumerate(coordinates) if batch is None or axis != batch.axis]
    if any(map(depends_on_rows, others)):
        return False
    if batch is None:
        return True
    at, inner = coordinates[batch.axis], batch.inner
    block = ix.multiply(rows, inner)
    inside = ix.add(ix.modulo(at, block), ix.multiply(ix.multiply(row, inner), -1))
    before = ix.add(at, ix.multiply(ix.modulo(at, block), -1))
    in_block = ix.bounds(inside)[0] >= 0 and ix.always_less(inside, inner)
    return in_block and not depends_on_rows(inside) and not depends_on_rows(ix.floordiv(before, block))
