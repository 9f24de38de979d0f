"""Softmax and the matrix product behind it become one operator, ``loom.SoftmaxProduct``.

The pattern is that of expanded graphs, however an exporter wrote it (Softmax as an operator or as its five parts), and
that of the attention operators, whose rows without any key give zeros::

    powers = Exp(scores - Max(ReduceMax(scores), lowest)?)        over the last axis
    result = (powers / total) @ values                            total = ReduceSum(powers), or 1 where that is 0

with views of the batch axes and changes of the float type allowed before the last product.  Scores may be anything;
:mod:`compiler.attention` looks for the product that they come from.  Where they are ``Where(mask, scores, -infinity)``
and the mask says a range of keys for each query, the operator takes the range in place of the mask.

Few queries of heads that share keys and values become rows of one head, so that keys and values are read once for all.
"""

from __future__ import annotations

import math

import numpy as np

from ...runtime.plan.record import record
from ..ir.dataflow import operands, reachable
from ..ir.graph import Node, Shape, Value
from ..ops.registry import registry
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, Match, Rule
from ..symbolic import polynomial as ix
from ..target import Target
from ..tuning.attention_tiles import FEW_ROWS, AttentionProblem, attention_parts, attention_reason
from .large_tensors.ports import exceeds, is_fixed
from .patterns import is_filled_with, produced_by, static_numbers, view

#: Keys of a cache for each query from which most of them are taken for spare capacity
SPARE_KEYS = 4
#: Head sizes that a thread group can hold
LARGEST_HEAD = 256


@record(slots=False)
class _Softmax:
    """The parts of a softmax over the last axis; ``nodes`` from the division to the reduction of the scores."""

    scores: Value
    nodes: tuple[Node, ...]
    zero_rows: bool


def _last_axis(node: Node) -> bool:
    return node.attributes.axes == (node.operand(0).rank - 1,) and node.attributes.keepdims


def _reduction(value: Value | None, *kinds: str) -> Node | None:
    node = produced_by(value, "loom.Reduce")
    return node if node is not None and node.attributes.kind in kinds and _last_axis(node) else None


def _division(weights: Value) -> tuple[list[Node], Value, Value] | None:
    """Match ``powers / divisor`` or a product with the reciprocal; return its nodes, ``powers`` and ``divisor``."""
    node = produced_by(weights, "Div")
    if node is not None:
        return [node], node.operand(0), node.operand(1)
    node = produced_by(weights, "Mul")
    if node is None:
        return None
    for powers, factor in ((node.operand(0), node.operand(1)), (node.operand(1), node.operand(0))):
        reciprocal = produced_by(factor, "Reciprocal")
        if reciprocal is not None:
            return [node, reciprocal], powers, reciprocal.operand(0)
    return None


def _total(divisor: Value) -> tuple[Node, list[Node], bool] | None:
    """Match the sum behind a divisor; return it, the nodes in between, and whether a sum of zero is replaced by one."""
    plain = _reduction(divisor, "sum")
    if plain is not None:
        return plain, [], False
    choice = produced_by(divisor, "Where")
    if choice is None or not is_filled_with(choice.operand(1), 1.0):
        return None
    test, plain = produced_by(choice.operand(0), "Equal"), _reduction(choice.operand(2), "sum")
    if test is None or plain is None or test.operand(0) is not plain.output or not is_filled_with(test.operand(1), 0.0):
        return None
    return plain, [choice, test], True


def _softmax(weights: Value) -> _Softmax | None:
    division = _division(weights)
    total = None if division is None else _total(division[2])
    if division is None or total is None:
        return None
    divided, powers, _ = division
    summed, between, zero_rows = total
    exponential = produced_by(powers, "Exp")
    difference = None if exponential is None else produced_by(exponential.operand(0), "Sub")
    if exponential is None or difference is None or summed.operand(0) is not powers:
        return None
    highest = difference.operand(1)
    bounded = produced_by(highest, "loom.Maximum")
    if bounded is not None:
        low = static_numbers(bounded.operand(1))
        if low is None or low.size != 1 or not low.reshape(-1)[0] < -1e4:
            return None
        highest = bounded.operand(0)
    largest = _reduction(highest, "max", "max_number")
    if largest is None or largest.operand(0) is not difference.operand(0):
        return None
    if zero_rows != (bounded is not None):  # a row of -infinity alone would be NaN before it is divided
        return None
    nodes = [*divided, exponential, difference, largest, summed, *between, *([bounded] if bounded else [])]
    return _Softmax(difference.operand(0), tuple(nodes), zero_rows)


def _match(node: Node, facts: GraphFacts) -> Match | None:
    weights = node.operand(0)
    between: list[Node] = []
    while (step := produced_by(weights, "loom.View", "Cast")) is not None:
        operand = step.operand(0)
        if step.op == "View" and (operand.rank < 2 or operand.shape[-1] != weights.shape[-1]):
            return None
        if not operand.dtype.is_float or not weights.dtype.is_float:
            return None
        between.append(step)
        weights = operand
    softmax = _softmax(weights)
    if softmax is None or not node.output.dtype.is_float:
        return None
    return Match((node, *between, *softmax.nodes), {"softmax": softmax, "shape": node.operand(0).shape})


