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

What is too large :mod:`.large_operands` knows, the ways to compute a node in parts are those of :mod:`.large_splits`,
and :mod:`.large_parts` makes the parts.
"""

from __future__ import annotations

from collections.abc import Collection

from ..compilation import Compilation
from ..ir.graph import Graph, Node
from ..remarks import Remark
from ..rewriting.builder import GraphBuilder
from .large_operands import LargeOperands, is_attended
from .large_parts import Parts
from .large_ports import divide_inputs, exceeds, is_fixed, may_be_windows, remove_unread
from .large_splits import Splits


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


class _Division:
    """The rewrites of one graph."""

    def __init__(self, graph: Graph, compilation: Compilation, whole: Collection[str], *, of_constants: bool) -> None:
        """Divide tensors that depend on constants alone, or else those of the run, inputs and outputs among them."""
        self._graph = graph
        self._whole = whole
        self._compilation = compilation
        self._large = LargeOperands(graph, compilation.target, of_constants=of_constants)
        self._splits = Splits(graph, self._large, Parts(graph, compilation, self._large, whole), whole)

    def run(self) -> int:
        """Rewrite the graph; return the number of changes."""
        count = 0
        if not self._large.of_constants:
            count = divide_inputs(self._graph, self._compilation.target, self._whole)
        for node in self._graph.nodes:  # and those that are made of it, which may have a large operand left
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
        split = next((split for split in self._splits.ways(builder, node) if split is not None), None)
        if split is None:
            return False
        self._graph.replace(node.output, split.build(split.spans))
        if self._compilation.remarks is not None:
            self._compilation.remarks.append(Remark("large-tensors", node.origins, node.op))
        return True

    def _is_root(self, node: Node) -> bool:
        """Return whether the result is stored, or small, and computed from a tensor that is too large."""
        if self._splits.is_window(node.output):
            return True
        if exceeds(node.output, self._compilation.target):
            return False
        large = self._large.loaded_for(node.output)
        return any(map(is_fixed, large)) or (bool(large) and not is_attended(node.output))
