"""The rewrite of a graph with tensors beyond what a device binds: first of those of the run, then of constants."""

from __future__ import annotations

from collections.abc import Collection

from ...compilation import Compilation
from ...ir.graph import Graph, Node
from ...remarks import Remark
from ...rewriting.builder import GraphBuilder
from .operands import LargeOperands, is_attended
from .parts import Parts
from .ports import divide_inputs, exceeds, is_fixed, may_be_windows, remove_unread
from .splits import Splits


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
