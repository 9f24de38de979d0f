"""Elements narrower than a byte as ONNX packs them: the first in the low bits, rows not aligned."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan import dtypes
from ....runtime.plan.record import record
from ...ir.graph import Node, Shape
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ..checks import wrap
from ..registry import Inferred, Read, register


@record
class UnpackAttributes:
    """``to`` is the ONNX code of the result's element type."""

    to: int
    shape: Shape


def _infer(node: Node) -> Inferred:
    return [(dtypes.from_onnx(node.attributes.to), node.attributes.shape)]


def _read_unpacked(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    dtype = dtypes.from_onnx(node.attributes.to)
    per_byte = 8 // dtype.width
    position: Dim = 0
    for size, coordinate in zip(node.attributes.shape, coordinates):
        position = ix.add(ix.multiply(position, size), coordinate)
    byte = read(0, [ix.floordiv(position, per_byte)])
    shift = ex.cast(ex.coordinate(ix.multiply(ix.modulo(position, per_byte), dtype.width)), "u32")
    bits = ex.binary("and", ex.binary("shr", byte, shift), ex.const((1 << dtype.width) - 1, "u32"))
    return wrap(ex.cast(bits, dtype.compute), dtype)


register(
    name="Unpack",
    domain="loom",
    infer=_infer,
    attributes=UnpackAttributes,
    gather=_read_unpacked,
    types=(frozenset({"uint8"}),),
)
