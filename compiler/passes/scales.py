"""Constant factors around convolutions and matrix products move into the weight; constant addends merge.

BatchNormalization expands to ``x * s + b``; exporters write the same as Mul, Sub, Div and Add nodes.  The factor of an
output channel scales the weights of that channel, ``conv(x, w) * s == conv(x, w * s)``, and one of an input channel
those that read the channel.  The scaled weight is a constant subgraph: computed by the host when it is small, else once
on the device.

Products and sums of constants are formed before the input comes, so results differ from the unfolded model in the last
bits, as they do in every inference runtime.  Nothing is folded whose constant factor is not finite or vanishes.
"""

from __future__ import annotations

import numpy as np

from ..ir.graph import Node, Shape, Value
from ..ops.registry import registry
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, Match, Rule, operator_key
from ..symbolic import polynomial as ix
from .patterns import produced_by, split_constant, static_numbers, varies_along, view

PRODUCTS = ("loom.Convolution", "loom.ConvolutionTranspose", "loom.MatMul")


def _output_axis(product: Node) -> int:
    """Return the axis of the result whose slices correspond to slices of the weight."""
    return product.output.rank - 1 if product.op == "MatMul" else 1


def _factor_view(product: Node, factor: Value) -> tuple[Shape, Shape]:
    """Return shapes of the weight and of an output factor that broadcast in their product."""
    weight = product.operand(1)
    if product.op == "MatMul":
        # a factor for each column; the weight may have batch axes
        return weight.shape, (factor.elements,)
    if product.op == "Convolution":
        return weight.shape, (factor.elements, *(1,) * (weight.rank - 1))
    group = product.attributes.group
    channels = ix.divide(weight.shape[0], group)
    assert channels is not None
    whole = (group, channels, *weight.shape[1:])
    ones = (1,) * (weight.rank - 2)
    return whole, ((1, 1, 1, *ones) if factor.elements == 1 else (group, 1, weight.shape[1], *ones))


def _weight_reason(product: Node, facts: GraphFacts) -> str | None:
    weight = product.operand(1)
    if not facts.is_constant(weight):
        return "the weight is computed at run time"
    if len(weight.uses) > 1 or facts.is_output(weight):
        if not _is_small(weight, facts):
            return "the weight is large and shared with other nodes"
    return None


def _is_small(weight: Value, facts: GraphFacts) -> bool:
    """Return whether the host scales the weight at compile time."""
    count = weight.elements
    return not isinstance(count, ix.Index) and count <= facts.limits.fold_elements


def _worth_reason(product: Node, factor: Value, facts: GraphFacts) -> str | None:
    """Return why folding the factor does not pay, or None.

    Multiplying by one number is almost free, whereas scaling a large weight takes a kernel of its own.
    """
    if factor.elements == 1 and not _is_small(product.operand(1), facts):
        return "scaling the large weight costs more than multiplying by one number"
    return None


def _factor_reason(factor: Value) -> str | None:
    array = static_numbers(factor)
    if array is None:
        return None
    values = array.astype(np.float64)
    if not np.isfinite(values).all():
        return "the factor is not finite"
    tiny = np.abs(values[values != 0.0])
    if tiny.size and (tiny.min() < 1e-30 or tiny.max() > 1e30):
        return "the factor is near the ends of the range of floats"
    return None


# -- factors of output channels --------------------------------------------------------------------------------------


def _match_scaled_product(node: Node, facts: GraphFacts) -> Match | None:
    parts = split_constant(node, facts)
    if parts is None or (node.op == "Div" and parts[0] is not node.operand(0)):
        return None
    product = produced_by(parts[0], *PRODUCTS)
    if product is None or not node.output.dtype.is_float:
        return None
    return Match((node, product), {"product": product, "factor": parts[1]})


def _check_scaled_product(match: Match, facts: GraphFacts) -> str | None:
    product, factor = match["product"], match["factor"]
    if not facts.single_use(product.output):
        return "the unscaled result is needed too"
    if not varies_along(factor, product.output.rank, _output_axis(product)):
        return "the factor changes along other axes than that of output channels"
    return _weight_reason(product, facts) or _worth_reason(product, factor, facts) or _factor_reason(factor)


def _scale_weight(builder: GraphBuilder, operator: str, product: Node, factor: Value) -> Value:
    weight = product.operand(1)
    whole, flat = _factor_view(product, factor)
    scaled = builder.op(operator, view(builder, weight, whole), view(builder, factor, flat))
    return view(builder, scaled, weight.shape)


