"""Changes of shape in one form, joined where they meet, and gone where they change nothing."""

from __future__ import annotations

from ..ir.graph import Node, Value
from ..ops.onnx.slicing import StridedSliceAttributes
from ..ops.onnx.views import permutation
from ..ops.registry import registry
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, Match, Rule
from ..symbolic import polynomial as ix
from .patterns import broadcast, produced_by, view

# -- one operator for every change of shape --------------------------------------------------------------------------


def _always(node: Node, facts: GraphFacts) -> Match | None:
    return Match((node,), {"value": node.operand(0)})


CANONICAL_VIEW = Rule(
    "shape-as-attribute",
    frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"}),
    _always,
    lambda builder, match: view(builder, match["value"], match.root.output.shape),
)


def _broadcast(builder: GraphBuilder, match: Match) -> Value:
    value, shape = match["value"], match.root.output.shape
    return value if value.shape == shape else builder.op("Broadcast", value, domain="loom", shape=shape)


CANONICAL_BROADCAST = Rule("expand-shape-as-attribute", frozenset({"Expand"}), _always, _broadcast)


def _unchanged(node: Node, facts: GraphFacts) -> Match | None:
    value = node.operand(0)
    if value.shape != node.output.shape:
        return None
    if node.op == "Transpose" and permutation(node) != tuple(range(value.rank)):
        return None
    if node.op == "StridedSlice" and any(step != 1 for step in node.attributes.steps):
        return None
    if node.op == "Concat" and len(node.inputs) != 1:
        return None
    return Match((node,), {"value": value})


UNCHANGED = Rule(
    "view-of-everything",
    frozenset({"loom.View", "loom.Broadcast", "Transpose", "loom.StridedSlice", "Concat", "Tile"}),
    _unchanged,
    lambda builder, match: match["value"],
)


def _same_operator(node: Node, facts: GraphFacts) -> Match | None:
    inner = node.operand(0).producer
    if inner is None or inner.op != node.op or inner.domain != node.domain:
        return None
    return Match((node, inner), {"value": inner.operand(0)})


VIEW_OF_VIEW = Rule(
    "view-of-view",
    frozenset({"loom.View"}),
    _same_operator,
    lambda builder, match: view(builder, match["value"], match.root.output.shape),
)
BROADCAST_OF_BROADCAST = Rule("broadcast-of-broadcast", frozenset({"loom.Broadcast"}), _same_operator, _broadcast)

# -- transposes ------------------------------------------------------------------------------------------------------


def _join_transposes(builder: GraphBuilder, match: Match) -> Value:
    outer, inner = (permutation(node) for node in match.nodes)
    joined = tuple(inner[axis] for axis in outer)
    value: Value = match["value"]
    return value if joined == tuple(range(len(joined))) else builder.op("Transpose", value, perm=joined)


TRANSPOSE_OF_TRANSPOSE = Rule("transpose-of-transpose", frozenset({"Transpose"}), _same_operator, _join_transposes)


def _moves_only_ones(node: Node, facts: GraphFacts) -> Match | None:
    """Match a transposition that moves only axes of size 1: the other axes, and so the elements, keep their order."""
    value = node.operand(0)
    longer = [axis for axis in permutation(node) if value.shape[axis] != 1]
    return Match((node,), {"value": value}) if longer == sorted(longer) else None


TRANSPOSE_OF_ONES = Rule(
    "transpose-keeps-order",
    frozenset({"Transpose"}),
    _moves_only_ones,
    lambda builder, match: view(builder, match["value"], match.root.output.shape),
)

# -- selections ------------------------------------------------------------------------------------------------------


def _only_row(node: Node, facts: GraphFacts) -> Match | None:
    """Match a selection of one row of one, for every element of the first axis, whatever its index is."""
    value, index = node.operand(0), node.operand(1)
    if node.attributes.batch_dims != 1 or value.shape[1] != 1 or index.elements != index.shape[0]:
        return None
    return Match((node,), {"value": value})


ONLY_ROW = Rule(
    "select-only-row",
    frozenset({"GatherND"}),
    _only_row,
    lambda builder, match: view(builder, match["value"], match.root.output.shape),
)

# -- slices and concatenations ---------------------------------------------------------------------------------------


def _slice_of_slice(builder: GraphBuilder, match: Match) -> Value:
    outer, inner = (node.attributes for node in match.nodes)
    starts = tuple(
        ix.add(first, ix.multiply(start, step)) for first, step, start in zip(inner.starts, inner.steps, outer.starts)
    )
    steps = tuple(one * other for one, other in zip(inner.steps, outer.steps))
    return builder.op("StridedSlice", match["value"], domain="loom", starts=starts, steps=steps, sizes=outer.sizes)


SLICE_OF_SLICE = Rule("slice-of-slice", frozenset({"loom.StridedSlice"}), _same_operator, _slice_of_slice)


def _slice_of_concat(node: Node, facts: GraphFacts) -> Match | None:
    """Match a slice of one part of a concatenation."""
    concat = produced_by(node.operand(0), "Concat")
    if concat is None:
        return None
    axis = concat.attributes.axis % concat.output.rank
    attributes: StridedSliceAttributes = node.attributes
    start, step, size = attributes.starts[axis], attributes.steps[axis], attributes.sizes[axis]
    if isinstance(start, ix.Index) or isinstance(size, ix.Index) or size < 1:
        return None
    ends = sorted((int(start), int(start) + (int(size) - 1) * step))
    first = 0
    for value in concat.inputs:
        assert value is not None
        length = value.shape[axis]
        if isinstance(length, ix.Index):
            return None
        if first <= ends[0] and ends[1] < first + length:
            return Match((node, concat), {"value": value, "axis": axis, "first": first})
        first += int(length)
    return None


