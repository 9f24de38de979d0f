"""Parts of values: rows of them, computed from as few rows of what they depend on.

Part of a constant is a constant, part of a large input a window of it, and part of a computed value is computed of
parts of its operands, along row axes (:mod:`..row_axes`) up to a large tensor; other values are cut where they are
read.  Equal parts are one value.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from ...compilation import Compilation
from ...ir.graph import Graph, Node, Value
from ...ops.math.nodes import part as slice_of
from ...rewriting.builder import GraphBuilder
from ...symbolic import polynomial as ix
from ..row_axes import RowAxes, emit_rows, is_join, operand_rows, rows_read
from .operands import LargeOperands
from .ports import input_window, is_fixed, may_be_read_in_windows, outermost, window_rows

#: First row of a part, and the row behind its last, of as many rows as there may be.  A part has those rows between
#: them that the size of the axis leaves, perhaps none.
Span = tuple[int, int]


class Parts:
    """The parts of a graph's values, each made once."""

    def __init__(self, graph: Graph, compilation: Compilation, large: LargeOperands, whole: Collection[str]) -> None:
        """Take the inputs that stay ``whole`` by their names."""
        self._graph = graph
        self._limits = compilation.limits
        self._target = compilation.target
        self._large = large
        self._whole = whole
        self._parts: dict[tuple[Value, int, int, int], Value] = {}
        self._spans: dict[Value, Sequence[Span]] = {}  #: of the parts that are side by side in a value

    def part(self, value: Value, axis: int, start: int, stop: int) -> Value:
        """Return elements ``start`` to ``stop`` along an axis of ``value``, as many of them as it has."""
        if start == 0 and ix.between(start, stop, value.shape[axis]) == value.shape[axis]:
            return value
        key = (value, axis, start, stop)
        if key not in self._parts:
            self._parts[key] = self._cut(value, axis, start, stop)
        return self._parts[key]

    def joined(self, builder: GraphBuilder, parts: Sequence[Value], axis: int, spans: Sequence[Span]) -> Value:
        """Return parts side by side; what reads one of the spans reads that part."""
        whole = builder.op("Concat", *parts, axis=axis)
        self._large.add_whole(whole)
        self._spans[whole] = spans
        self._parts.update({(whole, axis, *span): part for span, part in zip(spans, parts, strict=True)})
        return whole

    def rows_of(self, node: Node, axis: int, start: int, stop: int) -> Value:
        """Append ``node`` for a part of its result; operands that are not large are cut where they are read."""
        if is_join(node, axis):
            return self._across(node, axis, start, stop)
        rows = operand_rows(node, axis)
        assert rows is not None, "a rule says so"
        builder = self._builder(node)
        before = start % math.lcm(*(row.scale.denominator for row in rows.values()))
        if before:  # rows of the part before, with which the first one shares a block or a byte
            whole = self.rows_of(node, axis, start - before, stop)
            return slice_of(builder, whole, axis, before, ix.between(start, stop, node.output.shape[axis]))
        inputs: list[Value | None] = []
        for operand in node.inputs:
            row = None if operand is None else rows.get(operand)
            if operand is None or row is None:
                inputs.append(operand)
            else:
                first, behind = int(start * row.scale), math.ceil(stop * row.scale)
                inputs.append(self.part(operand, row.axis, first, behind))
        return emit_rows(builder, node, axis, ix.between(start, stop, node.output.shape[axis]), inputs)

    def rows_above(self, value: Value, axis: int) -> RowAxes | None:
        """Return the row axes of the operands of which a part of ``value`` is computed; None if it is cut itself."""
        node = value.producer
        if node is None:
            return None
        if is_join(node, axis):
            return rows_read(node, axis) if self._large.loaded(value) else None
        computed = value in self._large.constant or self._large.loaded(value) or self._large.is_near(value)
        return operand_rows(node, axis) if computed else None

    def is_open_input(self, value: Value, axis: int) -> bool:
        """Return whether rows along an axis of ``value`` are windows of an input of open size."""
        divided = not self._large.of_constants and not is_fixed(value) and axis == outermost(value.shape)
        return divided and may_be_read_in_windows(self._graph, value, self._target, self._whole)

    def _is_joined(self, value: Value, axis: int) -> bool:
        """Return whether a value is tensors side by side, of fixed size or parts of one."""
        node = value.producer
        return node is not None and is_join(node, axis) and (is_fixed(value) or value in self._spans)

    def _builder(self, node: Node) -> GraphBuilder:
        return GraphBuilder(self._graph, node.origins, self._limits)

    def _cut(self, value: Value, axis: int, start: int, stop: int) -> Value:
        size = ix.between(start, stop, value.shape[axis])
        if self.is_open_input(value, axis):
            before = start % window_rows(value.shape, value.storage or value.dtype, self._target)[0]
            if not before:
                return input_window(self._graph, value, start, stop)
            window = self.part(value, axis, start - before, stop)
            return slice_of(self._builder(value.user), window, axis, before, size)
        shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
        if value.constant is not None and value.static_value is None and ix.product(value.shape[:axis]) == 1:
            sizes = tuple(map(ix.number, shape))
            source = value.constant.part(start * ix.number(ix.product(shape[axis + 1 :])), sizes)
            part = self._graph.add_constant(f"{value.name}[{start}:{stop}]", value.dtype, sizes, source)
            part.storage = value.storage
            if value.name in self._graph.transposed:
                self._graph.transposed |= {part.name}
            return part
        node = value.producer
        if node is not None and (self._is_joined(value, axis) or self.rows_above(value, axis) is not None):
            part = self.rows_of(node, axis, start, stop)
            part.storage = part.storage or value.storage
            return part
        return slice_of(self._builder(node or value.user), value, axis, start, size)

    def _across(self, node: Node, axis: int, start: int, stop: int) -> Value:
        """Return elements ``start`` to ``stop`` along the axis of a Concat: of the operands that may have any of them.

        What begins where a run says is sliced there, a large input of windows that are side by side.
        """
        builder, operands = self._builder(node), [node.operand(position) for position in range(len(node.inputs))]
        extent, spans = node.output.shape[axis], self._spans.get(node.output)
        parts: list[Value] = []
        first: ix.Dim = 0
        for number, operand in enumerate(operands):
            behind = ix.add(first, operand.shape[axis])
            if spans is not None and not isinstance(extent, int):
                low, high = max(start, spans[number][0]), min(stop, spans[number][1])
                if (low, high) == spans[number]:
                    parts.append(operand)
                elif low < high:
                    parts.append(
                        slice_of(builder, operand, axis, low - spans[number][0], ix.between(low, high, extent))
                    )
            elif ix.bounds(first)[0] < stop and start < ix.bounds(behind)[1]:
                if isinstance(first, int):
                    most = ix.bounds(operand.shape[axis])[1]
                    parts.append(self.part(operand, axis, max(start - first, 0), min(stop - first, most)))
                else:
                    rows = ix.add(ix.between(start, stop, behind), ix.multiply(ix.between(start, stop, first), -1))
                    rows = ix.maximum(rows, 0)  # as it is, which its bounds do not say
                    skipped = ix.maximum(ix.add(start, ix.multiply(first, -1)), 0)
                    parts.append(slice_of(builder, self._beside(builder, operand, axis), axis, skipped, rows))
            first = behind
        joined = parts[0] if len(parts) == 1 else builder.op("Concat", *parts, axis=axis)
        shape = (*joined.shape[:axis], ix.between(start, stop, extent), *joined.shape[axis + 1 :])
        return joined if joined.shape == shape else builder.op("Fit", joined, domain="loom", shape=shape)

    def _beside(self, builder: GraphBuilder, value: Value, axis: int) -> Value:
        """Return the windows of a large input side by side; other values as they are."""
        if not self.is_open_input(value, axis):
            return value
        extent = ix.bounds(value.shape[axis])[1]
        most = window_rows(value.shape, value.storage or value.dtype, self._target)[1]
        spans = [(start, min(start + most, extent)) for start in range(0, extent, most)]
        return builder.op("Concat", *(self.part(value, axis, *span) for span in spans), axis=axis)
