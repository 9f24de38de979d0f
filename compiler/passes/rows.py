"""Computation of the rows that are read: the selection of one row moves before the products that compute all of them.

A decoder's prompt needs the logits of its last token, a classifier those of its first.  The file computes products,
norms and arithmetic for every position and selects one then.  Each row of these depends on the same row of their
operands alone, so the selection moves up: through everything that works row by row and that nothing else reads.  Where
it passes no product, it stays where it is.

Row axes are those of :mod:`.row_axes`.  A product passes if its right operand has no batches, a reduction if it keeps
the axis.
"""

from __future__ import annotations

from ...runtime.plan.record import record
from ..compilation import Compilation
from ..ir.graph import Graph, Node, Value
from ..ops.registry import registry
from ..remarks import Remark
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, operator_key
from ..symbolic import polynomial as ix
from .patterns import view
from .row_axes import emit_rows, operand_rows

#: Operators that selections pass, besides elementwise ones
_PASSED = frozenset({"loom.MatMul", "loom.Reduce", "loom.View", "loom.StridedSlice", "Transpose"})


@record(slots=False)
class _Selection:
    """A node that selects one row of its first operand: at ``start`` of ``axis``, or where an index says.

    An index is that of every batch, the elements of axis 0, or of all elements if there is one.
    """

    node: Node
    axis: int
    start: ix.Dim | None = None  #: None: at the index

    @property
    def value(self) -> Value:
        return self.node.operand(0)

    @property
    def has_batches(self) -> bool:
        """Whether every element of axis 0 has an index of its own."""
        return self.start is None and self.node.operand(1).elements != 1

    def apply(self, builder: GraphBuilder, value: Value, axis: int) -> Value:
        """Select the row of ``value``, whose row axis is ``axis``."""
        sizes = (*value.shape[:axis], 1, *value.shape[axis + 1 :])
        if self.start is not None:
            starts = tuple(self.start if at == axis else 0 for at in range(value.rank))
            steps = (1,) * value.rank
            return builder.op("StridedSlice", value, domain="loom", starts=starts, steps=steps, sizes=sizes)
        index = self.node.operand(1)
        if not self.has_batches:
            return builder.op("Gather", value, view(builder, index, (1,)), axis=axis)
        order = (0, axis, *(at for at in range(1, value.rank) if at != axis))
        moved = value if axis == 1 else builder.op("Transpose", value, perm=order)
        places = view(builder, index, (index.shape[0], 1, 1))
        return view(builder, builder.op("GatherND", moved, places, batch_dims=1), sizes)


def select_rows(graph: Graph, compilation: Compilation) -> int:
    """Move selections of one row before products; return the number of products that compute fewer rows."""
    facts = GraphFacts(graph, compilation.limits)
    moved = 0
    for node in list(graph.nodes):
        selection = _selection(node)
        if selection is None:
            continue
        region = _region(graph, facts, selection)
        products = sum(each.op == "MatMul" for each in region)
        if products:
            builder = GraphBuilder(graph, node.origins, compilation.limits)
            graph.replace(node.output, view(builder, _move(graph, selection, region, compilation), node.output.shape))
            graph.remove_dead()
            graph.sort()
            if compilation.remarks is not None:
                compilation.remarks.append(Remark("select-rows", node.origins, node.op))
            moved += products
            facts = GraphFacts(graph, compilation.limits)
    return moved


def _selection(node: Node) -> _Selection | None:
    """Match a node that selects one row of several."""
    key = operator_key(node)
    if key == "loom.StridedSlice":
        sizes, starts = node.attributes.sizes, node.attributes.starts
        cut = [axis for axis, size in enumerate(node.operand(0).shape) if sizes[axis] != size]
        if len(cut) == 1 and sizes[cut[0]] == 1 and all(step == 1 for step in node.attributes.steps):
            return _Selection(node, cut[0], starts[cut[0]])
    if key == "Gather" and node.operand(1).elements == 1:
        return _Selection(node, node.attributes.axis % node.operand(0).rank)
    if key == "GatherND" and node.attributes.batch_dims == 1:
        index = node.operand(1)
        if index.elements == index.shape[0]:
            return _Selection(node, 1)
    return None


# -- what moves ------------------------------------------------------------------------------------------------------


def _region(graph: Graph, facts: GraphFacts, selection: _Selection) -> dict[Node, int]:
    """Return the nodes that need compute one row alone, in order, each with the row axis of its result."""
    axes: dict[Value, int] = {selection.value: selection.axis}
    region: dict[Node, int] = {}
    for node in reversed(graph.nodes):
        if len(node.outputs) != 1 or node.output not in axes:
            continue
        if facts.is_output(node.output) or facts.is_constant(node.output):
            continue
        if any(user not in region and user is not selection.node for user in node.output.users):
            continue
        axis = axes[node.output]
        read = _operand_axes(node, axis, selection)
        if read is None or any(axes.get(value, at) != at for value, at in read.items()):
            continue
        region[node] = axis
        axes.update(read)
    return _without_views_above({node: region[node] for node in graph.nodes if node in region})


def _without_views_above(region: dict[Node, int]) -> dict[Node, int]:
    """Leave out views of what is computed for all rows: these are free."""
    useful: dict[Node, int] = {}
    for node, axis in region.items():
        if not registry.of(node).is_view or any(value and value.producer in useful for value in node.inputs):
            useful[node] = axis
    return useful


def _operand_axes(node: Node, axis: int, selection: _Selection) -> dict[Value, int] | None:
    """Return the operands with a row for each row along ``axis`` of the result, and their row axes; None if a row of
    the result depends on more.

    With an index for every batch axis 0 must be that of the operands, too.
    """
    key = operator_key(node)
    rows = operand_rows(node, axis) if key in _PASSED or registry.of(node).is_elementwise else None
    if rows is None or any(row.scale != 1 for row in rows.values()):
        return None
    if key == "loom.MatMul" and (node.operand(1) in rows or any(size != 1 for size in node.operand(1).shape[:-2])):
        return None
    read = {value: row.axis for value, row in rows.items()}
    if not selection.has_batches:
        return read
    batches = selection.value.shape[0]
    is_batched = all(at > 0 and value.shape[0] == batches for value, at in read.items())
    return read if is_batched else None


# -- the move --------------------------------------------------------------------------------------------------------


def _move(graph: Graph, selection: _Selection, region: dict[Node, int], compilation: Compilation) -> Value:
    """Build the nodes of ``region`` for the selected row; return its value.

    Rows have the storage of the tensors that they are of, but no names: these are those of all rows.
    """
    rows: dict[Value, Value] = {}
    for node, axis in region.items():
        builder = GraphBuilder(graph, node.origins, compilation.limits)
        read = _operand_axes(node, axis, selection)
        assert read is not None, "it is in the region"
        for value, at in read.items():
            if value not in rows:
                rows[value] = selection.apply(builder, value, at)
        inputs = [rows[value] if value in read else value for value in node.inputs]
        row = rows[node.output] = emit_rows(builder, node, axis, 1, inputs)
        row.storage = row.storage or node.output.storage
    return rows[selection.value]
