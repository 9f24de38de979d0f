"""A cache of keys or values with spare capacity: new elements follow the valid ones."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ..math.positions import clamped_coordinate, within
from ..registry import Builder, Inferred, Read, register


@record
class AppendAttributes:
    """``keys`` is the size of the result along axis 2.

    Elements behind the last new one are those of the past if that has as many keys, otherwise they are zeros.
    """

    keys: Dim


def _infer_appended(node: Node) -> Inferred:
    batch, heads, _, size = node.operand(0).shape
    return [(node.operand(0).dtype, (batch, heads, node.attributes.keys, size))]


def _is_buffer(node: Node) -> bool:
    """Return whether the past has room for all keys of the result."""
    return node.operand(0).shape[2] == node.attributes.keys


def _place_of_new(node: Node, coordinates: Sequence[Dim], read: Read) -> tuple[Sequence[Dim], Expr]:
    """Return where an element of operand 1 goes in the result, and whether that is inside."""
    batch, head, key, element = coordinates
    place = ex.cast(read(2, [batch]), "i32") + ex.coordinate(key)
    last = ix.add(node.attributes.keys, -1)
    inside = within(place, ex.const(0, "i32"), ex.coordinate(last))
    return (batch, head, clamped_coordinate(place, node.attributes.keys), element), inside


def _read_appended(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    """Read the cache of operand 0 (past) with operand 1 (new) appended.

    Operand 2 is the number of valid elements of the past in each sequence.
    """
    batch, head, key, element = coordinates
    past, new = node.operand(0), node.operand(1)
    valid = ex.cast(read(2, [batch]), "i32")
    distance = ex.coordinate(key) - valid
    fresh = ex.as_index(
        ex.binary("min", ex.binary("max", distance, ex.const(0, "i32")), ex.coordinate(ix.add(new.shape[2], -1))),
        0,
        max(ix.bounds(new.shape[2])[1] - 1, 0),
    )
    inside = ex.compare("lt", distance, ex.coordinate(new.shape[2]))
    zero = ex.const(0, new.dtype.compute)
    if past.shape[2] == 0:
        return ex.guard(inside, read(1, [batch, head, fresh, element]), zero)
    old = read(0, [batch, head, ix.minimum(key, ix.add(past.shape[2], -1)), element])
    appended = ex.guard(inside, read(1, [batch, head, fresh, element]), old if _is_buffer(node) else zero)
    return ex.guard(ex.compare("lt", distance, ex.const(0, "i32")), old, appended)


register(
    name="AppendKeys",
    domain="loom",
    infer=_infer_appended,
    attributes=AppendAttributes,
    gather=_read_appended,
    update=_place_of_new,
    rows_before=2,
    reads=3,
)


def append_keys(builder: Builder, past: Value, new: Value, valid: Value, keys: Dim) -> Value:
    """Append ``new`` [batch, heads, new keys, size] after the first ``valid`` [batch] keys of ``past``.

    The result is stored as the past is: attention reads the elements of the cache, whatever ``new`` was computed as.
    """
    present = builder.op("AppendKeys", past, new, valid, domain="loom", keys=keys)
    present.storage = past.storage
    return present
