"""Constants that a product reads in an order of its own and of which other kernels select rows: tied embeddings.

The copy in the product's order serves both, and the constant itself is no weight of the plan then.  A selection finds
its elements wherever they are, and reads few; the product reads all of them, so the order is its.  Where products of
other stages of a program multiply by the transpose of a matrix, a stage makes the copy for its selections alone: equal
weights of all stages are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from ..fusion import constant_values
from ..fusion.dequant_fusion import narrow_values
from ..ir.graph import Graph, Node, Value
from ..kernels.products.gemm import constant_layout
from ..ops.onnx.indexing import gather_axis
from ..ops.onnx.views import permutation
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import operator_key
from .dead_code import remove_dead_code
from .weights import WeightForms


def share_tied_weights(graph: Graph) -> int:
    """Let selections read the copies of constants that other kernels read; return how many constants have one form
    fewer.
    """
    constant = constant_values(graph)
    narrow = narrow_values(graph, constant)
    stored = constant - narrow - set(graph.outputs)
    count = 0
    for value in [each for each in graph.values() if each in stored]:
        moved, order = next(_copies(value, tuple(range(value.rank)), constant, narrow), (None, (1, 0)))
        if moved is None and not (value.is_constant and value.rank == 2 and value.name in graph.transposed):
            continue
        readers = [(node, at) for node, at in value.uses if not _is_move(node, constant)]
        if readers and all(at == 0 and _may_read(node, order, constant, narrow) for node, at in readers):
            moved = _factor(graph, value) if moved is None else moved
            for node, at in readers:
                if node.output in constant:
                    graph.set_input(node, at, moved)
                else:
                    _select(graph, node, moved, order)
            count += 1
    if count:
        graph.sort()
        remove_dead_code(graph)
    return count


def _copies(
    value: Value, order: tuple[int, ...], constant: Set[Value], narrow: Set[Value]
) -> Iterator[tuple[Value, tuple[int, ...]]]:
    """Yield the copies of a constant in other orders that kernels of the run load, with the axis of the constant that
    each of their axes is; ``order`` has those of ``value``.
    """
    for node in value.users:
        if _is_move(node, constant) and node.output not in narrow:
            moved = tuple(order[axis] for axis in permutation(node)) if node.op == "Transpose" else order
            if any(user.outputs[0] not in constant or user.outputs[0] in narrow for user in node.output.users):
                yield node.output, moved
            yield from _copies(node.output, moved, constant, narrow)


def _is_move(node: Node, constant: Set[Value]) -> bool:
    """Return whether a node moves all elements of a constant, and changes none."""
    return operator_key(node) in ("Transpose", "loom.Relayout") and node.output in constant


def _factor(graph: Graph, value: Value) -> Value:
    """Return the transpose of a matrix in the layout in which a product of another stage reads it."""
    transposed = GraphBuilder(graph, value.user.origins).op("Transpose", value, perm=(1, 0))
    return WeightForms(graph, set()).with_layout(transposed, constant_layout(2))


def _may_read(node: Node, order: tuple[int, ...], constant: Set[Value], narrow: Set[Value]) -> bool:
    """Return whether a node selects elements of what it reads first, or is computed where that is done of its result,
    which has the constant's axes in their order.
    """
    if node.output not in constant:
        return operator_key(node) == "Gather"
    in_order = order == tuple(range(len(order)))
    users = node.output.users
    return in_order and node.output in narrow and all(_may_read(user, order, constant, narrow) for user in users)


def _select(graph: Graph, node: Node, moved: Value, order: tuple[int, ...]) -> None:
    """Let a Gather read a copy with its axes in another order."""
    axis, indices = gather_axis(node), node.operand(1)
    at = order.index(axis)
    builder = GraphBuilder(graph, node.origins)
    selected = builder.op("Gather", moved, indices, axis=at)
    # the axes of both results: those of the constant by their numbers, those of the indices behind them
    positions = [moved.rank + number for number in range(indices.rank)]
    have = [*order[:at], *positions, *order[at + 1 :]]
    want = [*range(axis), *positions, *range(axis + 1, moved.rank)]
    graph.replace(node.output, builder.op("Transpose", selected, perm=tuple(map(have.index, want))))
