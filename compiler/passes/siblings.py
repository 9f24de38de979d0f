"""Matrix products that read one activation become one product with their weights side by side.

Queries, keys and values are three products of one tensor, gates and their partners two.  One product of all reads the
activation once, fills a GPU better and is one call; its parts are slices, which consumers read in place.  Constant
addends of the columns join the same way, so that they stay in the product's kernel, and so does what quantises and
dequantises each result with parameters of its own.

What would be lost is the rest of the epilogues: arithmetic behind a part moves to its consumer.  So products join
where views alone follow each of them, or where two of them meet again (gated units: one product and one elementwise
kernel in place of two products).  Whether they do depends on no size of the activation: plans for different shapes
share the joined weight.

Packed weights join where views follow; products of them that meet share a kernel anyway
(:mod:`..kernels.products.packed_partners`).  Integer products of a dynamically quantised activation join with the
conversion to floats behind them, whose factor is that of the activation times constants of each weight.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from ...runtime.plan.dtypes import FLOAT32
from ...runtime.plan.record import record
from ..compilation import Compilation
from ..ir.dataflow import operands, preorder
from ..ir.graph import Graph, Node, Value
from ..ir.origins import merge_origins
from ..ops.math.nodes import part
from ..ops.registry import registry
from ..remarks import Remark
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, operator_key
from ..symbolic import polynomial as ix
from ..target import Target
from .constants import join_constants, may_join
from .large_tensors.ports import binding_bytes
from .patterns import is_narrow, produced_by, split_constant, static_numbers, varies_along, view

#: What joins behind products besides a constant that is added
_STEPS = frozenset({"loom.Quantize", "loom.Dequantize", "Add"})
#: Elementwise steps within which two products must meet
MEETING = 6


@record(slots=False)
class _Scale:
    """What makes floats of the columns of an integer product: one factor of the run times constants."""

    factor: Value
    numbers: np.ndarray


@record
class _Step:
    """A node that quantises, dequantises, or adds constants to what siblings compute: its operand ``position``, behind
    ``views`` of it."""

    node: Node
    position: int
    views: tuple[Node, ...]

    @property
    def kind(self) -> Hashable:
        """What steps that may join have in common."""
        node = self.node
        types = tuple(value and value.dtype.name for value in node.inputs)
        return node.op, node.domain, node.attributes, self.position, types, bool(self.views)


@record(slots=False)
class _Sibling:
    """A product, its scale if it is one of integers, the constant that is added to its columns (if any), all nodes of
    these from the product on, and the steps behind them that join, too."""

    product: Node
    scale: _Scale | None
    addend: Value | None
    nodes: tuple[Node, ...]
    steps: tuple[_Step, ...] = ()

    @property
    def last(self) -> Node:
        return self.steps[-1].node if self.steps else self.nodes[-1]

    @property
    def views(self) -> tuple[Node, ...]:
        """The views that follow all of the joined result, and lead to that of the last node."""
        return self.steps[-1].views if self.steps else ()

    @property
    def is_viewed(self) -> bool:
        """Whether views alone follow."""
        return bool(self.views) or all(registry.of(user).is_view for user in self.last.output.users)

    @property
    def columns(self) -> int:
        return ix.number(self.product.output.shape[-1])

    @property
    def is_packed(self) -> bool:
        return self.product.op == "PackedMatMul"

    @property
    def family(self) -> Hashable:
        """What products that may join have in common."""
        weight = self.product.operand(1)
        if not self.is_packed:
            factor = None if self.scale is None else self.scale.factor
            return (self.product.operand(0), *weight.shape[:-1], factor, self.addend is None)
        attributes, (scale, zero) = self.product.attributes, map(self.product.operand, (2, 3))
        number = None if zero.rank else repr(static_numbers(zero))
        form = attributes.bits, attributes.block, attributes.rounds_activations
        kind = *form, scale.dtype.name, scale.storage, zero.dtype.name, zero.storage, number
        return (self.product.operand(0), kind, weight.shape[1:], self.addend is None)


def join_siblings(graph: Graph, compilation: Compilation, operator: str = "MatMul") -> int:
    """Join products of one activation where that pays; return the number of products that are gone."""
    facts = GraphFacts(graph, compilation.limits)
    families: dict[Hashable, list[_Sibling]] = {}
    for node in graph.nodes:
        sibling = _sibling(node, facts) if node.op == operator and node.domain == "loom" else None
        if sibling is not None:
            families.setdefault(sibling.family, []).append(sibling)
    joined = 0
    for members in families.values():
        if len(members) < 2:
            continue
        members = _with_steps(members, facts)
        origins = merge_origins([node for each in members for node in each.nodes])
        refused = _refusal(members, facts, compilation.target)
        if compilation.remarks is not None:
            compilation.remarks.append(Remark("join-siblings", origins, "MatMul", refused))
        if refused is None:
            _join(GraphBuilder(graph, origins, compilation.limits), graph, members)
            joined += len(members) - 1
    if joined:
        graph.sort()
        graph.remove_dead()
    return joined


def _sibling(node: Node, facts: GraphFacts) -> _Sibling | None:
    """Match a product of an activation with a constant matrix, its scale if it is one of integers, and its bias."""
    left, right = node.operand(0), node.operand(1)
    sizes = (*right.shape, node.output.shape[-1])
    if facts.is_constant(left) or not facts.is_constant(right) or not all(isinstance(size, int) for size in sizes):
        return None
    if node.op == "MatMul" and any(size != 1 for size in right.shape[:-2]):
        return None
    nodes: tuple[Node, ...] = (node,)
    scale = None
    if not node.output.dtype.is_float:
        scaled = _scaled(node, facts)
        if scaled is None:
            return None
        nodes, scale = scaled
    result = nodes[-1].output
    if facts.single_use(result):
        user = result.user
        parts = split_constant(user, facts) if user.op == "Add" and not user.domain else None
        if parts is not None and parts[0] is result and len(user.outputs) == 1:
            whole = parts[1].shape[-1:] == (result.shape[-1],)
            if whole and varies_along(parts[1], result.rank, result.rank - 1):
                return _Sibling(node, scale, parts[1], (*nodes, user))
    return _Sibling(node, scale, None, nodes)


def _with_steps(members: list[_Sibling], facts: GraphFacts) -> list[_Sibling]:
    """Return the members with the steps that all of them have, if views alone follow these; else as they are."""
    extended = members
    while not any(each.views for each in extended):
        steps = [_step(each, facts) for each in extended]
        if any(step is None or steps[0] is None or step.kind != steps[0].kind for step in steps):
            break
        extended = [replace(each, steps=(*each.steps, step)) for each, step in zip(extended, steps) if step]
    return extended if all(each.is_viewed for each in extended) else members


def _step(sibling: _Sibling, facts: GraphFacts) -> _Step | None:
    """Return the step behind the last node of a sibling, if there is one; behind views it has one parameter each."""
    value, views = sibling.last.output, []
    while facts.single_use(value) and _only_moves(value.user):
        views.append(value.user)
        value = value.user.output
    if not facts.single_use(value) or operator_key(value.user) not in _STEPS or facts.is_output(value.user.output):
        return None
    node = value.user
    columns = 1 if views else sibling.columns
    others = [each for each in node.inputs if each is not None and each is not value]
    if node.output.shape != value.shape or not all(_is_parameter(each, columns) for each in others):
        return None
    return _Step(node, node.inputs.index(value), tuple(views))


def _only_moves(node: Node) -> bool:
    """Return whether the results of a node are all elements of its operand, in another order."""
    definition = registry.of(node)
    return definition.store_map is not None and definition.element is None


def _is_parameter(value: Value, columns: int) -> bool:
    """Return whether a value is one known number, or one for each of the columns."""
    return static_numbers(value) is not None and (value.elements == 1 or value.shape == (columns,))


def _scaled(node: Node, facts: GraphFacts) -> tuple[tuple[Node, ...], _Scale] | None:
    """Match an integer product, the cast of its result to float32, and the multiplication by its scale."""
    cast = node.output.user if facts.single_use(node.output) else None
    if cast is None or cast.op != "Cast" or cast.output.dtype is not FLOAT32 or not facts.single_use(cast.output):
        return None
    scaling = cast.output.user
    if scaling.op != "Mul" or scaling.domain or scaling.output.shape != node.output.shape:
        return None
    operands = [value for value in scaling.inputs if value is not cast.output]
    product = produced_by(operands[0], "Mul") if len(operands) == 1 else None
    if product is None:
        return None
    for factor, other in (product.inputs, product.inputs[::-1]):
        numbers = static_numbers(other)
        if (
            factor is not None
            and factor.elements == 1
            and numbers is not None
            and numbers.size in (1, node.output.shape[-1])
        ):
            return (node, cast, scaling), _Scale(factor, numbers.reshape(-1))
    return None


def _refusal(members: list[_Sibling], facts: GraphFacts, target: Target) -> str | None:
    for each in members:
        result = each.last.output
        if each.columns % 4:
            return "the parts would not begin at whole vectors"
        if facts.is_output(result):
            return "a result is an output of the model"
        reason = _weight_reason(each.product.operand(1), facts)
        if reason is not None:
            return reason
    weights = [each.product.operand(1) for each in members]
    if sum(map(_source_bytes, weights)) > target.largest_tensor:
        return "the weight of all would be larger than a binding"
    packed = members[0].is_packed
    if not packed and any(is_narrow(weight, weight.dtype.bits) for weight in weights) and not may_join(weights, -1):
        return "weights of fewer bits are dequantised in different ways"
    if all(each.is_viewed for each in members):
        return None
    if not packed and _meet(members):
        return None
    return "arithmetic behind a product is faster in its own kernel"


def _weight_reason(weight: Value, facts: GraphFacts) -> str | None:
    """Return why a weight must remain unchanged, or None."""
    for value in preorder([weight], operands):
        large = ix.bounds(value.elements)[1] > facts.limits.fold_elements
        if large and not facts.single_use(value):
            return "a weight is needed elsewhere too"
    return None


def _source_bytes(weight: Value) -> int:
    """Return the bytes of the largest constant that a weight is computed from."""
    return max(binding_bytes(value) for value in preorder([weight], operands) if value.is_constant)


def _meet(members: list[_Sibling]) -> bool:
    """Return whether two products reach one elementwise result through values that nothing else reads."""
    if len(members) != 2:
        return False
    one, other = (_ahead(each.last.output) for each in members)
    return not one.isdisjoint(other)


def _ahead(value: Value) -> set[Node]:
    """Return the elementwise nodes downstream of ``value``, up to the first step with several successors."""
    nodes: set[Node] = set()
    users = set(value.users)
    while len(nodes) < MEETING and users and all(registry.of(user).is_elementwise for user in users):
        nodes |= users
        following = {user for node in users for user in node.output.users} - nodes
        if len(users) > 1 and len(following) > 1:
            break
        users = following
    return nodes


def _join(builder: GraphBuilder, graph: Graph, members: list[_Sibling]) -> None:
    products = [each.product for each in members]
    whole = (_packed_product if members[0].is_packed else _plain_product)(builder, products)
    scales = [each.scale for each in members if each.scale is not None]
    if scales:
        numbers = [np.broadcast_to(scale.numbers, (each.columns,)) for each, scale in zip(members, scales, strict=True)]
        factor = builder.op("Mul", scales[0].factor, builder.constant(np.concatenate(numbers)))
        whole = builder.op("Mul", builder.op("Cast", whole, to=FLOAT32.onnx), factor)
    addends = [view(builder, each.addend, (each.columns,)) for each in members if each.addend is not None]
    if addends:
        whole = builder.op("Add", whole, builder.op("Concat", *addends, axis=0))
    for number in range(len(members[0].steps)):
        whole = _joined_step(builder, whole, members, number)
    storages = {each.last.output.storage for each in members}
    whole.name = ", ".join(each.last.output.name for each in members)
    whole.storage = storages.pop() if len(storages) == 1 else None
    start = 0
    for each in members:
        result = part(builder, whole, whole.rank - 1, start, each.columns)
        for node in each.views:
            result = builder.emit(registry.of(node), [result, *node.inputs[1:]], node.attributes)[0]
        graph.replace(each.last.output, result)
        start += each.columns


def _joined_step(builder: GraphBuilder, whole: Value, members: Sequence[_Sibling], number: int) -> Value:
    """Apply step ``number`` of all members to the joined result."""
    steps = [each.steps[number] for each in members]
    operands: list[Value | None] = []
    for position, operand in enumerate(steps[0].node.inputs):
        if position == steps[0].position or operand is None:
            operands.append(whole if operand is not None else None)
            continue
        columns = [
            np.broadcast_to(numbers.reshape(-1), (each.columns,))
            for each, step in zip(members, steps)
            if (numbers := static_numbers(step.node.inputs[position])) is not None
        ]
        operands.append(builder.constant(np.concatenate(columns)))
    return builder.emit(registry.of(steps[0].node), operands, steps[0].node.attributes)[0]


def _plain_product(builder: GraphBuilder, products: Sequence[Node]) -> Value:
    weight = join_constants(builder, [product.operand(1) for product in products], -1)
    return builder.op("MatMul", products[0].operand(0), weight, domain="loom")


def _packed_product(builder: GraphBuilder, products: Sequence[Node]) -> Value:
    """Multiply by packed weights, whose columns are the outermost axis."""
    first, operands = products[0], []
    for position in (1, 2, 3):
        parts = [product.operand(position) for product in products]
        operands.append(builder.op("Concat", *parts, axis=0) if parts[0].rank else parts[0])
    attributes = replace(first.attributes, columns=sum(product.attributes.columns for product in products))
    return builder.emit(registry.of(first), [first.operand(0), *operands], attributes)[0]
