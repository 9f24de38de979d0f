"""Tensors beyond what a device binds or allocates at once: what reads or computes them is done in parts.

A binding has a largest size, and so has a buffer.  A constant beyond either becomes *parts*, constants of neighbouring
rows with a binding of their own each; the bytes stay where they are.  What reads it is rewritten so that each part of a
result comes from parts that a kernel can bind:

* a product with a part of the columns of its weight gives these columns of the result; one with a part of the terms
  gives an addend of it;
* a reduction of a part is an operand of the reduction of all;
* a selection by indices reads the part that has the row: all parts are read at a clamped index, and one result counts.

Which part of an operand belongs to a part of a result follows row axes (:mod:`.row_axes`) up to the large constant.
Parts of equal extent of one constant are one value, so that tied embeddings share them.  Where no rule applies the node
stays as it is, and is refused for its large operand later.

The largest size of a declared dimension decides how many parts there are.  A part has the rows that a run leaves for it
(:func:`~.polynomial.between`), perhaps none: then there are no workgroups, or what is read of it is not used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from ...runtime.plan.dtypes import FLOAT32, INT8, UINT8
from ...runtime.plan.record import record
from ..compilation import Compilation
from ..fusion import constant_values
from ..fusion.dequant_fusion import narrow_values
from ..ir.dataflow import operands, post_order, reachable
from ..ir.graph import Graph, Node, Value
from ..ops.math.nodes import in_type
from ..ops.math.nodes import part as slice_of
from ..ops.registry import registry
from ..remarks import Remark
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import operator_key
from ..symbolic import polynomial as ix
from .large_ports import (
    divide_inputs,
    exceeds,
    input_window,
    is_fixed,
    may_be_read_in_windows,
    may_be_windows,
    outermost,
    output_dtype,
    remove_unread,
    replace_output,
    window_rows,
)
from .patterns import view
from .row_axes import RowAxis, emit_rows, operand_rows

#: Rows of a part are a multiple of the first of these that the limit allows: whole vectors of a result's columns, and
#: offsets that bindings may begin at
_MULTIPLES = (64, 4, 1)
#: Sizes of axes are rounded up to this many elements, the most that a layout of a weight pads one to
_PADDING = 4

#: Operators that combine the reductions of parts, by the kind of a reduction
_COMBINE = {
    "sum": ("Add", ""),
    "prod": ("Mul", ""),
    "max": ("Maximum", "loom"),
    "min": ("Minimum", "loom"),
    "max_number": ("Maximum", "loom"),
}


def divide_large_tensors(graph: Graph, compilation: Compilation, whole: Collection[str] = ()) -> int:
    """Rewrite what reads tensors that the target cannot bind; return the number of nodes that are computed in parts.

    Tensors of the run come first, as a part of their rows may still need a part of the columns of a constant.  Inputs
    and outputs of the graph may become several, but for those named in ``whole``.
    """
    target = compilation.target
    outputs = any(may_be_windows(graph, value, target, whole) for value in graph.outputs)
    if not outputs and not any(exceeds(value, target) for value in graph.values()):
        return 0
    count = _Division(graph, compilation, whole, of_constants=False).run()
    return count + _Division(graph, compilation, whole, of_constants=True).run()


def _row_bytes(value: Value, axis: int) -> int:
    """Return the most bytes of a row along an axis in any layout, padding included."""
    sizes = [ix.bounds(size)[1] for at, size in enumerate(value.shape) if at != axis and size != 1]
    return math.prod(-(-size // _PADDING) * _PADDING for size in sizes) * (value.storage or value.dtype).itemsize


@record(slots=False)
class _Split:
    """A node that is computed in parts of ``rows`` rows of ``extent``; ``build`` gives its result from the spans."""

    extent: int  #: rows of the result, at most
    rows: int
    build: Callable[[Sequence[tuple[int, int]]], Value]

    @property
    def spans(self) -> list[tuple[int, int]]:
        """First row of each part, and the row behind its last, of as many rows as there may be.

        A part has those rows between them that the size of the axis leaves, perhaps none.
        """
        return [(start, min(start + self.rows, self.extent)) for start in range(0, self.extent, self.rows)]


class _Division:
    """The rewrites of one graph."""

    def __init__(self, graph: Graph, compilation: Compilation, whole: Collection[str], *, of_constants: bool) -> None:
        """Divide tensors that depend on constants alone, or else those of the run, inputs and outputs among them."""
        self._graph = graph
        self._of_constants = of_constants
        self._whole = whole
        self._compilation = compilation
        self._target = compilation.target
        self._constant = constant_values(graph)
        self._narrow = narrow_values(graph, self._constant)
        self._large: dict[Value, frozenset[Value]] = {}  #: tensors beyond the limit that are loaded for a value
        self._near: dict[Value, bool] = {}
        self._parts: dict[tuple[Value, int, int, int], Value] = {}
        self._wholes: set[Value] = set()  #: results of parts side by side

    def run(self) -> int:
        """Rewrite the graph; return the number of changes."""
        count = 0
        if not self._of_constants:
            count = divide_inputs(self._graph, self._target, self._whole)
        for node in list(self._graph.nodes):
            count += self._visit(node)
        if count:
            self._graph.remove_dead()
            remove_unread(self._graph)
            self._graph.sort()
        return count

    def _visit(self, node: Node) -> bool:
        if len(node.outputs) != 1 or not self._is_root(node):
            return False
        builder = GraphBuilder(self._graph, node.origins, self._compilation.limits)
        split = next((split for split in self._splits(builder, node) if split is not None), None)
        if split is None:
            return False
        self._graph.replace(node.output, split.build(split.spans))
        if self._compilation.remarks is not None:
            self._compilation.remarks.append(Remark("large-tensors", node.origins, node.op))
        return True

    # -- what is too large ---------------------------------------------------------------------------------------

    def _loaded(self, value: Value) -> frozenset[Value]:
        """Return the tensors beyond the limit that a kernel loads for elements of ``value``."""

        def above(current: Value) -> Sequence[Value]:
            return () if current in self._large or self._is_stored(current) else operands(current)

        for current in post_order([value], above):
            if current in self._large:
                continue
            if self._is_stored(current):
                counts = exceeds(current, self._target) and (current in self._constant) == self._of_constants
                self._large[current] = frozenset([current] if counts else [])
            else:
                self._large[current] = frozenset().union(*(self._large[operand] for operand in operands(current)))
        return self._large[value]

    def _is_stored(self, value: Value) -> bool:
        """Return whether a value is surely in memory when it is read, and not computed in the kernel that reads it."""
        node = value.producer
        if node is None or len(node.outputs) != 1 or not registry.of(node).is_map:
            return True
        is_view = registry.of(node).is_view and operator_key(node) != "loom.Unpack"
        return value in self._constant and value not in self._narrow and not is_view

    def _is_root(self, node: Node) -> bool:
        """Return whether the result is stored, or small, and computed from a tensor that is too large."""
        if self._is_window(node.output):
            return True
        if exceeds(node.output, self._target):
            return False
        large = frozenset().union(*(self._loaded(operand) for operand in operands(node.output)))
        return any(map(is_fixed, large)) or (bool(large) and not _is_attended(node.output))

    def _is_window(self, value: Value) -> bool:
        """Return whether a value is an output that several are to replace."""
        return not self._of_constants and may_be_windows(self._graph, value, self._target, self._whole)

    # -- how to split --------------------------------------------------------------------------------------------

    def _splits(self, builder: GraphBuilder, node: Node) -> Sequence[_Split | None]:
        """Return the ways to compute a node in parts; None for those that split too little."""
        result = node.output
        if self._is_window(result):
            return [self._as_windows(builder, node)]
        if exceeds(result, self._target):
            return []
        ways = [self._by_rows(builder, node, axis) for axis in range(result.rank)]
        key = operator_key(node)
        if key == "loom.MatMul":
            ways.append(self._by_terms(builder, node))
        elif key == "loom.Reduce":
            ways += [self._by_reduced(builder, node, axis) for axis in node.attributes.axes]
        elif key == "Gather":
            ways.append(self._by_index(builder, node))
        return ways

    def _by_rows(self, builder: GraphBuilder, node: Node, axis: int) -> _Split | None:
        rows = operand_rows(node, axis)
        if rows is None:
            return None

        def build(spans: Sequence[tuple[int, int]]) -> Value:
            parts = [self._rows_of(node, axis, start, stop) for start, stop in spans]
            return self._joined(builder, parts, axis, spans)

        return self._split(node, list(rows.items()), node.output.shape[axis], build)

    def _joined(
        self, builder: GraphBuilder, parts: Sequence[Value], axis: int, spans: Sequence[tuple[int, int]]
    ) -> Value:
        """Return parts side by side; what reads one of the spans reads that part."""
        whole = builder.op("Concat", *parts, axis=axis)
        self._wholes.add(whole)
        self._parts.update({(whole, axis, *span): part for span, part in zip(spans, parts, strict=True)})
        return whole

    def _as_windows(self, builder: GraphBuilder, node: Node) -> _Split | None:
        """Split an output of the graph along its outermost axis."""
        axis = outermost(node.output.shape)
        rows = operand_rows(node, axis)
        if rows is None:
            return None
        dtype = output_dtype(self._graph, node.output)
        multiple, most = window_rows(node.output.shape, dtype, self._target)

        def build(spans: Sequence[tuple[int, int]]) -> Value:
            parts = [self._rows_of(node, axis, start, stop) for start, stop in spans]
            replace_output(self._graph, node.output, parts, [start for start, _ in spans])
            return self._joined(builder, parts, axis, spans)

        multiples = (math.lcm(_MULTIPLES[0], multiple), multiple)
        return self._split(node, list(rows.items()), node.output.shape[axis], build, most, multiples)

    def _by_terms(self, builder: GraphBuilder, node: Node) -> _Split | None:
        left, right = node.operand(0), node.operand(1)

        def build(spans: Sequence[tuple[int, int]]) -> Value:
            products = [
                builder.op(
                    "MatMul",
                    self._part(left, left.rank - 1, start, stop),
                    self._part(right, right.rank - 2, start, stop),
                    domain="loom",
                )
                for start, stop in spans
            ]
            return _chain(builder, _COMBINE["sum"], products)

        read = [(left, RowAxis(left.rank - 1)), (right, RowAxis(right.rank - 2))]
        return None if left is right else self._split(node, read, left.shape[-1], build)

    def _by_reduced(self, builder: GraphBuilder, node: Node, axis: int) -> _Split | None:
        value, attributes = node.operand(0), node.attributes

        def build(spans: Sequence[tuple[int, int]]) -> Value:
            parts = [self._part(value, axis, start, stop) for start, stop in spans]
            reduced = [builder.emit(registry.of(node), [part], attributes)[0] for part in parts]
            return _chain(builder, _COMBINE[attributes.kind], reduced)

        return self._split(node, [(value, RowAxis(axis))], value.shape[axis], build)

    def _by_index(self, builder: GraphBuilder, node: Node) -> _Split | None:
        """Split along the axis of the indices, if its size is fixed; indices out of range are clamped, as they are
        without parts.
        """
        data, indices = node.operand(0), node.operand(1)
        axis = node.attributes.axis % data.rank
        extent = data.shape[axis]
        if not isinstance(extent, int):
            return None

        def number(value: int) -> Value:
            return builder.scalar(value, indices)

        def limited(index: Value, start: int, stop: int) -> Value:
            """Return the index in a part.  A selection clamps what it reads; known indices must be in range."""
            index = builder.op("Sub", index, number(start)) if start else index
            if index.static_value is None:
                return index
            index = builder.op("Maximum", index, number(0), domain="loom")
            return builder.op("Minimum", index, number(stop - start - 1), domain="loom")

        def build(spans: Sequence[tuple[int, int]]) -> Value:
            negative = builder.op("Less", indices, number(0))
            wrapped = builder.op("Add", indices, number(extent))
            index = builder.op("Where", negative, wrapped, indices)
            index = builder.op("Maximum", index, number(0), domain="loom")
            row = view(builder, index, (*indices.shape, *(1,) * (data.rank - axis - 1)))
            parts = [
                builder.op("Gather", self._part(data, axis, *span), limited(index, *span), axis=axis) for span in spans
            ]
            result = parts[0]
            for part, (start, _) in zip(parts[1:], spans[1:], strict=True):
                result = _choose(builder, builder.op("GreaterOrEqual", row, number(start)), part, result)
            return result

        return self._split(node, [(data, RowAxis(axis))], extent, build)

    def _split(
        self,
        node: Node,
        read: Sequence[tuple[Value, RowAxis]],
        extent: ix.Dim,
        build: Callable[[Sequence[tuple[int, int]]], Value],
        most: int | None = None,
        multiples: Sequence[int] = _MULTIPLES,
    ) -> _Split | None:
        """Return the split of ``node`` along an axis with ``extent`` elements, of which operands have the row axes in
        ``read``; None unless each part of every large tensor can be bound.

        A part has at most ``most`` rows, and a multiple of one of ``multiples``, the first that is possible.
        """
        large = frozenset().union(*(self._loaded(operand) for operand in operands(node.output)))
        covered: dict[Value, RowAxis] = {}
        if not all(self._follow(*each, covered) for each in read) or not large <= covered.keys():
            return None
        rows = ix.bounds(extent)[1]
        most = rows if most is None else most
        begin = 1
        for value, at in covered.items():
            if value in self._loaded(value):
                most = min(most, int(self._target.largest_tensor // (_row_bytes(value, at.axis) * at.scale)))
                if self._is_open_input(value, at.axis):
                    multiple = window_rows(value.shape, value.storage or value.dtype, self._target)[0]
                    begin = math.lcm(begin, (multiple / at.scale).numerator)
        # parts begin at whole rows of operands and where windows may, and if possible at whole blocks
        whole = math.lcm(begin, *(at.scale.denominator for at in covered.values() if not at.blocks))
        blocks = math.lcm(begin, *(at.scale.denominator for at in covered.values()))
        for step in (math.lcm(multiple, unit) for unit in (blocks, whole) for multiple in multiples):
            if most >= step:
                return _Split(rows, most // step * step, build)
        return None

    def _follow(self, value: Value, at: RowAxis, covered: dict[Value, RowAxis]) -> bool:
        """Follow a row axis up to the tensors beyond the limit, and note them in ``covered``; return whether all that
        are loaded for ``value`` are split.
        """
        if covered.setdefault(value, at) != at:
            return False
        if value.is_constant and self._loaded(value):
            return ix.product(value.shape[: at.axis]) == 1
        if self._is_open_input(value, at.axis):
            return True
        producer, rows = value.producer, self._rows_above(value, at.axis)
        if producer is None or rows is None:
            return not self._loaded(value)
        for operand in operands(value):
            if operand in rows:
                row = rows[operand]
                if at.blocks and row.scale.denominator != 1 and operator_key(producer) != "loom.Unpack":
                    return False
                above = RowAxis(row.axis, row.scale * at.scale, at.blocks or row.blocks)
                if not self._follow(operand, above, covered):
                    return False
            elif self._loaded(operand):
                return False
        return True

    def _rows_above(self, value: Value, axis: int) -> dict[Value, RowAxis] | None:
        """Return the row axes of the operands of which a part of ``value`` is computed; None if it is cut itself."""
        node = value.producer
        if node is None:
            return None
        computed = value in self._constant or self._loaded(value) or self._is_near(value)
        return operand_rows(node, axis) if computed else None

    def _is_near(self, value: Value) -> bool:
        """Return whether a value is too large or has parts, or is computed of one, with maps at most in between."""

        def above(current: Value) -> Sequence[Value]:
            is_map = current.producer is not None and registry.of(current.producer).is_map
            return operands(current) if is_map and current not in self._near else ()

        for current in post_order([value], above):
            if current not in self._near:
                near = any(exceeds(each, self._target) for each in (current, *operands(current)))
                self._near[current] = (
                    near or current in self._wholes or any(self._near.get(each, False) for each in above(current))
                )
        return self._near[value]

    # -- parts ---------------------------------------------------------------------------------------------------

    def _part(self, value: Value, axis: int, start: int, stop: int) -> Value:
        """Return elements ``start`` to ``stop`` along an axis of ``value``, as many of them as it has."""
        if start == 0 and ix.between(start, stop, value.shape[axis]) == value.shape[axis]:
            return value
        key = (value, axis, start, stop)
        if key not in self._parts:
            self._parts[key] = self._cut(value, axis, start, stop)
        return self._parts[key]

    def _cut(self, value: Value, axis: int, start: int, stop: int) -> Value:
        size = ix.between(start, stop, value.shape[axis])
        if self._is_open_input(value, axis):
            multiple = window_rows(value.shape, value.storage or value.dtype, self._target)[0]
            if start % multiple == 0:
                return input_window(self._graph, value, start, stop)
        shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
        if value.constant is not None and value.static_value is None and ix.product(value.shape[:axis]) == 1:
            sizes = tuple(map(ix.number, shape))
            source = value.constant.part(start * ix.number(ix.product(shape[axis + 1 :])), sizes)
            part = self._graph.add_constant(f"{value.name}[{start}:{stop}]", value.dtype, sizes, source)
            part.storage = value.storage
            return part
        node = value.producer
        if node is not None and _is_joined(node, axis):
            return self._across(node, axis, start, stop)
        if node is not None and self._rows_above(value, axis) is not None:
            part = self._rows_of(node, axis, start, stop)
            part.storage = part.storage or value.storage
            return part
        builder = GraphBuilder(self._graph, node.origins if node else value.user.origins, self._compilation.limits)
        return slice_of(builder, value, axis, start, size)

    def _is_open_input(self, value: Value, axis: int) -> bool:
        """Return whether rows along an axis of ``value`` are windows of an input of open size."""
        divided = not self._of_constants and not is_fixed(value) and axis == outermost(value.shape)
        return divided and may_be_read_in_windows(self._graph, value, self._target, self._whole)

    def _across(self, node: Node, axis: int, start: int, stop: int) -> Value:
        """Return elements ``start`` to ``stop`` along the axis of a Concat: of the operands that have any of them."""
        parts, first = [], 0
        for position in range(len(node.inputs)):
            operand = node.operand(position)
            size = ix.number(operand.shape[axis])
            if first < stop and start < first + size:
                parts.append(self._part(operand, axis, max(start - first, 0), min(stop - first, size)))
            first += size
        builder = GraphBuilder(self._graph, node.origins, self._compilation.limits)
        return parts[0] if len(parts) == 1 else builder.op("Concat", *parts, axis=axis)

    def _rows_of(self, node: Node, axis: int, start: int, stop: int) -> Value:
        """Append ``node`` for a part of its result; operands that are not large are cut where they are read."""
        rows = operand_rows(node, axis)
        assert rows is not None, "a rule says so"
        builder = GraphBuilder(self._graph, node.origins, self._compilation.limits)
        before = start % math.lcm(*(row.scale.denominator for row in rows.values()))
        if before:  # rows of the part before, with which the first one shares a block or a byte
            whole = self._rows_of(node, axis, start - before, stop)
            return slice_of(builder, whole, axis, before, ix.between(start, stop, node.output.shape[axis]))
        inputs: list[Value | None] = []
        for operand in node.inputs:
            row = None if operand is None else rows.get(operand)
            if operand is None or row is None:
                inputs.append(operand)
            else:
                first, behind = int(start * row.scale), math.ceil(stop * row.scale)
                inputs.append(self._part(operand, row.axis, first, behind))
        return emit_rows(builder, node, axis, ix.between(start, stop, node.output.shape[axis]), inputs)


def _is_attended(value: Value) -> bool:
    """Return whether an attention kernel may compute a value: parts of open size are not worth stored scores."""

    def below(current: Value) -> list[Value]:
        return [user.output for user, _ in current.uses if registry.of(user).is_map]

    readers = (user for each in reachable([value], below) for user, _ in each.uses)
    return any(operator_key(user) == "loom.SoftmaxProduct" for user in readers)


def _is_joined(node: Node, axis: int) -> bool:
    """Return whether a node joins tensors of fixed size along an axis of its result."""
    if operator_key(node) != "Concat" or node.attributes.axis % node.output.rank != axis:
        return False
    return all(isinstance(node.operand(position).shape[axis], int) for position in range(len(node.inputs)))


def _choose(builder: GraphBuilder, condition: Value, one: Value, other: Value) -> Value:
    """Return elements of either value; those of a type without arithmetic are chosen in one that has its values."""
    dtype = one.dtype
    if not (dtype.narrow or dtype.is_code):
        return builder.op("Where", condition, one, other)
    wider = FLOAT32 if dtype.is_float else INT8 if dtype.is_signed else UINT8
    chosen = builder.op("Where", condition, in_type(builder, one, wider), in_type(builder, other, wider))
    return in_type(builder, chosen, dtype)


def _chain(builder: GraphBuilder, operator: tuple[str, str], values: Sequence[Value]) -> Value:
    """Combine values one after another by a binary operator of a domain."""
    (name, domain), result = operator, values[0]
    for value in values[1:]:
        result = builder.op(name, result, value, domain=domain)
    return result
