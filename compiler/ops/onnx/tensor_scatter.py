"""TensorScatter: new elements appended to a cache, at a position of its own for each sequence of the batch."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..math.positions import clamped_coordinate, within
from ..registry import Inferred, Read, register


@record
class TensorScatterAttributes:
    axis: int = -2
    mode: str = "linear"


def _infer(node: Node) -> Inferred:
    attributes: TensorScatterAttributes = node.attributes
    past, update, places = node.operand(0), node.operand(1), node.optional(2)
    checks.require_same_type(node, [past, update])
    axis = checks.normalise_axis(node, attributes.axis, past.rank)
    checks.require(axis > 0, node, "axis 0 is the batch")
    checks.require_choice(node, "mode", ("linear", "circular"))
    checks.require(past.rank == update.rank, node, f"a cache of rank {past.rank}, an update of rank {update.rank}")
    for other, (size, outer) in enumerate(zip(update.shape, past.shape)):
        fits = not ix.less(outer, size) if other == axis else ix.equal(size, outer)
        checks.require(fits, node, f"the update does not fit the cache along axis {other}")
    checks.require(places is None or places.shape == past.shape[:1], node, "one place for each sequence")
    return [(past.dtype, past.shape)]


def _place(node: Node, coordinates: Sequence[Dim], read: Read) -> tuple[Sequence[Dim], Expr]:
    """Return where an element of the update goes in the cache, and whether that is inside."""
    attributes: TensorScatterAttributes = node.attributes
    axis, size = attributes.axis % node.operand(0).rank, node.operand(0).shape[attributes.axis]
    place = ex.coordinate(coordinates[axis])
    if node.optional(2) is not None:
        place = ex.cast(read(2, [coordinates[0]]), "i32") + place
    if attributes.mode == "circular":
        place = ex.binary("mod", place, ex.coordinate(size))
    inside = within(place, ex.const(0, "i32"), ex.coordinate(ix.add(size, -1)))
    return (*coordinates[:axis], clamped_coordinate(place, size), *coordinates[axis + 1 :]), inside


def _read(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    attributes: TensorScatterAttributes = node.attributes
    past, update = node.operand(0), node.operand(1)
    axis = attributes.axis % past.rank
    zero = ex.const(0, "i32")
    start = zero if node.optional(2) is None else ex.cast(read(2, [coordinates[0]]), "i32")
    distance = ex.coordinate(coordinates[axis]) - start
    if attributes.mode == "circular":
        distance = ex.binary("mod", distance, ex.coordinate(past.shape[axis]))
    length = update.shape[axis]
    last = ex.coordinate(ix.add(length, -1))
    inside = ex.binary("and", ex.compare("ge", distance, zero), ex.compare("le", distance, last))
    place = ex.as_index(ex.binary("max", ex.binary("min", distance, last), zero), 0, max(ix.bounds(length)[1] - 1, 0))
    source = [*coordinates[:axis], place, *coordinates[axis + 1 :]]
    return ex.guard(inside, read(1, source), read(0, coordinates))


register(
    name="TensorScatter",
    infer=_infer,
    attributes=TensorScatterAttributes,
    gather=_read,
    update=_place,
    types=(checks.MOVED, checks.MOVED, checks.INDICES),
    reads=3,
)