def _slice_part(builder: GraphBuilder, match: Match) -> Value:
    attributes: StridedSliceAttributes = match.root.attributes
    starts = list(attributes.starts)
    starts[match["axis"]] = ix.add(starts[match["axis"]], -match["first"])
    return builder.op(
        "StridedSlice",
        match["value"],
        domain="loom",
        starts=tuple(starts),
        steps=attributes.steps,
        sizes=attributes.sizes,
    )


SLICE_OF_CONCAT = Rule("slice-of-concat", frozenset({"loom.StridedSlice"}), _slice_of_concat, _slice_part)


def _follows(left: Value | None, right: Value | None, axis: int) -> bool:
    """Return whether ``right`` slices the same tensor as ``left`` and begins where ``left`` ends along ``axis``."""
    one, other = produced_by(left, "loom.StridedSlice"), produced_by(right, "loom.StridedSlice")
    if one is None or other is None or one.operand(0) is not other.operand(0):
        return False
    first: StridedSliceAttributes = one.attributes
    second: StridedSliceAttributes = other.attributes
    if first.steps[axis] != 1 or second.steps[axis] != 1:
        return False
    elsewhere = [at for at in range(len(first.starts)) if at != axis]
    aligned = all(
        first.starts[at] == second.starts[at]
        and first.steps[at] == second.steps[at]
        and first.sizes[at] == second.sizes[at]
        for at in elsewhere
    )
    return aligned and ix.add(first.starts[axis], first.sizes[axis]) == second.starts[axis]


def _adjacent(node: Node, facts: GraphFacts) -> Match | None:
    axis = node.attributes.axis % node.output.rank
    for position in range(len(node.inputs) - 1):
        left, right = node.operand(position), node.operand(position + 1)
        if _follows(left, right, axis):
            assert left.producer is not None and right.producer is not None
            return Match((node, left.producer, right.producer), {"position": position, "axis": axis})
    return None


def _join_adjacent(builder: GraphBuilder, match: Match) -> Value:
    node, left, right = match.nodes
    axis, position = match["axis"], match["position"]
    attributes: StridedSliceAttributes = left.attributes
    sizes = list(attributes.sizes)
    sizes[axis] = ix.add(sizes[axis], right.attributes.sizes[axis])
    joined = builder.op(
        "StridedSlice",
        left.operand(0),
        domain="loom",
        starts=attributes.starts,
        steps=attributes.steps,
        sizes=tuple(sizes),
    )
    parts = [*node.inputs[:position], joined, *node.inputs[position + 2 :]]
    return joined if len(parts) == 1 else builder.op("Concat", *parts, axis=axis)


ADJACENT_SLICES = Rule("concat-of-adjacent-slices", frozenset({"Concat"}), _adjacent, _join_adjacent)


def _with_empty_parts(node: Node, facts: GraphFacts) -> Match | None:
    axis = node.attributes.axis % node.output.rank
    parts = [value for value in node.inputs if value is not None and value.shape[axis] != 0]
    return Match((node,), {"parts": parts, "axis": axis}) if 0 < len(parts) < len(node.inputs) else None


EMPTY_PARTS = Rule(
    "concat-with-empty-parts",
    frozenset({"Concat"}),
    _with_empty_parts,
    lambda builder, match: builder.op("Concat", *match["parts"], axis=match["axis"]),
)

# -- broadcasts ------------------------------------------------------------------------------------------------------


def _expanded_operand(node: Node, facts: GraphFacts) -> Match | None:
    """Match an expanded operand of an elementwise operator, which broadcasts by itself."""
    if len(node.inputs) < 2 or not registry.of(node).is_elementwise or node.op == "Clip":
        return None
    for position, value in enumerate(node.inputs):
        inner = produced_by(value, "loom.Broadcast")
        if inner is None:
            continue
        shape = inner.operand(0).shape
        for other, operand in enumerate(node.inputs):
            if other != position and operand is not None:
                merged = broadcast(shape, operand.shape)
                if merged is None:
                    break
                shape = merged
        else:
            if shape == node.output.shape:
                return Match((node, inner), {"position": position})
    return None


def _without_broadcast(builder: GraphBuilder, match: Match) -> Value:
    node, inner = match.nodes
    inputs = list(node.inputs)
    inputs[match["position"]] = inner.operand(0)
    return builder.emit(registry.of(node), inputs, node.attributes)[0]


EXPANDED_OPERAND = Rule("broadcast-operand", frozenset(), _expanded_operand, _without_broadcast)

RULES = (
    CANONICAL_VIEW,
    CANONICAL_BROADCAST,
    UNCHANGED,
    VIEW_OF_VIEW,
    BROADCAST_OF_BROADCAST,
    TRANSPOSE_OF_ONES,
    TRANSPOSE_OF_TRANSPOSE,
    ONLY_ROW,
    SLICE_OF_SLICE,
    SLICE_OF_CONCAT,
    ADJACENT_SLICES,
    EMPTY_PARTS,
    EXPANDED_OPERAND,
)