def _again(builder: GraphBuilder, product: Node, value: Value, weight: Value) -> Value:
    return builder.emit(registry.of(product), [value, weight], product.attributes)[0]


def _fold_scale(builder: GraphBuilder, match: Match) -> Value:
    product: Node = match["product"]
    weight = _scale_weight(builder, match.root.op, product, match["factor"])
    return _again(builder, product, product.operand(0), weight)


SCALED_PRODUCT = Rule(
    "scale-into-weight", frozenset({"Mul", "Div"}), _match_scaled_product, _fold_scale, _check_scaled_product
)


# -- addends before a factor -----------------------------------------------------------------------------------------


def _match_scaled_sum(node: Node, facts: GraphFacts) -> Match | None:
    """Match ``(product + b) * s``: the factor must be distributed over the sum before it reaches the product."""
    parts = split_constant(node, facts)
    if parts is None or (node.op == "Div" and parts[0] is not node.operand(0)):
        return None
    total = produced_by(parts[0], "Add")
    inner = None if total is None else split_constant(total, facts)
    product = None if inner is None else produced_by(inner[0], *PRODUCTS)
    if total is None or inner is None or product is None or not node.output.dtype.is_float:
        return None
    return Match((node, total, product), {"product": product, "addend": inner[1], "factor": parts[1], "sum": total})


def _check_scaled_sum(match: Match, facts: GraphFacts) -> str | None:
    if not facts.single_use(match["sum"].output):
        return "the sum before the factor is needed too"
    return _check_scaled_product(match, facts)


def _distribute(builder: GraphBuilder, match: Match) -> Value:
    operator, factor = match.root.op, match["factor"]
    scaled = builder.op(operator, match["product"].output, factor)
    return builder.op("Add", scaled, builder.op(operator, match["addend"], factor))


SCALED_SUM = Rule("scale-over-sum", frozenset({"Mul", "Div"}), _match_scaled_sum, _distribute, _check_scaled_sum)


# -- factors of input channels ---------------------------------------------------------------------------------------


def _match_scaled_operand(node: Node, facts: GraphFacts) -> Match | None:
    scaling = produced_by(node.operand(0), "Mul", "Div")
    parts = None if scaling is None else split_constant(scaling, facts)
    if scaling is None or parts is None or (scaling.op == "Div" and parts[0] is not scaling.operand(0)):
        return None
    return Match((node, scaling), {"product": node, "scaling": scaling, "value": parts[0], "factor": parts[1]})


def _check_scaled_operand(match: Match, facts: GraphFacts) -> str | None:
    product, factor, value = match["product"], match["factor"], match["value"]
    if not facts.single_use(match["scaling"].output):
        return "the scaled operand is needed too"
    axis = value.rank - 1 if product.op == "MatMul" else 1
    if not varies_along(factor, value.rank, axis):
        return "the factor changes along other axes than that of input channels"
    if product.op == "Convolution" and product.attributes.group != 1 and factor.elements != 1:
        return "the factor of input channels meets groups of channels"
    if not product.output.dtype.is_float:
        return "integers are not scaled"
    if not _is_small(product.operand(1), facts):
        # The factor is computed with the operand, in the kernel of its producer or while it is loaded.
        return "scaling the large weight costs more than scaling the operand"
    return _weight_reason(product, facts) or _factor_reason(factor)


def _fold_operand_scale(builder: GraphBuilder, match: Match) -> Value:
    """Fold a scale of the operand into the weight; padding is no obstacle, since zero times any factor is zero."""
    product: Node = match["product"]
    factor: Value = match["factor"]
    weight = product.operand(1)
    count = factor.elements
    if product.op == "MatMul":
        flat: Shape = (count, 1)
    elif product.op == "Convolution":
        flat = (1, count, *(1,) * (weight.rank - 2))
    else:
        flat = (count, *(1,) * (weight.rank - 1))
    scaled = builder.op(match["scaling"].op, weight, view(builder, factor, flat))
    return _again(builder, product, match["value"], scaled)


SCALED_OPERAND = Rule(
    "operand-scale-into-weight", frozenset(PRODUCTS), _match_scaled_operand, _fold_operand_scale, _check_scaled_operand
)


# -- constants that meet ---------------------------------------------------------------------------------------------


def _match_subtraction(node: Node, facts: GraphFacts) -> Match | None:
    left, right = node.operand(0), node.operand(1)
    if not facts.is_constant(right) or facts.is_constant(left) or not left.dtype.is_signed:
        return None
    return Match((node,), {"left": left, "right": right})


