"""``loom.AttendedKeys``: which keys a query attends, from positions and lengths."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.dtypes import BOOL
from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ..registry import Inferred, Read, register


@record
class AttendedKeysAttributes:
    """The result is [batch, 1, queries, keys].

    Query ``i`` is at position ``offset + i``, where the offset is an element of operand 0, if there is one.  It
    attends key ``j`` if the key is below the length (operand 1), at most ``before`` positions before it and ``after``
    behind it; -1 is no bound.
    """

    batch: Dim
    queries: Dim
    keys: Dim
    offset: Dim = 0
    before: int = -1
    after: int = -1


def _infer_attended(node: Node) -> Inferred:
    attributes: AttendedKeysAttributes = node.attributes
    return [(BOOL, (attributes.batch, 1, attributes.queries, attributes.keys))]


def _read_attended(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    attributes: AttendedKeysAttributes = node.attributes
    batch, _, query, key = coordinates
    if node.optional(0) is None:
        position = ex.coordinate(ix.add(attributes.offset, query))
    else:
        position = ex.cast(read(0, [batch]), "i32") + ex.coordinate(query)
    result = ex.const(True, "bool")
    if attributes.after >= 0:
        last = position + ex.const(attributes.after, "i32")
        result = ex.binary("and", result, ex.compare("le", ex.coordinate(key), last))
    if attributes.before >= 0:
        first = position - ex.const(attributes.before, "i32")
        result = ex.binary("and", result, ex.compare("ge", ex.coordinate(key), first))
    if node.optional(1) is not None:
        length = ex.cast(read(1, [batch]), "i32")
        result = ex.binary("and", result, ex.compare("lt", ex.coordinate(key), length))
    return result


def key_range(
    attributes: AttendedKeysAttributes, query: Dim, offset: Expr | None, length: Expr | None
) -> tuple[Expr, Expr]:
    """Return the first key that ``query`` attends and the key behind the last one, both i32 from 0 to ``keys``.

    ``offset`` and ``length`` are the elements of operands 0 and 1 as i32.  Where no key is attended the first is not
    below the second.
    """
    position = ex.coordinate(ix.add(attributes.offset, query)) if offset is None else offset + ex.coordinate(query)
    keys, zero = ex.coordinate(attributes.keys), ex.const(0, "i32")
    first, stop = zero, keys
    if attributes.before >= 0:
        first = position - ex.const(attributes.before, "i32")
    if attributes.after >= 0:
        beyond = ix.bounds(ix.add(attributes.keys, attributes.queries))[1]  # as good as no bound, and no overflow
        stop = ex.binary("min", stop, position + ex.const(min(attributes.after, beyond) + 1, "i32"))
    if length is not None:
        stop = ex.binary("min", stop, length)
    return ex.binary("min", ex.binary("max", first, zero), keys), ex.binary("max", stop, zero)


register(
    name="AttendedKeys",
    domain="loom",
    infer=_infer_attended,
    attributes=AttendedKeysAttributes,
    gather=_read_attended,
    reads=2,
)
