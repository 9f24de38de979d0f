"""Give constant operands of kernels the layout that the kernel reads best.

The layout of a weight is a function of its consumer's kind and of the weight's own shape, never of the input's shape,
so plans for different shapes share it.  The Relayout nodes made here run once, when weights are made.
"""

from __future__ import annotations

from dataclasses import replace

from .. import index as ix
from ..builder import GraphBuilder
from ..fusion import constant_values
from ..ir import Graph, Value
from ..kernels.families import weight_layouts
from ..layout import Layout, Shape
from ..ops.registry import registry


def without_idle_padding(layout: Layout, shape: Shape) -> Layout:
    """The same memory without the padding of axes that need none: a weight that lies so already is not copied."""
    needed = tuple((axis, multiple) for axis, multiple in layout.padding if ix.modulo(shape[axis], multiple) != 0)
    return replace(layout, padding=needed)


def relayout_weights(graph: Graph) -> None:
    """Insert ``loom.Relayout`` before constant operands, once per (value, layout)."""
    constant = constant_values(graph)
    made: dict[tuple[Value, Layout], Value] = {}
    for node in list(graph.nodes):
        family = registry.of(node).family
        if family is None:
            continue
        for position, layout in weight_layouts(family, node).items():
            value = node.operand(position)
            if value not in constant or without_idle_padding(layout, value.shape) == value.layout:
                continue
            key = (value, layout)
            if key not in made:
                builder = GraphBuilder(graph, value.producer.origins if value.producer else node.origins)
                made[key] = builder.op("Relayout", value, domain="loom", layout=layout)
                made[key].layout = layout
            graph.set_input(node, position, made[key])
    graph.sort()
