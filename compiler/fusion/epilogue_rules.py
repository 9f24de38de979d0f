"""Which consumers may join a region, and which of its values the kernel may store.

Every value of a region has coordinates in terms of the result of its anchor: a consumer joins when its operands are
where its own result is.  Views that can be inverted (``store_map``) only change the coordinates.
"""

from __future__ import annotations

from ..ir.coordinates import broadcast_coordinates, domain_variables
from ..ir.graph import Node, Shape, Value
from ..kernels.family import KernelFamily
from ..kernels.groups import Region
from ..symbolic import polynomial as ix
from ..symbolic.lanes import LANES
from ..symbolic.polynomial import Dim
from .partition import Partition, is_literal

#: Elements of a row beyond which a thread does not reduce the rows of all the elements in its word
LONG_ROW = 8192


def coordinates_in(partition: Partition, region: Region, user: Node, producer: Node) -> Shape | str:
    """The coordinates that the result of ``user``, which reads that of ``producer``, has in the region; or why it may
    not join it."""
    definition = partition.operators.of(user)
    if user in partition.region_of:
        return f"{user.op} already belongs to a later kernel"
    if len(user.outputs) != 1 or user.blocks:
        return f"{user.op} has several outputs"
    if (user.outputs[0] in partition.constant) != (producer.outputs[0] in partition.constant):
        return "the producer runs once when weights are made"
    if not _binds(partition, region, user):
        return partition.too_many_buffers
    family = partition.family_of(user)
    if family is not None and family.is_row_program and region.reductions:
        return _of_reduction(region, user, family)
    inner = {value for value in user.inputs if value is not None and value in region.coordinates}
    if definition.store_map is not None and len(inner) == 1 and user.inputs[0] in inner:
        return tuple(definition.store_map(user, region.coordinates[user.operand(0)]))
    if definition.element is None:
        return f"{user.op} does not work element by element"
    result = user.outputs[0].dtype
    if result.packing > 1 and not region.reductions:
        return f"two threads would write one word of a {result} result"
    if result.packing > 1 and any(value.dtype.bits == 64 for value in region.coordinates):
        return f"a reduction of 64-bit integers owns no words of a {result} result"
    return _of_elementwise(region, user, inner)


def _binds(partition: Partition, region: Region, user: Node) -> bool:
    """Whether a region that also computes ``user`` can bind what it reads from outside, each as one tensor."""
    own = [value.producer for value in (*region.coordinates, user.outputs[0]) if value.producer is not None]
    if region.scores:
        own += region.scores.nodes
    made = {node.outputs[0] for node in own}
    outside = {
        operand
        for node in own
        for operand in node.inputs
        if operand is not None and operand not in made and not is_literal(operand)
    }
    return len(outside) + 1 <= partition.max_operands


def _of_reduction(region: Region, user: Node, family: KernelFamily) -> Shape | str:
    names = domain_variables(region.domain)
    source = user.operand(0)
    if source.shape != region.domain or region.coordinates.get(source, names) != names:
        return "the second reduction is over another tensor shape"
    if user.attributes.axes != region.anchor.attributes.axes:
        return "the second reduction is over other axes"
    return family.result_coordinates(user)


def _of_elementwise(region: Region, user: Node, inner: set[Value]) -> Shape | str:
    """``inner``: the operands that the region computes."""
    shape = user.outputs[0].shape
    where: Shape | None = None
    for value in inner:
        if value.shape == shape:
            if where is not None and where != region.coordinates[value]:
                return "its operands are at different coordinates"
            where = region.coordinates[value]
    if where is None and region.reductions and shape == region.domain:
        where = domain_variables(region.domain)
    if where is None:
        return "the result is broadcast to a larger shape"
    for value in inner:
        if broadcast_coordinates(where, shape, value.shape) != region.coordinates[value]:
            return "its operands are at different coordinates"
    return where


def may_exit(partition: Partition, region: Region, value: Value) -> bool:
    """Whether a region may store ``value``, given the coordinates of all values in its domain.

    A view as last member pays only when its result is needed in memory as it is, or arithmetic follows.  A packed
    result needs threads that own its words: those of a reduction do where rows and columns are axes of the result,
    others if the root has words of that size too, or where the vectors of products stay vectors.
    """
    assert value.producer is not None
    if value.dtype.packing > 1 and not _owns_words(partition, region, value):
        return False
    return not partition.operators.of(value.producer).is_view or value in partition.outputs


def _owns_words(partition: Partition, region: Region, value: Value) -> bool:
    where = region.coordinates[value]
    if region.reductions:
        return all(map(_is_axis, where)) and not _crosses_long_rows(region, value)
    root = region.anchor.outputs[0]
    if value.dtype.packing == root.dtype.packing:
        return True
    return (
        partition.anchor_family(region).vector_results
        and bool(where)
        and _keeps_vectors(where[-1], region.coordinates[root][-1], value.shape[-1])
    )


def _crosses_long_rows(region: Region, value: Value) -> bool:
    """Whether a thread that owns a word of ``value`` would have to reduce several long rows on its own."""
    columns = ix.product([region.domain[axis] for axis in region.anchor.attributes.axes])
    return ix.bounds(columns)[1] > LONG_ROW and (value.rank == 0 or ix.divide(value.shape[-1], LANES) is None)


def _is_axis(coordinate: Dim) -> bool:
    """Whether a coordinate is a single variable, or a number."""
    names = ix.variables(coordinate) if isinstance(coordinate, ix.Index) else ()
    return len(names) < 2 and all(coordinate == ix.variable(name, *ix.bounds(coordinate)) for name in names)


def _keeps_vectors(last: Dim, axis: Dim, size: Dim) -> bool:
    """Whether vectors along ``axis`` are whole ones of the coordinate ``last``, whose axis has ``size`` elements."""
    start = ix.add(last, ix.multiply(axis, -1))
    return ix.divide(start, LANES) is not None and ix.divide(size, LANES) is not None
