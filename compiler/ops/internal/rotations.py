"""Cosines and sines of fractions of a turn whose denominator a run alone knows: the matrices of its transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.errors import LimitError
from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ..registry import Inferred, Read, register


@record
class RotationsAttributes:
    """The ``function``, ``cos`` or ``sin``, of ``n / length`` turns for each int32 n from 0 to ``length``."""

    length: Dim
    function: str


def _rotation(node: Node, args: Sequence[Expr]) -> Expr:
    """Compute the function of an angle of at most an eighth of a turn: the quarter turns beyond it are exact."""
    attributes: RotationsAttributes = node.attributes
    length = ex.coordinate(attributes.length)

    def times(value: Expr, factor: int) -> Expr:
        return value * ex.const(factor, "i32")

    quarters = ex.binary("div", times(args[0], 8) + length, times(length, 2))
    rest = ex.cast(times(args[0], 4) - quarters * length, "f32")
    angle = rest * ex.const(math.pi / 2, "f32") / ex.cast(length, "f32")
    if attributes.function == "cos":
        quarters = quarters + ex.const(1, "i32")
    is_odd, is_opposite = (
        ex.compare("ne", ex.binary("and", quarters, ex.const(bit, "i32")), ex.const(0, "i32")) for bit in (1, 2)
    )
    value = ex.select(is_odd, ex.unary("cos", angle), ex.unary("sin", angle))
    return ex.select(is_opposite, -value, value)


register(
    name="Rotations",
    domain="loom",
    infer=lambda node: [(FLOAT32, node.operand(0).shape)],
    attributes=RotationsAttributes,
    element=_rotation,
    types=(frozenset({"int32"}),),
)


@record
class RotationMatrixAttributes:
    """[length] -> [``rows``, ``columns``]: the element ``row * column`` of rotations, whole turns left out."""

    rows: Dim
    columns: Dim


def _infer_matrix(node: Node) -> Inferred:
    attributes: RotationMatrixAttributes = node.attributes
    rows, columns = (ix.bounds(size)[1] for size in (attributes.rows, attributes.columns))
    if (rows - 1) * (columns - 1) >= ix.UNBOUNDED:
        raise LimitError(
            f"a transform of {rows:,} numbers to {columns:,} whose length a run decides: the product of the two has "
            "more than 31 bits",
            origin=node.origin,
            hint="declare a smaller range of its length",
        )
    return [(node.operand(0).dtype, (attributes.rows, attributes.columns))]


def _read_matrix(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    row, column = coordinates
    return read(0, [ix.modulo(ix.multiply(row, column), node.operand(0).shape[0])])


register(
    name="RotationMatrix",
    domain="loom",
    infer=_infer_matrix,
    attributes=RotationMatrixAttributes,
    gather=_read_matrix,
)
