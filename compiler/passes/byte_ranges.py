"""Tensors that are quantised by their own range, for products of bytes: one kernel makes words of them.

Each of its workgroups reduces the extremes of the tensor's parts, so that no kernel has to compute scale and zero point
before (:mod:`..kernels.ranges`).  The product's kernel reads these behind the words.
"""

from __future__ import annotations

from ...runtime.plan.dtypes import FLOAT32, INT32, UINT8
from ..ir.graph import Node, Value
from ..ops.internal.ranges import words_shape
from ..ops.math.nodes import part
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, Match, Rule, operator_key
from ..symbolic import polynomial as ix
from .patterns import produced_by, view

#: Nodes between the parameters of a range and a scale or zero point
_STEPS = ("loom.StridedSlice", "loom.View", "BitCast", "Cast")


def _range_behind(value: Value) -> Node | None:
    """Return the node whose parameters a scale or a zero point is."""
    node = value.producer
    while node is not None and operator_key(node) in _STEPS:
        node = node.operand(0).producer
    return node if node is not None and operator_key(node) == "loom.RangeParameters" else None


def _match_packing(node: Node, facts: GraphFacts) -> Match | None:
    """Match the packing of a tensor that is quantised by its range, its axes perhaps in another order."""
    turned = produced_by(node.operand(0), "Transpose")
    quantised = produced_by(node.operand(0) if turned is None else turned.operand(0), "loom.Quantize")
    if node.attributes.stride != 1 or quantised is None or quantised.optional(2) is None:
        return None
    attributes, value = quantised.attributes, quantised.operand(0)
    if (attributes.to, attributes.precision) != (UINT8.onnx, FLOAT32.name) or value.dtype is not FLOAT32:
        return None
    parameters = {_range_behind(quantised.operand(position)) for position in (1, 2)}
    (first, *others) = parameters
    if first is None or others:
        return None
    return Match((node,), {"value": value, "extremes": first.operand(0), "turned": turned})


def _words(builder: GraphBuilder, match: Match) -> Value:
    value, turned = match["value"], match["turned"]
    if turned is not None:
        value = builder.op("Transpose", value, perm=turned.attributes.perm)
    shape = words_shape(value.shape)
    words = builder.op("QuantizeWords", value, match["extremes"], domain="loom")
    return view(builder, part(builder, words, 0, 0, ix.product(list(shape))), shape)


def _match_parameters(node: Node, facts: GraphFacts) -> Match | None:
    """Match parameters that a kernel computes which quantises by the same range."""
    users = (user for user in node.operand(0).users if operator_key(user) == "loom.QuantizeWords")
    words = next(users, None)
    return None if words is None else Match((node,), {"words": words.output})


def _parameters(builder: GraphBuilder, match: Match) -> Value:
    words = match["words"]
    return builder.op("BitCast", part(builder, words, 0, ix.add(words.shape[0], -2), 2), to=INT32.onnx)


WORDS = Rule("words-of-range", frozenset({"loom.PackBytes"}), _match_packing, _words)
#: Applies once all words are there
PARAMETERS = Rule("parameters-behind-words", frozenset({"loom.RangeParameters"}), _match_parameters, _parameters)
