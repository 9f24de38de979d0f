"""Rules of forward fusion: the consumers that may join a region, and the values that its kernel may store.

Every value of a region has coordinates in terms of the result of its anchor: a consumer joins when its operands are
where its own result is.  Views that can be inverted (``store_map``) only change the coordinates.  The rules are
:data:`EPILOGUE_RULES`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ..ir.coordinates import broadcast_coordinates, domain_variables
from ..ir.graph import Node, Shape, Value
from ..kernels.groups import Region
from ..ops.registry import OpDef
from ..rewriting.rules import operator_key
from ..symbolic import polynomial as ix
from ..symbolic.lanes import LANES
from ..symbolic.polynomial import Dim
from .partition import Partition, is_literal
from .rule import FusionRule, first_remark

#: Elements of a row up to which a thread that stores a word of its elements reduces it, as others of the row do, too
SHARED_ROW = 8


@dataclass
class Consumer:
    """A candidate: ``user``, which reads the result of ``producer``, a member of ``region``."""

    partition: Partition
    region: Region
    user: Node
    producer: Node

    @property
    def result(self) -> Value:
        return self.user.outputs[0]

    @cached_property
    def definition(self) -> OpDef:
        return self.partition.operators.of(self.user)

    @cached_property
    def inner(self) -> set[Value]:
        """The operands that the region computes."""
        return {value for value in self.user.inputs if value is not None and value in self.region.coordinates}

    @cached_property
    def is_reduction(self) -> bool:
        """Whether the region is a row program and the user one of its phases."""
        family = self.partition.family_of(self.user)
        return family is not None and family.is_row_program and bool(self.region.reductions)

    @cached_property
    def is_view(self) -> bool:
        """Whether the user only changes coordinates, in a way that can be inverted."""
        return (
            not self.is_reduction
            and self.definition.store_map is not None
            and len(self.inner) == 1
            and self.user.inputs[0] in self.inner
        )

    @cached_property
    def coordinates(self) -> Shape | None:
        """Coordinates that the result has in the region; None where the operands are not where it is."""
        region, user = self.region, self.user
        if self.is_reduction:
            return self.partition.anchor_family(region).result_coordinates(user)
        if self.is_view:
            assert self.definition.store_map is not None
            return tuple(self.definition.store_map(user, region.coordinates[user.operand(0)]))
        return self._elementwise_coordinates

    @property
    def is_elementwise(self) -> bool:
        return not self.is_reduction and not self.is_view

    @cached_property
    def _elementwise_coordinates(self) -> Shape | None:
        shape = self.result.shape
        for value in self.inner:
            if value.shape == shape:
                return self.region.coordinates[value]
        if self.region.reductions and shape == self.region.domain:
            return domain_variables(self.region.domain)
        return None

    def operands_meet(self) -> bool:
        """Return whether every operand of the region is at the coordinates at which the result reads it."""
        coordinates, shape = self.coordinates, self.result.shape
        assert coordinates is not None
        return all(
            broadcast_coordinates(coordinates, shape, value.shape) == self.region.coordinates[value]
            for value in self.inner
        )


#: What keeps a consumer out of a region; the first rule that holds gives the remark
EPILOGUE_RULES: tuple[FusionRule[Consumer], ...] = (
    FusionRule(
        "taken",
        lambda c: c.user in c.partition.region_of,
        "{c.user.op} already belongs to a later kernel",
    ),
    FusionRule(
        "read-again",
        lambda c: c.partition.anchor_family(c.region).reads_result(c.region.anchor),
        "the kernel reads its result again",
    ),
    FusionRule(
        "several-outputs",
        lambda c: len(c.user.outputs) != 1 or bool(c.user.blocks),
        "{c.user.op} has several outputs",
    ),
    FusionRule(
        "once-or-each-run",
        lambda c: (c.result in c.partition.constant) != (c.producer.outputs[0] in c.partition.constant),
        "the producer runs once when weights are made",
    ),
    FusionRule(
        "operand-limit",
        lambda c: not _binds(c.partition, c.region, c.user),
        "{c.partition.too_many_buffers}",
    ),
    FusionRule(
        "other-rows",
        lambda c: c.is_reduction and not _reduces_domain(c.region, c.user),
        "the second reduction is over another tensor shape",
    ),
    FusionRule(
        "other-axes",
        lambda c: c.is_reduction and c.user.attributes.axes != c.region.anchor.attributes.axes,
        "the second reduction is over other axes",
    ),
    FusionRule(
        "not-elementwise",
        lambda c: c.is_elementwise and c.definition.element is None,
        "{c.user.op} does not work element by element",
    ),
    FusionRule(
        "shared-words",
        lambda c: (
            c.is_elementwise
            and c.result.dtype.packing > 1
            and not c.region.reductions
            and not _stores_vectors(c.partition, c.region, c.result, c.coordinates)
        ),
        "two threads would write one word of a {c.result.dtype} result",
    ),
    FusionRule(
        "long-integers",
        lambda c: (
            c.is_elementwise
            and c.result.dtype.packing > 1
            and any(value.dtype.bits == 64 for value in c.region.coordinates)
        ),
        "a reduction of 64-bit integers owns no words of a {c.result.dtype} result",
    ),
    FusionRule(
        "broadcast",
        lambda c: c.coordinates is None,
        "the result is broadcast to a larger shape",
    ),
    FusionRule(
        "other-coordinates",
        lambda c: c.is_elementwise and not c.operands_meet(),
        "its operands are at different coordinates",
    ),
)


def coordinates_in(partition: Partition, region: Region, user: Node, producer: Node) -> Shape | str:
    """Return the coordinates that the result of ``user``, which reads that of ``producer``, has in the region; or the
    remark why it may not join it."""
    candidate = Consumer(partition, region, user, producer)
    remark = first_remark(EPILOGUE_RULES, candidate)
    if remark is not None:
        return remark
    assert candidate.coordinates is not None
    return candidate.coordinates


def _binds(partition: Partition, region: Region, user: Node) -> bool:
    """Return whether a kernel can bind all outside tensors that the region reads if it also computes ``user``.

    Views, and single numbers that maps compute, are inlined: several may be of one tensor.
    """
    own = [value.producer for value in (*region.coordinates, user.outputs[0]) if value.producer is not None]
    if region.scores:
        own += region.scores.nodes
    computed = {node.outputs[0] for node in own}
    outside = {
        operand
        for node in own
        for operand in node.inputs
        if operand is not None and operand not in computed and not is_literal(operand)
    }
    return min(len(outside), len(_sources(partition, outside))) + 1 <= partition.max_operands


def _sources(partition: Partition, values: Iterable[Value]) -> set[Value]:
    """Return the tensors that views and single numbers among ``values`` are made of, and the other values."""
    sources: set[Value] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        node = value.producer
        if node is None or value in partition.constant or value in partition.outputs:
            sources.add(value)
            continue
        definition = partition.operators.of(node)
        if definition.is_view or (definition.is_map and value.elements == 1):
            waiting += (operand for operand in definition.data_inputs(node) if not is_literal(operand))
        else:
            sources.add(value)
    return sources


def _reduces_domain(region: Region, user: Node) -> bool:
    """Return whether a reduction reads a tensor in the shape and at the coordinates of the region's domain."""
    names = domain_variables(region.domain)
    source = user.operand(0)
    return source.shape == region.domain and region.coordinates.get(source, names) == names


