"""The matrix product that the scores of an attention come from, so that one kernel computes both.

A ``loom.SoftmaxProduct`` reads scores.  Where they are an elementwise function of one matrix product (a scale, a mask,
a soft cap, views of the batch axes between), and nothing else reads the values between, the kernel computes the product
itself, a tile of keys at a time: :func:`find_scores` gives the nodes, or why not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.coordinates import broadcast_coordinates
from ..ir.dataflow import reachable
from ..ir.graph import Node, Shape, Value
from ..ops.registry import Registry
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.polynomial import Dim
from .family import family_of
from .groups import Scores

#: Nodes between a product and the softmax that are looked at
SEARCHED = 64


def find_scores(
    anchor: Node, rank: Mapping[Node, int], outputs: set[Value], taken: Mapping[Node, object], operators: Registry
) -> Scores | tuple[Node, str]:
    """Find the product that computes the scores of ``anchor``, and the nodes between.

    Returns the nearest product and the reason if none can be fused, or ``anchor`` and the reason if there is no
    product. ``taken`` are nodes that other kernels compute.
    """
    refused: tuple[Node, str] = (anchor, "its scores do not come from a matrix product")
    for product, between in _products(anchor, operators):
        nodes = (product, *sorted(between, key=rank.__getitem__))
        reason = _refusal(anchor, product, nodes, outputs, taken, operators)
        if reason is None:
            return Scores(product, nodes)
        if refused[0] is anchor:
            refused = (product, reason)
    return refused


def _products(anchor: Node, operators: Registry) -> list[tuple[Node, set[Node]]]:
    """Return the products that reach the scores through elementwise nodes, nearest first, with the nodes on the way."""
    below: dict[Node, set[Node]] = {}  #: a producer -> map nodes that lead from it to the scores
    products: list[Node] = []
    start = anchor.operand(0).producer
    pending: list[tuple[Node, Node | None]] = [] if start is None else [(start, None)]
    users: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    while pending and len(seen) < SEARCHED:
        node, user = pending.pop(0)
        if user is not None:
            users.setdefault(node, []).append(user)
        if node in seen:
            continue
        seen.add(node)
        definition, family = operators.of(node), family_of(node)
        if family is not None and family.gives_scores:
            products.append(node)
        elif definition.is_map:
            operands = [value.producer for value in definition.data_inputs(node)]
            pending += [(producer, node) for producer in operands if producer is not None]
    for product in products:
        below[product] = reachable(users.get(product, ()), lambda node: users.get(node, ()))
    return [(product, below[product]) for product in products]


def _refusal(
    anchor: Node,
    product: Node,
    nodes: tuple[Node, ...],
    outputs: set[Value],
    taken: Mapping[Node, object],
    operators: Registry,
) -> str | None:
    inside = {*nodes, anchor}
    for node in nodes:
        if node in taken or len(node.outputs) != 1:
            return "another kernel computes the scores"
        if node.output in outputs or any(user not in inside for user, _ in node.output.uses):
            return "the scores are needed elsewhere too"
    if any(user is anchor and position != 0 for node in nodes for user, position in node.output.uses):
        return "the scores are the values too"
    if not product.output.dtype.is_float:
        return "the scores are no floats"
    scores = anchor.operand(0)
    names = tuple(ix.variable(f"s{axis}", 0, max(ix.bounds(size)[1] - 1, 0)) for axis, size in enumerate(scores.shape))
    coordinates = product_coordinates(scores, names, product, set(nodes), operators)
    if coordinates is None:
        return "the scores read several elements of the product"
    query, key = f"s{scores.rank - 2}", f"s{scores.rank - 1}"
    left, right = product.operand(0), product.operand(1)
    if coordinates[-1] != names[-1] or any(key in ix.variables(axis) for axis in coordinates[:-1]):
        return "the keys are not the columns of the product"
    batch = broadcast_coordinates(coordinates[:-2], product.output.shape[:-2], right.shape[:-2])
    if any(query in ix.variables(axis) for axis in batch):
        return "each query has keys of its own"
    if isinstance(left.shape[-1], ix.Index) or left.shape[-1] > 256:
        return "queries have more than 256 elements, or a dynamic number"
    return None


def product_coordinates(
    value: Value, coordinates: Sequence[Dim], product: Node, between: set[Node], operators: Registry
) -> Shape | None:
    """Return where the element of ``value`` at ``coordinates`` reads ``product``; None if it reads several elements."""
    places: set[Shape] = set()
    seen: set[tuple[Value, Shape]] = set()

    def visit(current: Value, at: Shape) -> None:
        if (current, at) in seen:
            return
        seen.add((current, at))
        node = current.producer
        if node is product:
            places.add(at)
            return
        if node is None or node not in between:
            return
        definition = operators.of(node)
        if definition.element is not None:
            for operand in node.inputs:
                if operand is not None:
                    visit(operand, broadcast_coordinates(at, current.shape, operand.shape))
            return
        assert definition.gather is not None

        def read(position: int, coordinates: Sequence[Dim]) -> Expr:
            operand = node.operand(position)
            visit(operand, tuple(coordinates))
            return ex.register("element", operand.dtype.compute)

        definition.gather(node, at, read)

    visit(value, tuple(coordinates))
    return places.pop() if len(places) == 1 else None
