"""``loom.Rotate``: rotary embedding of heads, which turns pairs of elements by the angle of their position."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ..math.positions import run_time_index
from ..registry import Inferred, Read, register


@record
class RotateAttributes:
    """Pairs of the first ``2 * pairs`` elements are turned: neighbours if ``interleaved``, else those of two halves."""

    pairs: int
    interleaved: bool


def _read_rotated(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    """Read an element of rotated heads (operand 0).

    Operands 1 and 2 are cosines and sines: [positions, pairs] with positions [batch, sequence] as operand 3, or [batch,
    sequence, pairs] without.
    """
    attributes: RotateAttributes = node.attributes
    batch, head, place, element = coordinates
    size = 2 * attributes.pairs
    if attributes.interleaved:
        pair = ix.floordiv(element, 2)
        second = ix.modulo(element, 2)
        partner = ix.add(ix.add(element, 1), ix.multiply(second, -2))
    else:
        inner = ix.modulo(element, size)  # elements behind the turned ones are guarded away
        pair = ix.modulo(inner, attributes.pairs)
        second = ix.floordiv(inner, attributes.pairs)
        partner = ix.modulo(ix.add(inner, attributes.pairs), size)
    row: list[Dim]
    if node.optional(3) is not None:
        row = [run_time_index(read(3, [batch, place]), node.operand(1).shape[0]), pair]
    else:
        row = [_cache_row(batch, node.operand(0).shape[0], node.operand(1).shape[0]), place, pair]
    own = read(0, coordinates)
    other = read(0, [batch, head, place, partner])
    signed = ex.select(ex.compare("eq", ex.coordinate(second), ex.const(0, "i32")), -other, other)
    turned = own * read(1, row) + signed * read(2, row)
    return ex.guard(ex.in_range(element, 0, size), turned, own)


def _cache_row(batch: Dim, batches: Dim, rows: Dim) -> Dim:
    """Return the row of caches for an element of the batch: they have one for each, or one for all."""
    if not isinstance(rows, ix.Index):
        return 0 if rows == 1 else batch
    return batch if rows == batches else ix.minimum(batch, ix.add(rows, -1))


def _infer_rotated(node: Node) -> Inferred:
    return [(node.operand(0).dtype, node.operand(0).shape)]


register(
    name="Rotate",
    domain="loom",
    infer=_infer_rotated,
    attributes=RotateAttributes,
    gather=_read_rotated,
    reads=4,
)