def _check(target: Target, match: Match, facts: GraphFacts) -> str | None:
    root = match.root
    inside = set(match.nodes)
    for member in match.nodes[1:]:
        value = member.output
        if facts.is_output(value) or any(user not in inside for user, _ in value.uses):
            return "the weights of the softmax, or parts of them, are needed too"
    if facts.is_constant(root.output):
        return "it depends on constants alone"
    size = root.output.shape[-1]
    if isinstance(size, ix.Index) or size > LARGEST_HEAD:
        return f"values have more than {LARGEST_HEAD} elements, or a dynamic number"
    if root.output.dtype.packing > 1 and size % 4:
        return f"two threads would write one word of a {root.output.dtype} result"
    batch = ix.bounds(ix.product(list(root.output.shape[:-2])))[1]
    if batch > target.limit("max-compute-workgroups-per-dimension"):
        return "there are more heads than a dispatch has workgroups in a dimension"
    if exceeds(match["softmax"].scores, target) and not _has_product(match["softmax"].scores):
        return "the scores are in memory, and larger than a binding"
    values = root.operand(1)
    if is_fixed(values) and ix.number(values.elements) * _element_bytes(values) > target.largest_tensor:
        return "the values are larger than a binding"
    *heads, queries, keys = (ix.bounds(extent)[1] for extent in match["shape"])
    if _attended(match["softmax"].scores, match["shape"]) is not None and keys >= SPARE_KEYS * queries:
        return None  # most of the keys are spare capacity: separate kernels compute all of them
    return attention_reason(target, queries, 4 * math.prod((*heads, queries, keys)))


def _has_product(scores: Value) -> bool:
    """Return whether a kernel may compute ``scores`` from a matrix product, so that it need not load them."""

    def above(value: Value) -> list[Value]:
        node = value.producer
        return operands(value) if node is not None and registry.of(node).is_map else []

    return any(produced_by(value, "loom.MatMul") is not None for value in reachable([scores], above))


def _attended(scores: Value, shape: Shape) -> Node | None:
    """Return the node that masks ``scores`` by a range of keys for each query, if ``shape`` has its batch first."""
    masked = produced_by(scores, "Where")
    mask = None if masked is None else produced_by(masked.operand(0), "loom.AttendedKeys")
    if masked is None or mask is None or not is_filled_with(masked.operand(2), -np.inf):
        return None
    sizes = mask.attributes
    axes = ((shape[0], scores.shape[0]), (shape[-2], scores.shape[-2]), (sizes.queries, shape[-2]))
    is_same = masked.operand(1).shape == scores.shape and all(one == other for one, other in axes)
    return masked if is_same and sizes.batch in (1, shape[0]) else None


def _heads_of_values(values: Value, result: Value) -> int:
    """Return how many heads of queries share the same values; 1 for more queries than a workgroup takes as rows."""
    if result.rank < 3 or values.rank != result.rank or values.shape[-3] != 1:
        return 1
    heads, queries = result.shape[-3], result.shape[-2]
    return heads if isinstance(heads, int) and ix.bounds(queries)[1] <= FEW_ROWS else 1


def _rewrite(target: Target, builder: GraphBuilder, match: Match) -> Value:
    softmax: _Softmax = match["softmax"]
    scores, values, result = softmax.scores, match.root.operand(1), match.root.output
    masked, ranges, attributes = _attended(scores, match["shape"]), [], {}
    if masked is not None:
        mask = masked.operand(0).producer
        assert mask is not None
        scores, ranges, attributes = masked.operand(1), list(mask.inputs), {"attended": mask.attributes}
    scores = view(builder, scores, match["shape"])
    groups = _heads_of_values(values, result)
    if groups > 1:
        *outer, _, queries, _ = result.shape
        scores = view(builder, scores, (*outer, ix.multiply(groups, queries), scores.shape[-1]))
        values = view(builder, values, (*values.shape[:-3], *values.shape[-2:]))
    *heads, rows, size = (*scores.shape[:-1], ix.number(result.shape[-1]))
    batch, m, n = (ix.bounds(extent)[1] for extent in (ix.product(heads), rows, values.shape[-2]))
    parts = attention_parts(target, AttentionProblem(batch, m, n, size, size, groups, _element_bytes(values)))
    attributes |= {"zero_rows": softmax.zero_rows, "parts": parts, "groups": groups}
    output = builder.op("SoftmaxProduct", scores, values, *ranges, domain="loom", **attributes)
    if parts > 1:
        merged = {"size": size, "dtype": result.dtype.name, "zero_rows": softmax.zero_rows, "keys": values.shape[-2]}
        output = builder.op("MergeParts", output, domain="loom", **merged)
    return view(builder, output, result.shape)


def _element_bytes(values: Value) -> int:
    """Return the bytes of an element of ``values`` in memory: views of what the file declares are stored so."""
    while (step := produced_by(values, "loom.View", "Transpose", "Cast")) is not None and values.storage is None:
        values = step.operand(0)
    return (values.storage or values.dtype).itemsize


def rules(target: Target) -> tuple[Rule, ...]:
    """Return the fusion rules for one target; they join nothing where separate kernels are faster."""
    return (
        Rule(
            "softmax-product",
            frozenset({"loom.MatMul"}),
            _match,
            lambda builder, match: _rewrite(target, builder, match),
            lambda match, facts: _check(target, match, facts),
        ),
    )
