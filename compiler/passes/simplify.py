"""Operators that give an operand back, and pairs of operators that are one.  Every rule keeps each bit of the result.

An addition of 0.0 is not among them: it turns -0.0 into 0.0.
"""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np

from ...runtime.plan import dtypes
from ...runtime.plan.dtypes import DType
from ..ir.graph import Node, Value
from ..ops.onnx.cast import CastAttributes, is_same
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, Match, Rule
from .patterns import is_filled_with, produced_by, static_numbers


def _first(builder: GraphBuilder, match: Match) -> Value:
    return match["value"]


# -- neutral elements ------------------------------------------------------------------------------------------------


def _neutral(node: Node, facts: GraphFacts) -> Match | None:
    left, right = node.operand(0), node.operand(1)
    either = node.op in ("Mul", "Add")
    number = {"Mul": 1.0, "Div": 1.0, "Pow": 1.0, "Add": -0.0, "Sub": 0.0}[node.op]
    for operand, other in ((left, right), (right, left))[: 2 if either else 1]:
        if operand.shape == node.output.shape and is_filled_with(other, number):
            return Match((node,), {"value": operand})
    return None


NEUTRAL = Rule("neutral-element", frozenset({"Mul", "Div", "Pow", "Add", "Sub"}), _neutral, _first)


# -- operators that undo or repeat each other ------------------------------------------------------------------------


def _twice(node: Node, facts: GraphFacts) -> Match | None:
    inner = produced_by(node.operand(0), node.op)
    if inner is None:
        return None
    value = inner.operand(0) if node.op in ("Neg", "Not") else inner.output
    return Match((node, inner), {"value": value})


TWICE = Rule("applied-twice", frozenset({"Neg", "Not", "Relu", "Abs", "Ceil", "Floor", "Round"}), _twice, _first)


def _unbounded(node: Node, facts: GraphFacts) -> Match | None:
    if node.optional(1) is None and node.optional(2) is None:
        return Match((node,), {"value": node.operand(0)})
    return None


UNBOUNDED_CLIP = Rule("clip-without-bounds", frozenset({"Clip"}), _unbounded, _first)


def _relu_of_clip(node: Node, facts: GraphFacts) -> Match | None:
    """Match a Relu of a Clip whose bounds are not negative: the Clip's result is not negative either."""
    inner = produced_by(node.operand(0), "Clip")
    if inner is None:
        return None
    low, high = static_numbers(inner.optional(1)), static_numbers(inner.optional(2))
    if low is None or not bool((low >= 0).all()) or (inner.optional(2) is not None and high is None):
        return None
    if high is not None and not bool((high >= 0).all()):
        return None
    return Match((node, inner), {"value": inner.output})


RELU_OF_CLIP = Rule("relu-of-clip", frozenset({"Relu"}), _relu_of_clip, _first)


# -- casts -----------------------------------------------------------------------------------------------------------


def holds_exactly(source: DType, target: DType) -> bool:
    """Return whether ``target`` represents every number of type ``source`` exactly."""
    if source is target or source is dtypes.BOOL:
        return True
    if target is dtypes.BOOL:
        return False
    if source.is_code:
        return target.name == "float32" or (target.is_float and source.name != "float8e8m0")
    if target.is_code:
        return False
    if source.is_float:
        return target.is_float and source.bits < target.bits
    if target.is_float:
        mantissa = {"float32": 24, "float16": 11, "bfloat16": 8}.get(target.name, 0)
        return source.width - int(source.is_signed) <= mantissa
    return source.width < target.width and (target.is_signed or not source.is_signed)


def _same_cast(node: Node, facts: GraphFacts) -> Match | None:
    value, attributes = node.operand(0), node.attributes
    same = is_same(value.dtype, node.output.dtype, bool(attributes.saturate))
    return Match((node,), {"value": value}) if same else None


SAME_CAST = Rule("cast-to-same-type", frozenset({"Cast"}), _same_cast, _first)


def _cast_of_cast(node: Node, facts: GraphFacts) -> Match | None:
    inner = produced_by(node.operand(0), "Cast")
    return None if inner is None else Match((node, inner), {"value": inner.operand(0)})


def _check_casts(match: Match, facts: GraphFacts) -> str | None:
    source, middle, target = match["value"].dtype, match.nodes[1].output.dtype, match.root.output.dtype
    if not holds_exactly(source, middle):
        return f"the cast from {source} to {middle} loses information"
    same_kind = (source.is_float or source.is_code) == middle.is_float or source is dtypes.BOOL
    if target is not source and not same_kind:
        return f"casts to {target} from {source} and from {middle} convert in different ways"
    return None


def _join_casts(builder: GraphBuilder, match: Match) -> Value:
    value, target = match["value"], match.root.output.dtype
    attributes: CastAttributes = match.root.attributes
    if is_same(value.dtype, target, bool(attributes.saturate)):
        return value
    return builder.op("Cast", value, **{**asdict(attributes), "to": target.onnx})


CAST_OF_CAST = Rule("cast-of-cast", frozenset({"Cast"}), _cast_of_cast, _join_casts, _check_casts)


# -- selections ------------------------------------------------------------------------------------------------------


def _decided_where(node: Node, facts: GraphFacts) -> Match | None:
    for position, number in ((1, True), (2, False)):
        if is_filled_with(node.optional(0), number) and node.operand(position).shape == node.output.shape:
            return Match((node,), {"value": node.operand(position)})
    return None


DECIDED_WHERE = Rule("where-with-static-condition", frozenset({"Where"}), _decided_where, _first)


def _division(node: Node, facts: GraphFacts) -> Match | None:
    divisor = static_numbers(node.operand(1))
    if divisor is None or divisor.size != 1 or not node.operand(0).dtype.is_float:
        return None
    return Match((node,), {"value": node.operand(0), "divisor": node.operand(1)})


def _check_division(match: Match, facts: GraphFacts) -> str | None:
    """Return why a division must not become a product with the reciprocal, or None.

    The reciprocal of a power of two is exact; both must be far from the ends of the smallest float range.
    """
    number = float(match["divisor"].static_value.reshape(-1)[0])
    if not math.isfinite(number) or abs(math.frexp(number)[0]) != 0.5:
        return "the reciprocal of the divisor is not exact"
    return None if 2.0**-13 <= abs(number) <= 2.0**13 else "the reciprocal of the divisor may be subnormal"


def _multiply_instead(builder: GraphBuilder, match: Match) -> Value:
    divisor: Value = match["divisor"]
    assert divisor.static_value is not None
    factor = builder.constant((1.0 / divisor.static_value.astype(np.float64)).astype(np.float32))
    if divisor.dtype is not dtypes.FLOAT32:
        factor = builder.op("Cast", factor, to=divisor.dtype.onnx)
    return builder.op("Mul", match["value"], factor)


EXACT_DIVISION = Rule("division-by-power-of-two", frozenset({"Div"}), _division, _multiply_instead, _check_division)

RULES = (
    NEUTRAL,
    TWICE,
    UNBOUNDED_CLIP,
    RELU_OF_CLIP,
    SAME_CAST,
    CAST_OF_CAST,
    DECIDED_WHERE,
    EXACT_DIVISION,
)
