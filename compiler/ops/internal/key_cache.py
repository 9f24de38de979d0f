"""A cache of keys or values with spare capacity: new elements follow the valid ones."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ..registry import Builder, Inferred, Read, register


@record
class AppendAttributes:
    """``keys`` is the size of the result along axis 2.

    With ``keep`` elements after the last new one are those of the past, otherwise they are zeros.
    """

    keys: Dim
    keep: bool = False


def _infer_appended(node: Node) -> Inferred:
    batch, heads, _, size = node.operand(0).shape
    return [(node.operand(0).dtype, (batch, heads, node.attributes.keys, size))]


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
    appended = ex.guard(inside, read(1, [batch, head, fresh, element]), old if node.attributes.keep else zero)
    return ex.guard(ex.compare("lt", distance, ex.const(0, "i32")), old, appended)


register(
    name="AppendKeys",
    domain="loom",
    infer=_infer_appended,
    attributes=AppendAttributes,
    gather=_read_appended,
    reads=3,
)


def append_keys(builder: Builder, past: Value, new: Value, valid: Value, keys: Dim, *, keep: bool = False) -> Value:
    """Append ``new`` [batch, heads, new keys, size] after the first ``valid`` [batch] keys of ``past``.

    The result is stored as the past is: attention reads the elements of the cache, whatever ``new`` was computed as.
    """
    present = builder.op("AppendKeys", past, new, valid, domain="loom", keys=keys, keep=keep)
    present.storage = past.storage
    return present
