"""Extrema and choice between operands: Max, Min, Where, Clip; and the variadic Sum and Mean.

NaN propagates through Max and Min, as in numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...ir.graph import Node, Value
from ...symbolic import expr as ex
from ...symbolic.expr import Expr
from .. import checks
from ..checks import ANY, BOOLEAN, FLOATS, NUMERIC, broadcast_inference, wrap
from ..folding import elementwise_fold
from ..registry import Builder, Element, Inferred, NoAttributes, register
from .elementwise import define

# -- extrema ---------------------------------------------------------------------------------------------------------


def extremum(op: str, left: Expr, right: Expr) -> Expr:
    """Return the ``max`` or ``min`` that gives NaN when either operand is NaN."""
    if left.dtype not in ex.FLOATS:
        return ex.binary(op, left, right)
    wins = "gt" if op == "max" else "lt"
    if left.op == "const" and right.op != "const":
        left, right = right, left
    if right.op == "const" and right.payload == right.payload:
        # a comparison with NaN is false: the variable operand is kept
        return ex.select(ex.compare(wins, right, left), right, left)
    first = ex.binary("or", ex.compare(wins, left, right), ex.unary("isnan", left))
    return ex.select(first, left, right)


def _extremum_element(op: str) -> Element:
    return lambda node, args: extremum(op, args[0], args[1])


def _chain(name: str, domain: str = "") -> Callable[[Builder, Node], Sequence[Value]]:
    """Expand a variadic operator to a chain of binary ones, each of which may fuse with its producers."""

    def expand(builder: Builder, node: Node) -> Sequence[Value]:
        result = node.operand(0)
        for position in range(1, len(node.inputs)):
            result = builder.op(name, result, node.operand(position), domain=domain)
        return [result]

    return expand


for _name, _op, _binary in (("Max", "max", "Maximum"), ("Min", "min", "Minimum")):
    define(_binary, _extremum_element(_op), infer=broadcast_inference(), types=(NUMERIC,), domain="loom")
    register(
        name=_name,
        infer=broadcast_inference(),
        expand=_chain(_binary, "loom"),
        types=(NUMERIC,),
        fold=elementwise_fold(
            (lambda op: lambda node, args: _fold_chain(lambda left, right: extremum(op, left, right), args))(_op),
            broadcast_inference(),
        ),
    )


def _fold_chain(rule: Callable[[Expr, Expr], Expr], args: Sequence[Expr]) -> Expr:
    result = args[0]
    for argument in args[1:]:
        result = rule(result, argument)
    return result


def _expand_mean(builder: Builder, node: Node) -> Sequence[Value]:
    (total,) = _chain("Add")(builder, node)
    return [builder.op("Mul", total, builder.scalar(1.0 / len(node.inputs), total))]


register(
    name="Sum",
    infer=broadcast_inference(),
    expand=_chain("Add"),
    types=(NUMERIC,),
    fold=elementwise_fold(
        lambda node, args: wrap(_fold_chain(Expr.__add__, args), node.operand(0).dtype), broadcast_inference()
    ),
)
register(
    name="Mean",
    infer=broadcast_inference(),
    expand=_expand_mean,
    types=(FLOATS,),
)


# -- selection -------------------------------------------------------------------------------------------------------


def _infer_where(node: Node) -> Inferred:
    condition, left, right = node.operand(0), node.operand(1), node.operand(2)
    checks.require_same_type(node, [left, right])
    return [(left.dtype, checks.broadcast_shapes(node, [condition.shape, left.shape, right.shape]))]


define("Where", lambda node, args: ex.select(args[0], args[1], args[2]), infer=_infer_where, types=(BOOLEAN, ANY))


def clamp(value: Expr, low: Expr | None, high: Expr | None) -> Expr:
    """Clamp to ``low`` first, then to ``high``: NaN stays, and ``high`` wins when the bounds cross."""
    for operation, comparison, bound in (("max", "lt", low), ("min", "gt", high)):
        if bound is None:
            continue
        if bound.op == "const" and bound.payload == bound.payload:
            value = ex.binary(operation, value, bound)
        else:  # a bound that is NaN is none
            value = ex.select(ex.compare(comparison, value, bound), bound, value)
    return value


def _infer_clip(node: Node) -> Inferred:
    for position in (1, 2):
        bound = node.optional(position)
        if bound is not None:
            single = bound.rank <= node.operand(0).rank and checks.is_size(bound.elements, 1)
            checks.require(bound.rank == 0 or single, node, "bounds must be scalars")
    return [(node.operand(0).dtype, node.operand(0).shape)]


def _clip(node: Node, args: Sequence[Expr]) -> Expr:
    value, *bounds = args
    low = ex.cast(bounds.pop(0), value.dtype) if node.optional(1) is not None else None
    high = ex.cast(bounds.pop(0), value.dtype) if node.optional(2) is not None else None
    return clamp(value, low, high)


define(
    "Clip",
    _clip,
    infer=_infer_clip,
    types=(NUMERIC,),
    adapters=(
        (10, checks.attribute_to_input("min", 1, np.float32)),
        (10, checks.attribute_to_input("max", 2, np.float32)),
    ),
    attributes=NoAttributes,
)
