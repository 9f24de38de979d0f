"""Give constant operands of kernels the layout that the kernel reads best.

The layout of a weight is a function of its consumer's kind and of the weight's own shape, never of the input's shape,
so plans for different shapes share it.  The Relayout nodes made here run once, when weights are made.

Of a narrow weight (:mod:`.dequant_fusion`) the constants that it is computed from get the layout, so that they
stay narrow.
"""

from __future__ import annotations

from dataclasses import replace

from ..fusion import constant_values
from ..fusion.dequant_fusion import is_cheap, narrow_values
from ..ir.graph import Graph, Value
from ..ir.layout import Layout, Shape
from ..kernels.family import family_of
from ..ops.onnx.views import permutation
from ..ops.registry import registry
from ..rewriting.builder import GraphBuilder
from ..symbolic import polynomial as ix
from .dead_code import remove_dead_code


def without_idle_padding(layout: Layout, shape: Shape) -> Layout:
    """Return the same memory layout without padding of axes that need none, so that a matching weight is not copied."""
    needed = tuple((axis, multiple) for axis, multiple in layout.padding if ix.modulo(shape[axis], multiple) != 0)
    return replace(layout, padding=needed)


def relayout_weights(graph: Graph) -> int:
    """Insert ``loom.Relayout`` before constant operands, once for each value and layout; return the count."""
    changed = 0
    constant = constant_values(graph)
    weights = WeightForms(graph, narrow_values(graph, constant))
    for node in list(graph.nodes):
        family = family_of(node)
        if family is None:
            continue
        for position, layout in family.weight_layouts(node).items():
            value = node.operand(position)
            if value in constant:
                laid_out = weights.with_layout(value, layout)
                changed += laid_out is not value
                graph.set_input(node, position, laid_out)
    graph.sort()
    remove_dead_code(graph)
    return changed


class WeightForms:
    """Constant values in other layouts, each made once."""

    def __init__(self, graph: Graph, narrow: set[Value]) -> None:
        self.graph = graph
        self.narrow = narrow
        self.relaid: dict[tuple[Value, Layout], Value] = {}

    def with_layout(self, value: Value, layout: Layout) -> Value:
        """Return ``value`` stored in ``layout``: the value itself if it already is, else a copy or recomputation."""
        if without_idle_padding(layout, value.shape) == value.layout:
            return value
        key = (value, layout)
        if key not in self.relaid:
            self.relaid[key] = self._narrow(value, layout) if value in self.narrow else self._moved(value, layout)
        return self.relaid[key]

    def _builder(self, value: Value) -> GraphBuilder:
        return GraphBuilder(self.graph, value.producer.origins if value.producer else value.users[0].origins)

    def _moved(self, value: Value, layout: Layout) -> Value:
        transformed = self._builder(value).op("Relayout", value, domain="loom", layout=layout)
        transformed.layout = layout
        return transformed

    def _narrow(self, value: Value, layout: Layout) -> Value:
        """Rebuild the computation of ``value`` from operands whose memory layout matches that of the result."""
        node = value.producer
        assert node is not None and is_cheap(node)
        if node.op == "Transpose":
            order = permutation(node)
            padding = tuple(sorted((order[axis], multiple) for axis, multiple in layout.padding))
            below = Layout(tuple(order[axis] for axis in layout.order), padding)
            operands = [self.with_layout(node.operand(0), below)]
        elif registry.of(node).element is not None:
            operands = [
                self.with_layout(operand, layout) if operand.shape == value.shape else operand
                for operand in (each for each in node.inputs if each is not None)
            ]
        else:
            return value  # a view that mixes axes: its operand stays as it is
        if operands == list(node.inputs):
            return value
        return self._builder(value).emit(registry.of(node), operands, node.attributes)[0]