def may_exit(partition: Partition, region: Region, value: Value) -> bool:
    """Return whether a region may store ``value``, given the coordinates of all values in its domain.

    A view as last member pays only when its result must be materialised as it is, or arithmetic follows.  A packed
    result needs threads that own its words: those of a reduction do where rows and columns are axes of the result,
    others if the root has words of that size too and its axes are axes of the result, or where the vectors of products
    stay vectors.  What is dequantised is left to readers that compute it once each: they read the narrow tensor.
    """
    assert value.producer is not None
    if value in partition.outputs:
        return value.dtype.packing == 1 or _owns_words(partition, region, value)
    if value.dtype.packing > 1 and not _owns_words(partition, region, value):
        return False
    return not partition.operators.of(value.producer).is_view and not _widens_for_maps(partition, region, value)


def _widens_for_maps(partition: Partition, region: Region, value: Value) -> bool:
    """Return whether a value of the region is dequantised for elementwise readers alone."""
    node = value.producer
    if node is None or operator_key(node) != "loom.Dequantize" or node.operand(0) not in region.coordinates:
        return False
    return all(partition.operators.of(user).is_elementwise for user in value.users)


def _owns_words(partition: Partition, region: Region, value: Value) -> bool:
    coordinates = region.coordinates[value]
    if region.reductions:
        return all(map(_is_axis, coordinates)) and not _crosses_long_rows(partition, region, value)
    if value.dtype.packing == region.anchor.outputs[0].dtype.packing and all(map(_is_axis, coordinates)):
        return True
    return _stores_vectors(partition, region, value, coordinates)


def _stores_vectors(partition: Partition, region: Region, value: Value, coordinates: Shape | None) -> bool:
    """Return whether the vectors that threads of a product hold are whole vectors of ``value``."""
    family = partition.anchor_family(region)
    axis = family.vector_axis(region.anchor)
    if not coordinates or axis is None:
        return False
    in_order = value in partition.outputs or value in partition.constant
    layout = value.layout if in_order else family.result_layout(region.anchor, coordinates)
    innermost = layout.innermost
    vectors = region.coordinates[region.anchor.outputs[0]][axis]
    return _keeps_vectors(coordinates[innermost], vectors, value.shape[innermost])


def _crosses_long_rows(partition: Partition, region: Region, value: Value) -> bool:
    """Return whether a thread that owns a word of ``value`` would have to reduce several long rows by itself."""
    columns = ix.product([region.domain[axis] for axis in region.anchor.attributes.axes])
    longest = SHARED_ROW if value.elements == ix.product(region.domain) else partition.longest_own_row
    return ix.bounds(columns)[1] > longest and (value.rank == 0 or ix.divide(value.shape[-1], LANES) is None)


def _is_axis(coordinate: Dim) -> bool:
    """Return whether a coordinate is a single variable, or a number."""
    names = ix.variables(coordinate) if isinstance(coordinate, ix.Index) else ()
    return len(names) < 2 and all(coordinate == ix.variable(name, *ix.bounds(coordinate)) for name in names)


def _keeps_vectors(last: Dim, axis: Dim, size: Dim) -> bool:
    """Return whether vectors along ``axis`` are whole vectors of coordinate ``last``, whose axis has ``size``."""
    start = ix.add(last, ix.multiply(axis, -1))
    return ix.divide(start, LANES) is not None and ix.divide(size, LANES) is not None
