"""Convolutions of quantised tensors become convolutions of bytes (``loom.ByteConvolution``), four channels at a time.

With signed bytes ``a'`` and ``b'`` and a border of ``za'`` a sum over a window is that of :mod:`.byte_products`::

    sum a' b'  -  za' sum (b - zb)  -  zb' sum a'

where the sums of windows are computed by the kernel besides, for weights whose zero point is not zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ...runtime.plan.dtypes import FLOAT32
from ..ir.graph import Node, Value
from ..ops.math.nodes import fields_of, in_type
from ..ops.math.reductions import reduce
from ..ops.math.windows import WindowAttributes
from ..ops.onnx.convolution import ConvolutionAttributes
from ..ops.onnx.quantize import BYTES, centred
from ..ops.registry import registry
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, Match, Rule
from ..symbolic import polynomial as ix
from ..target import Target
from .byte_products import (
    ByteFactor,
    centred_factor,
    column_parameter,
    number_less_zero,
    of_bytes,
    pack,
    signed_zero,
)
from .patterns import produced_by, view


def _match_integers(node: Node, facts: GraphFacts) -> Match | None:
    """Match an integer convolution of bytes with a constant weight of bytes."""
    left, right = (centred_factor(_on_one_axis(node.operand(position))) for position in (0, 1))
    if left is None or right is None or not _are_factors(node, left, right, facts):
        return None
    return Match((node,), {"left": left, "right": right})


def _on_one_axis(value: Value) -> Value:
    """Return [N, C, W] behind the [N, C, 1, W] as which it is convolved; any other value as it is."""
    node = produced_by(value, "Unsqueeze", "loom.View")
    if node is None or node.operand(0).rank != 3 or value.rank != 4 or value.shape[2] != 1:
        return value
    source = node.operand(0)
    return source if value.shape == (*source.shape[:2], 1, source.shape[2]) else value


def _on_two_axes(builder: GraphBuilder, value: Value, rank: int) -> Value:
    """Reshape a factor of ``rank`` axes, or a parameter that broadcasts to one, so that it has two spatial axes."""
    if rank > 3 or value.rank < 3:
        return value
    return view(builder, value, (*value.shape[:2], 1, value.shape[2]))


def _are_factors(node: Node, left: ByteFactor, right: ByteFactor, facts: GraphFacts) -> bool:
    """Return whether channels, of one zero point, meet a constant weight with one for each of its outputs."""
    a, b = left.number, right.number
    if facts.is_constant(a) or not facts.is_constant(b) or not b.elements:
        return False
    return _varies_at_most(left.zero, b.rank, ()) and _varies_at_most(right.zero, b.rank, (0,))


def _varies_at_most(parameter: Value | np.ndarray | None, rank: int, axes: tuple[int, ...]) -> bool:
    """Return whether a parameter that broadcasts to ``rank`` axes has one number but along ``axes``."""
    if parameter is None:
        return True
    first = rank - len(parameter.shape)
    return first >= 0 and all(size == 1 or axis in axes for axis, size in enumerate(parameter.shape, first))


def _integers(builder: GraphBuilder, match: Match) -> Value:
    return _product(builder, match.root, match["left"], match["right"])


def _product(builder: GraphBuilder, node: Node, left: ByteFactor, right: ByteFactor) -> Value:
    """Build the exact convolution, in int32."""
    attributes: ConvolutionAttributes = node.attributes
    left, right = (_factor_on_two_axes(builder, of_bytes(builder, factor)) for factor in (left, right))
    rank, outputs = right.number.rank, ix.number(right.number.shape[0])
    last = (0, *range(2, rank), 1)
    words, filters = (pack(builder, factor, last) for factor in (left, right))
    weight = builder.op("PackBlocks", view(builder, filters, (outputs, ix.product(filters.shape[1:]))), domain="loom")
    zero, weight_zero = signed_zero(builder, left), signed_zero(builder, right)
    border = builder.constant(np.array(0, np.int32)) if zero is None else view(builder, zero, ())
    window = fields_of(attributes, WindowAttributes)
    operands = [words, weight, border]
    if weight_zero is not None:
        operands.append(column_parameter(builder, weight_zero))
    channels = ix.number(right.number.shape[1])
    result = builder.op("ByteConvolution", *operands, domain="loom", columns=outputs, channels=channels, **window)
    if zero is None:
        return result
    sums = reduce(builder, _centred(builder, right), "sum", tuple(range(1, rank)), keepdims=False)
    return builder.op("Sub", result, builder.op("Mul", border, view(builder, sums, (outputs, *_ones(rank)))))


def _factor_on_two_axes(builder: GraphBuilder, factor: ByteFactor) -> ByteFactor:
    number, zero = factor.number, factor.zero
    if isinstance(zero, np.ndarray):
        zero = builder.constant(zero)
    rank = number.rank
    return ByteFactor(_on_two_axes(builder, number, rank), None if zero is None else _on_two_axes(builder, zero, rank))


def _ones(rank: int) -> tuple[int, ...]:
    return (1,) * (rank - 2)


def _of_outputs(builder: GraphBuilder, parameter: Value, rank: int) -> Value:
    """Reshape a parameter of a weight [O, ...] of ``rank`` axes to broadcast to a result [N, O, ...]."""
    return view(builder, parameter, () if parameter.elements == 1 else (parameter.elements, *_ones(rank)))


def _centred(builder: GraphBuilder, factor: ByteFactor) -> Value:
    assert not isinstance(factor.zero, np.ndarray)
    return centred(builder, factor.number, factor.zero)


# -- dequantised tensors ---------------------------------------------------------------------------------------------


def _match_dequantised(node: Node, facts: GraphFacts) -> Match | None:
    """Match a convolution of two tensors that are dequantised, with one scale and with scales of outputs."""
    nodes = [produced_by(_on_one_axis(node.operand(position)), "loom.Dequantize") for position in (0, 1)]
    if node.output.dtype is not FLOAT32 or any(each is None for each in nodes):
        return None
    factors, scales = [], []
    for each, axes in zip(nodes, ((), (0,)), strict=True):
        assert each is not None
        number, scale, zero = each.operand(0), each.operand(1), each.optional(2)
        if number.dtype.name not in BYTES or number.shape != each.output.shape:
            return None
        if not _varies_at_most(scale, number.rank, axes):
            return None
        factors.append(ByteFactor(number, zero))
        scales.append(scale)
    left, right = factors
    if not _are_factors(node, left, right, facts):
        return None
    return Match((node,), {"left": left, "right": right, "scales": scales})


_Convolve = Callable[[GraphBuilder, Node, ByteFactor, ByteFactor], Value]


def _dequantised(builder: GraphBuilder, match: Match, convolve: _Convolve) -> Value:
    """Build the convolution of bytes, as floats, times the scales."""
    rank = match.root.output.rank
    one, other = (_of_outputs(builder, in_type(builder, scale, FLOAT32), rank) for scale in match["scales"])
    result = convolve(builder, match.root, match["left"], match["right"])
    return builder.op("Mul", result, builder.op("Mul", one, other))


def _exact_convolution(builder: GraphBuilder, node: Node, left: ByteFactor, right: ByteFactor) -> Value:
    return builder.op("Cast", _product(builder, node, left, right), to=FLOAT32.onnx)


# -- convolutions of floats ------------------------------------------------------------------------------------------


def _match_cast_integers(node: Node, facts: GraphFacts) -> Match | None:
    """Match the conversion to floats of an integer convolution that nothing else reads."""
    convolution = produced_by(node.operand(0), *CONVOLUTIONS)
    if node.output.dtype is not FLOAT32 or convolution is None or not facts.single_use(convolution.output):
        return None
    match = _match_integers(convolution, facts)
    return None if match is None else Match((node, convolution), match.parts)


def _cast_integers(builder: GraphBuilder, match: Match) -> Value:
    return _float_convolution(builder, match.nodes[1], match["left"], match["right"])


def _float_convolution(builder: GraphBuilder, node: Node, left: ByteFactor, right: ByteFactor) -> Value:
    """Build the convolution of bytes less their zero points in floats, as exact as any convolution of floats."""
    factors = (_factor_on_two_axes(builder, of_bytes(builder, factor)) for factor in (left, right))
    operands = [number_less_zero(builder, factor) for factor in factors]
    return builder.emit(registry.of(node), operands, node.attributes)[0]


CONVOLUTIONS = frozenset({"loom.Convolution"})


def rules(target: Target) -> tuple[Rule, ...]:
    """Return the rules: drivers that compute on the host's processor convolve floats, as for products, and so does any
    device where channels are in groups, which have too few terms for words.

    Dequantised groups stay as they are: a scale for each result is more than one for each of a few terms.
    """
    alone, behind = partial(_of_groups, grouped=False), partial(_dequantised, convolve=_float_convolution)
    if not target.uses_workgroup_memory:
        return (
            Rule("integer-convolution-as-floats", frozenset({"Cast"}), _match_cast_integers, _cast_integers),
            Rule("scales-behind-convolution", CONVOLUTIONS, alone(_match_dequantised), behind),
        )
    exact, grouped = partial(_dequantised, convolve=_exact_convolution), _of_groups(_match_cast_integers, grouped=True)
    return (
        Rule("integer-convolution", CONVOLUTIONS, alone(_match_integers), _integers),
        Rule("dequantised-convolution", CONVOLUTIONS, alone(_match_dequantised), exact),
        Rule("groups-of-integers-as-floats", frozenset({"Cast"}), grouped, _cast_integers),
    )


_Matcher = Callable[[Node, GraphFacts], Match | None]


def _of_groups(match: _Matcher, grouped: bool) -> _Matcher:
    """Return ``match`` for convolutions, the last nodes of matches, with groups of channels, or for those without."""

    def matcher(node: Node, facts: GraphFacts) -> Match | None:
        result = match(node, facts)
        return result if result is not None and (result.nodes[-1].attributes.group > 1) == grouped else None

    return matcher
