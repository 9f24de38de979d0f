"""Signatures of groups: networks repeat their layers, and groups of equal signature share one kernel.

Two groups of one plan with equal signatures get equal specs, with operands at the same places among the group's values.
A signature holds all that a family may look at: operators, attributes, the order in which values are read, and for each
value its shape, storage, its constant elements, and whether it is materialised.  Names, ids and origins are left out,
and so are the contents of weights: operators look at integers, and at a few numbers like the scales of Resize.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from ...runtime.plan.record import record
from ..ir.graph import Node, Value
from ..symbolic.polynomial import Index
from .groups import Group

#: Floating-point tensors of more elements are weights, whose contents no kernel is built from
PARAMETERS = 16


@record
class GroupSignature:
    """``key`` compares; ``values`` are the group's values in the order in which the key numbers them."""

    key: Hashable
    values: tuple[Value, ...]


def signature(group: Group, materialised: Mapping[Value, Group]) -> GroupSignature | None:
    """Return the signature of a group, or None if an attribute cannot be compared."""
    numbers: dict[Value, int] = {}

    def number(value: Value | None) -> int:
        return -1 if value is None else numbers.setdefault(value, len(numbers))

    def node_key(node: Node) -> Hashable:
        # the text tells -0.0 from 0.0 and 1 from True, which compare equal
        return (
            node.domain,
            node.op,
            node.attributes,
            repr(node.attributes),
            tuple(map(number, node.inputs)),
            tuple(map(number, node.outputs)),
        )

    nodes = tuple(map(node_key, group.nodes))
    region = group.region
    shape: Hashable = None
    if region is not None:
        shape = (
            len(region.nodes),
            0 if region.scores is None else len(region.scores.nodes),
            number(region.exit),
            tuple((number(value), coordinates) for value, coordinates in region.coordinates.items()),
            region.domain,
            tuple(number(node.outputs[0]) for node in region.reductions),
        )
    ends = tuple(map(number, group.outputs))
    values = tuple(numbers)
    kind = (group.family, group.constant, len(group.updates))
    key = (kind, nodes, shape, ends, tuple(_value_key(value, materialised) for value in values))
    try:
        hash(key)
    except TypeError:
        return None
    return GroupSignature(key, values)


def _value_key(value: Value, materialised: Mapping[Value, Group]) -> Hashable:
    elements: Hashable = None
    if value.static_value is not None and (
        value.static_value.size <= PARAMETERS or value.dtype.compute not in ("f32", "f64")
    ):
        # the text of a number tells what compares equal; symbolic sizes are compared themselves
        elements = tuple(
            element if isinstance(element, Index) else repr(element) for element in value.static_value.flat
        )
    return (
        value.shape,
        value.dtype.name,
        value.layout,
        value.output_index,
        value.producer is None,
        value in materialised,
        value.is_constant,
        elements,
    )
