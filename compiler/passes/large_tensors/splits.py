"""The ways to compute a node in parts, of which each part of every large tensor that it needs can be bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence, Set

from ....runtime.plan.dtypes import FLOAT32, INT8, INT32, UINT8
from ....runtime.plan.record import record
from ...ir.dataflow import operands
from ...ir.graph import Graph, Node, Value
from ...ops.math.nodes import in_type
from ...ops.registry import registry
from ...rewriting.builder import GraphBuilder
from ...rewriting.rules import operator_key
from ...symbolic import polynomial as ix
from ..patterns import view
from ..row_axes import RowAxis, operand_rows, rows_read
from .operands import LargeOperands
from .parts import Parts, Span
from .ports import exceeds, is_fixed, may_be_windows, outermost, output_dtype, replace_output, window_rows

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


def _row_bytes(value: Value, axis: int) -> int:
    """Return the most bytes of a row along an axis in any layout, padding included."""
    sizes = [ix.bounds(size)[1] for at, size in enumerate(value.shape) if at != axis and size != 1]
    return math.prod(-(-size // _PADDING) * _PADDING for size in sizes) * (value.storage or value.dtype).itemsize


@record(slots=False)
class Split:
    """A node that is computed in parts of ``rows`` rows of ``extent``; ``build`` gives its result from the spans."""

    extent: int  #: rows of the result, at most
    rows: int
    build: Callable[[Sequence[Span]], Value]

    @property
    def spans(self) -> list[Span]:
        """The rows of each part, of as many rows as there may be."""
        return [(start, min(start + self.rows, self.extent)) for start in range(0, self.extent, self.rows)]


class Splits:
    """The ways to compute nodes of one graph in parts."""

    def __init__(self, graph: Graph, large: LargeOperands, parts: Parts, whole: Collection[str]) -> None:
        """Take the outputs that stay ``whole`` by their names."""
        self._graph = graph
        self._large = large
        self._parts = parts
        self._whole = whole

    def is_window(self, value: Value) -> bool:
        """Return whether a value is an output that several are to replace.

        One of open size whose readers would gather what they read from all of them stays whole: a cache that attention
        reads has most runs in a binding.
        """
        if self._large.of_constants or not may_be_windows(self._graph, value, self._large.target, self._whole):
            return False
        return is_fixed(value) or self._is_read_by_rows(value, outermost(value.shape))

    def _is_read_by_rows(self, value: Value, axis: int) -> bool:
        """Return whether what reads a value computes rows of its rows along ``axis``, or reduces them, up to what a
        kernel can bind, and multiplies none.
        """
        for node in value.users:
            if operator_key(node) == "loom.Reduce" and axis in node.attributes.axes:
                continue
            if len(node.outputs) != 1 or not (registry.of(node).is_map or operator_key(node) == "loom.Reduce"):
                return False
            axes = [at for at in range(node.output.rank) if _rows_in(node, at, value) == axis]
            if not axes:
                return False
            if exceeds(node.output, self._large.target) and not self._is_read_by_rows(node.output, axes[0]):
                return False
        return True

    def ways(self, builder: GraphBuilder, node: Node) -> Sequence[Split | None]:
        """Return the ways to compute a node in parts; None for those that split too little."""
        result = node.output
        if self.is_window(result):
            return [self._as_windows(builder, node)]
        if exceeds(result, self._large.target):
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

    def _by_rows(self, builder: GraphBuilder, node: Node, axis: int) -> Split | None:
        rows = operand_rows(node, axis)
        if rows is None:
            return None

        def build(spans: Sequence[Span]) -> Value:
            parts = [self._parts.rows_of(node, axis, start, stop) for start, stop in spans]
            return self._parts.joined(builder, parts, axis, spans)

        return self._split(node, list(rows.items()), node.output.shape[axis], build)

    def _as_windows(self, builder: GraphBuilder, node: Node) -> Split | None:
        """Split an output of the graph along its outermost axis."""
        axis = outermost(node.output.shape)
        rows = rows_read(node, axis)
        if rows is None:
            return None
        dtype = output_dtype(self._graph, node.output)
        multiple, most = window_rows(node.output.shape, dtype, self._large.target)

        def build(spans: Sequence[Span]) -> Value:
            parts = [_computed(builder, self._parts.rows_of(node, axis, start, stop)) for start, stop in spans]
            replace_output(self._graph, node.output, parts, [start for start, _ in spans])
            return self._parts.joined(builder, parts, axis, spans)

        multiples = (math.lcm(_MULTIPLES[0], multiple), multiple)
        selects = operator_key(node) == "Gather" and self._by_index(builder, node) is not None
        left = self._large.loaded(node.operand(0)) if selects else frozenset[Value]()
        return self._split(node, list(rows.items()), node.output.shape[axis], build, most, multiples, left)

    def _by_terms(self, builder: GraphBuilder, node: Node) -> Split | None:
        left, right = node.operand(0), node.operand(1)

        def build(spans: Sequence[Span]) -> Value:
            products = [
                builder.op(
                    "MatMul",
                    self._parts.part(left, left.rank - 1, start, stop),
                    self._parts.part(right, right.rank - 2, start, stop),
                    domain="loom",
                )
                for start, stop in spans
            ]
            return _chain(builder, _COMBINE["sum"], products)

        read = [(left, RowAxis(left.rank - 1)), (right, RowAxis(right.rank - 2))]
        return None if left is right else self._split(node, read, left.shape[-1], build)

    def _by_reduced(self, builder: GraphBuilder, node: Node, axis: int) -> Split | None:
        value, attributes = node.operand(0), node.attributes

        def build(spans: Sequence[Span]) -> Value:
            parts = [self._parts.part(value, axis, start, stop) for start, stop in spans]
            reduced = [builder.emit(registry.of(node), [part], attributes)[0] for part in parts]
            return _chain(builder, _COMBINE[attributes.kind], reduced)

        return self._split(node, [(value, RowAxis(axis))], value.shape[axis], build)

    def _by_index(self, builder: GraphBuilder, node: Node) -> Split | None:
        """Split along the axis of the indices; those out of range are clamped, as they are without parts."""
        data, axis = node.operand(0), node.attributes.axis % node.operand(0).rank
        extent = data.shape[axis]

        def number(value: ix.Dim) -> Value:
            return builder.op("Dimensions", domain="loom", elements=(value,), shape=(), dtype=INT32)

        def limited(index: Value, start: int, stop: int) -> Value:
            """Return the index in a part.  A selection clamps what it reads; known indices must be in range."""
            index = builder.op("Sub", index, number(start)) if start else index
            if index.static_value is None:
                return index
            index = builder.op("Maximum", index, number(0), domain="loom")
            return builder.op("Minimum", index, number(stop - start - 1), domain="loom")

        def build(spans: Sequence[Span]) -> Value:
            indices = in_type(builder, node.operand(1), INT32)  # of which kernels use no more bits
            negative = builder.op("Less", indices, number(0))
            wrapped = builder.op("Add", indices, number(extent))
            index = builder.op("Where", negative, wrapped, indices)
            index = builder.op("Maximum", index, number(0), domain="loom")
            if not isinstance(extent, int):  # or the part that is chosen may be empty
                index = builder.op("Minimum", index, number(ix.add(extent, -1)), domain="loom")
            row = view(builder, index, (*indices.shape, *(1,) * (data.rank - axis - 1)))
            parts = [
                builder.op("Gather", self._parts.part(data, axis, *span), limited(index, *span), axis=axis)
                for span in spans
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
        build: Callable[[Sequence[Span]], Value],
        most: int | None = None,
        multiples: Sequence[int] = _MULTIPLES,
        left: Set[Value] = frozenset(),
    ) -> Split | None:
        """Return the split of ``node`` along an axis with ``extent`` elements, of which operands have the row axes in
        ``read``; None unless each part of every large tensor can be bound, but for those ``left`` to splits of parts.

        A part has at most ``most`` rows, and a multiple of one of ``multiples``, the first that is possible.
        """
        large = self._large.loaded_for(node.output)
        covered: dict[Value, RowAxis] = {}
        if not all(self._follow(*each, covered) for each in read) or not large <= covered.keys() | left:
            return None
        rows = ix.bounds(extent)[1]
        most = rows if most is None else most
        begin = 1
        for value, at in covered.items():
            if value in self._large.loaded(value):
                bindable = int(self._large.target.largest_tensor // _row_bytes(value, at.axis))
                if self._parts.is_open_input(value, at.axis):
                    multiple = window_rows(value.shape, value.storage or value.dtype, self._large.target)[0]
                    begin = math.lcm(begin, (multiple / at.scale).numerator)
                    bindable -= multiple if at.offset else 0  # its window begins before the part's first row
                most = min(most, int(bindable / at.scale))
        # parts begin at whole rows of operands and where windows may, and if possible at whole blocks
        whole = math.lcm(begin, *(at.scale.denominator for at in covered.values() if not at.blocks))
        blocks = math.lcm(begin, *(at.scale.denominator for at in covered.values()))
        for step in (math.lcm(multiple, unit) for unit in (blocks, whole) for multiple in multiples):
            if most >= step:
                return Split(rows, most // step * step, build)
        return None

    def _follow(self, value: Value, at: RowAxis, covered: dict[Value, RowAxis]) -> bool:
        """Follow a row axis up to the tensors beyond the limit, and note them in ``covered``; return whether all that
        are loaded for ``value`` are split.
        """
        if covered.setdefault(value, at) != at:
            return False
        if self._parts.is_open_input(value, at.axis):
            return True
        if at.offset is None:
            return not self._large.loaded(value)
        if value.is_constant and self._large.loaded(value):
            return ix.product(value.shape[: at.axis]) == 1
        producer, rows = value.producer, self._parts.rows_above(value, at.axis)
        if producer is None or rows is None:
            return not self._large.loaded(value)
        for operand in operands(value):
            if operand in rows:
                row = rows[operand]
                if at.blocks and row.scale.denominator != 1 and operator_key(producer) != "loom.Unpack":
                    return False
                offset = None if None in (row.offset, at.offset) else (row.offset or 0) + (at.offset or 0)
                above = RowAxis(row.axis, row.scale * at.scale, at.blocks or row.blocks, offset)
                if not self._follow(operand, above, covered):
                    return False
            elif self._large.loaded(operand):
                return False
        return True


def _computed(builder: GraphBuilder, value: Value) -> Value:
    """Return a value that an output of its own can be: a copy of one that others read or that no node computes."""
    if value.producer is not None and not value.uses:
        return value
    return builder.op("Fit", value, domain="loom", shape=value.shape)


def _rows_in(node: Node, axis: int, value: Value) -> int | None:
    """Return the axis of an operand along which there are rows for those of the result along ``axis``; None: none."""
    rows = rows_read(node, axis)
    return None if rows is None or value not in rows else rows[value].axis


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
