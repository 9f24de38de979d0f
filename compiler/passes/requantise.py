"""Quantisation of what was just dequantised: exporters quantise the result of every operator, also of one that only
moves elements, with the scale of its operand."""

from __future__ import annotations

import numpy as np

from ...runtime.plan.dtypes import FLOAT32
from ..ir.graph import Node, Value
from ..ops.math.nodes import fields_of
from ..ops.onnx.quantize import BYTES
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, Match, Rule, operator_key
from .patterns import produced_by, static_numbers

_MOVES = frozenset({"loom.View", "Transpose", "loom.StridedSlice"})
#: Scales whose products with bytes are normal numbers, as far from both ends as anyone's are
_LEAST_SCALE, _GREATEST_SCALE = 1e-30, 1e30


def _requantised(node: Node, facts: GraphFacts) -> Match | None:
    """Match a Quantize of moved elements of a Dequantize with the same parameters, those of a whole tensor.

    Of a byte ``q`` the quotient ``(q - zero) * scale / scale`` rounds to ``q - zero``, so the result is ``q``.
    """
    value, moves = node.operand(0), []
    while value.producer is not None and operator_key(value.producer) in _MOVES:
        moves.append(value.producer)
        value = value.producer.operand(0)
    inner = produced_by(value, "loom.Dequantize")
    if inner is None or value.dtype is not FLOAT32 or value.storage is not None:
        return None
    code = inner.operand(0)
    if code.dtype.name not in BYTES or node.attributes.to != code.dtype.onnx or not _same_parameters(node, inner):
        return None
    return Match((node, *moves, inner), {"code": code, "moves": moves})


def _same_parameters(quantize: Node, dequantize: Node) -> bool:
    scales = [static_numbers(each.optional(1)) for each in (quantize, dequantize)]
    zeros = [_zero(each.optional(2)) for each in (quantize, dequantize)]
    first, second = scales
    if first is None or second is None or first.size != 1 or second.size != 1 or None in zeros:
        return False
    scale = float(first.reshape(())[()])
    return bool(scale == second.reshape(())[()]) and zeros[0] == zeros[1] and _LEAST_SCALE < scale < _GREATEST_SCALE


def _zero(value: Value | None) -> int | None:
    """Return the zero point of a whole tensor, None if it is not known or there are several."""
    if value is None:
        return 0
    numbers = static_numbers(value)
    return int(np.asarray(numbers).reshape(())[()]) if numbers is not None and numbers.size == 1 else None


def _moved_code(builder: GraphBuilder, match: Match) -> Value:
    code: Value = match["code"]
    for node in reversed(match["moves"]):
        code = builder.op(node.op, code, domain=node.domain, **fields_of(node.attributes))
    return code


RULES = (Rule("quantised-again", frozenset({"loom.Quantize"}), _requantised, _moved_code),)