SUBTRACTION = Rule(
    "subtraction-of-constant",
    frozenset({"Sub"}),
    _match_subtraction,
    lambda builder, match: builder.op("Add", match["left"], builder.op("Neg", match["right"])),
)


def _match_chain(node: Node, facts: GraphFacts) -> Match | None:
    """Match ``(x + a) + b`` and ``(x * a) * b`` with constants a and b."""
    outer = split_constant(node, facts)
    inner_node = None if outer is None else produced_by(outer[0], operator_key(node))
    inner = None if inner_node is None else split_constant(inner_node, facts)
    if outer is None or inner is None or inner_node is None:
        return None
    return Match((node, inner_node), {"value": inner[0], "first": inner[1], "second": outer[1]})


def _check_chain(match: Match, facts: GraphFacts) -> str | None:
    node, inner = match.nodes
    if not facts.single_use(inner.output):
        return "the inner result is needed too"
    first, second = match["first"], match["second"]
    merged = np.broadcast_shapes(*(_concrete(value.shape) for value in (first, second)))
    if int(np.prod(merged)) > max(int(np.prod(_concrete(value.shape))) for value in (first, second)):
        return "the constants together are larger than each"
    if node.op == "Mul" and node.output.dtype.is_float:
        one, other = static_numbers(first), static_numbers(second)
        if one is None or other is None:
            return "the factors are not known to the compiler"
        with np.errstate(all="ignore"):
            joined = one.astype(np.float64) * other.astype(np.float64)
        limit = 1e30 if node.output.dtype.bits == 32 else 1e4
        size = np.abs(joined[joined != 0.0])
        if not np.isfinite(joined).all() or (size.size and (size.max() > limit or size.min() < 1.0 / limit)):
            return "the product of the factors leaves the range of floats"
    return None


def _concrete(shape: Shape) -> tuple[int, ...]:
    """Convert the shape of a constant, which has no dynamic dimensions, to ints."""
    return tuple(int(size) for size in shape)  # type: ignore[arg-type]


def _join_chain(builder: GraphBuilder, match: Match) -> Value:
    operator = match.root.op
    return builder.op(operator, match["value"], builder.op(operator, match["first"], match["second"]))


CHAIN = Rule("constants-of-chain", frozenset({"Add", "Mul"}), _match_chain, _join_chain, _check_chain)

# -- views in between ------------------------------------------------------------------------------------------------


def _longer_axes(shape: Shape) -> list[int]:
    return [axis for axis, size in enumerate(shape) if size != 1]


def _match_below_view(node: Node, facts: GraphFacts) -> Match | None:
    """Match arithmetic with a constant on a product behind a view that adds or removes axes of size 1, as
    one-dimensional convolutions have.
    """
    parts = split_constant(node, facts)
    shaped = None if parts is None else produced_by(parts[0], "loom.View")
    if parts is None or shaped is None or (node.op == "Div" and parts[0] is not node.operand(0)):
        return None
    value = shaped.operand(0)
    total = produced_by(value, "Add")
    inner = None if total is None else split_constant(total, facts)
    if produced_by(value, *PRODUCTS) is None and (inner is None or produced_by(inner[0], *PRODUCTS) is None):
        return None
    before, after = _longer_axes(value.shape), _longer_axes(shaped.output.shape)
    if [value.shape[axis] for axis in before] != [shaped.output.shape[axis] for axis in after]:
        return None
    return Match((node, shaped), {"value": value, "constant": parts[1], "axes": tuple(zip(before, after))})


def _check_below_view(match: Match, facts: GraphFacts) -> str | None:
    return None if facts.single_use(match.nodes[1].output) else "the view is needed too"


def _compute_before_view(builder: GraphBuilder, match: Match) -> Value:
    value, constant = match["value"], match["constant"]
    after = match.root.output.shape
    aligned = (1,) * (len(after) - constant.rank) + constant.shape
    shape = [1] * value.rank
    for source, target in match["axes"]:
        shape[source] = aligned[target]
    computed = builder.op(match.root.op, value, view(builder, constant, tuple(shape)))
    return view(builder, computed, after)


BELOW_VIEW = Rule(
    "arithmetic-before-view",
    frozenset({"Add", "Mul", "Div"}),
    _match_below_view,
    _compute_before_view,
    _check_below_view,
)

RULES = (SUBTRACTION, BELOW_VIEW, SCALED_PRODUCT, SCALED_SUM, SCALED_OPERAND, CHAIN)
