"""Choose the physical layout of every value that exists in memory.

Layouts are a property of values; nothing is inserted and no attribute changes.  Kernels address memory through the
layout, so any choice is correct; this pass finds the one that lets kernels load and store four neighbours at a time:

* convolutions and pools write channels last; elementwise kernels keep the layout of what they read;
* a matrix product writes rows, unless a consumer would rather have another axis innermost (the second operand of an
  attention score, for example);
* model inputs and outputs are in ONNX order.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..fusion import Fusion
from ..ir.graph import Graph, Shape, Value
from ..ir.layout import Layout, contiguous, ordered_by
from ..kernels.family import family_named
from ..kernels.groups import Group
from ..kernels.operands import OperandReader
from ..kernels.results import ResultWriter
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.lanes import lane_variable, split_lane
from ..symbolic.polynomial import Dim

Votes = dict[Value, dict[int, int]]  #: value -> logical axis -> elements that want it innermost


class _LogicalOperands(OperandReader):
    """Reads operands at logical coordinates instead of positions in memory."""

    def load(self, value: Value, coordinates: tuple[Dim, ...]) -> Expr:
        return ex.load(value, value.dtype.name, coordinates, value.dtype.compute or "f32")


def assign_layouts(graph: Graph, fusion: Fusion) -> int:
    """Set ``layout`` of every value in memory; return how many are not in ONNX order."""
    changed = 0
    outputs = set(graph.outputs)
    votes = _collect_votes(fusion)
    for group in fusion.groups:
        value = group.output
        if value in outputs or (value.producer is not None and value.producer.op == "Relayout"):
            continue
        value.layout = _choose(group, fusion, votes.get(value, {}))
        changed += value.layout != contiguous(value.rank)
    return changed


def _collect_votes(fusion: Fusion) -> Votes:
    votes: Votes = {}
    for group in fusion.groups:
        if group.region is None:
            continue
        for operand, axis in family_named(group.family).preferred_axes(group.region):
            operands = _LogicalOperands(group, fusion.materialised)
            coordinates = tuple(
                lane_variable() if index == axis else ix.variable(f"v{index}", 0, _high(size))
                for index, size in enumerate(operand.shape)
            )
            weight = ix.bounds(operand.elements)[1]
            for load in ex.loads(operands.read(operand, coordinates)):
                for index, coordinate in enumerate(load.payload.coordinates):
                    if split_lane(coordinate)[1] == 1:
                        ballot = votes.setdefault(load.payload.operand, {})
                        ballot[index] = ballot.get(index, 0) + weight
    return votes


def _choose(group: Group, fusion: Fusion, votes: Mapping[int, int]) -> Layout:
    value = group.output
    if group.constant:
        return contiguous(value.rank)
    family = family_named(group.family)
    if group.region is None or family.is_row_program:
        natural = _follow_operands(group, fusion)
        if natural is not None:
            return natural
        layout = contiguous(value.rank)
    else:
        layout = _from_anchor(group)
        if not family.may_reorder(value):
            return layout
    if votes:
        axis = max(votes, key=lambda candidate: (votes[candidate], candidate == layout.innermost, candidate))
        if axis != layout.innermost:
            return Layout((*(other for other in layout.order if other != axis), axis))
    return layout


def _from_anchor(group: Group) -> Layout:
    """Order the axes of a region's exit as the anchor's own result would be stored."""
    region = group.region
    assert region is not None
    return family_named(group.family).result_layout(region.anchor, region.coordinates[region.exit])


def _follow_operands(group: Group, fusion: Fusion) -> Layout | None:
    """Return the layout of the largest operand that the kernel reads in step with its result."""
    value = group.output
    operands = _LogicalOperands(group, fusion.materialised)
    if group.region is None:
        coordinates: Shape = tuple(ix.variable(f"a{axis}", 0, _high(size)) for axis, size in enumerate(value.shape))
        if value.producer is None:
            return None
        expressions = [operands.evaluate(value.producer, coordinates)]
    else:
        names = tuple(ix.variable(f"a{axis}", 0, _high(size)) for axis, size in enumerate(group.region.domain))
        phases, store = ResultWriter(group, operands).row_program(names)
        coordinates = group.region.coordinates[group.region.exit]
        expressions = [phase.value for phase in phases] + [store.value]
    best: tuple[int, Layout] | None = None
    for expression in expressions:
        for load in ex.loads(expression):
            operand: Value = load.payload.operand
            if operand.rank < 2 or operand.layout.blocks:
                continue
            place: dict[str, int] = {}
            for position, axis in enumerate(operand.layout.order):
                for name in ix.variables(load.payload.coordinates[axis]):
                    place[name] = position
            if not any(ix.variables(coordinate) & place.keys() for coordinate in coordinates):
                continue
            weight = ix.bounds(operand.elements)[1]
            if best is None or weight > best[0]:
                best = (weight, ordered_by(coordinates, place))
    return None if best is None else best[1]


def _high(size: Dim) -> int:
    return max(ix.bounds(size)[1] - 1, 0)
