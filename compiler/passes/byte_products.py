"""Products of quantised tensors become products of bytes (``loom.ByteMatMul``), four terms at a time.

*Integers*: the operands of an integer product are bytes less a zero point, ``(a - za) (b - zb)``.  With signed bytes
``a'`` and ``b'`` (unsigned ones less 128, their zero points too) the sum over the terms is::

    sum a' b'  -  za' sum (b - zb)  -  zb' sum a'

in wrapping integers, where the second sum is that of columns of the constant weight, and the third one of rows of the
activation, which weights with a zero point of zero do not need.

*Dequantised tensors*: the product of ``(a - za) sa`` and ``(b - zb) sb`` is the product of integers times ``sa sb``.

*Weights in blocks*, where the model or the caller says that activations may have 8 bits: activations are rounded with a
scale for each group of terms, 1/127 of the largest magnitude.
"""

from __future__ import annotations

import numpy as np

from ...runtime.plan.dtypes import FLOAT32, INT8, INT32, UINT8
from ...runtime.plan.record import record
from ..compilation import Compilation
from ..ir.graph import Node, Value
from ..ops.internal.byte_products import MOST_GROUP
from ..ops.internal.packed_weights import has_few_rows
from ..ops.math.nodes import in_type
from ..ops.math.reductions import reduce
from ..ops.onnx.quantize import BYTES, centred, quantize
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, Match, Rule
from ..symbolic import polynomial as ix
from .patterns import produced_by, static_numbers, view

#: Terms of a group of activations, at least: fewer would spend the time on scaling
_LEAST_GROUP = 32


@record(slots=False)
class _Bytes:
    """An integer factor, ``number - zero``: ``zero`` is int32, as a value or an array; None stands for 0."""

    number: Value
    zero: Value | np.ndarray | None

    @property
    def low(self) -> int:
        """What is subtracted to make the number a signed byte."""
        return 128 if self.number.dtype is UINT8 else 0


# -- integers --------------------------------------------------------------------------------------------------------


def _match_integers(node: Node, facts: GraphFacts) -> Match | None:
    """Match an integer product of bytes with a constant matrix of bytes."""
    left, right = (_centred(node.operand(position)) for position in (0, 1))
    if left is None or right is None or not _are_factors(left, right, facts):
        return None
    return Match((node,), {"left": left, "right": right})


def _centred(value: Value) -> _Bytes | None:
    """Return the parts of ``Cast(bytes) - zero``, or None if the value is something else."""
    zero: Value | np.ndarray | None = None
    difference = produced_by(value, "Sub", "Add")
    if difference is not None:
        value, zero = difference.operand(0), difference.operand(1)
        if difference.op == "Add":  # of a constant, by which differences are written
            numbers = static_numbers(zero)
            if numbers is None:
                return None
            zero = np.asarray(-numbers, np.int32)
    cast = produced_by(value, "Cast")
    if cast is None or cast.output.dtype is not INT32 or cast.operand(0).dtype.name not in BYTES:
        return None
    return _Bytes(cast.operand(0), zero)


def _are_factors(left: _Bytes, right: _Bytes, facts: GraphFacts) -> bool:
    """Return whether rows of an activation meet columns of a constant matrix, each with a zero point of its own."""
    a, b = left.number, right.number
    if any(factor.zero is not None and len(factor.zero.shape) > factor.number.rank for factor in (left, right)):
        return False
    if b.rank != 2 or a.rank < 1 or facts.is_constant(a) or not facts.is_constant(b) or not b.shape[0]:
        return False
    return _repeats(left.zero, 1) and _repeats(right.zero, 2)


def _repeats(parameter: Value | np.ndarray | None, axis: int) -> bool:
    """Return whether a parameter has one number along the axis, counted from the end, of the terms."""
    return parameter is None or len(parameter.shape) < axis or parameter.shape[-axis] == 1


def _integers(builder: GraphBuilder, match: Match) -> Value:
    return _product(builder, match["left"], match["right"])


def _product(builder: GraphBuilder, left: _Bytes, right: _Bytes) -> Value:
    """Build the exact product, in int32."""
    words = builder.op("PackBytes", left.number, domain="loom")
    columns = ix.number(right.number.shape[1])
    rows = builder.op("PackBytes", builder.op("Transpose", right.number, perm=(1, 0)), domain="loom")
    packed = builder.op("PackBlocks", rows, domain="loom")
    result = builder.op("ByteMatMul", words, packed, domain="loom", columns=columns)
    for zero, sums in ((_signed_zero(builder, left), _column_sums), (_signed_zero(builder, right), _row_sums)):
        if zero is not None:
            result = builder.op("Sub", result, builder.op("Mul", zero, sums(builder, left, right)))
    return result


def _signed_zero(builder: GraphBuilder, factor: _Bytes) -> Value | None:
    """Build the zero point of a factor's signed bytes; None if it is known to be 0."""
    if factor.zero is None:
        return builder.constant(np.array(-factor.low, np.int32)) if factor.low else None
    numbers = factor.zero if isinstance(factor.zero, np.ndarray) else static_numbers(factor.zero)
    if numbers is not None:
        return builder.constant(np.asarray(numbers - factor.low, np.int32)) if (numbers != factor.low).any() else None
    assert isinstance(factor.zero, Value)
    return builder.op("Sub", factor.zero, builder.scalar(factor.low, factor.zero)) if factor.low else factor.zero


def _column_sums(builder: GraphBuilder, left: _Bytes, right: _Bytes) -> Value:
    zero = builder.constant(right.zero) if isinstance(right.zero, np.ndarray) else right.zero
    return reduce(builder, centred(builder, right.number, zero), "sum", (0,), keepdims=False)


def _row_sums(builder: GraphBuilder, left: _Bytes, right: _Bytes) -> Value:
    number = builder.op("Cast", left.number, to=INT32.onnx)
    number = builder.op("Sub", number, builder.scalar(left.low, number)) if left.low else number
    return reduce(builder, number, "sum", (number.rank - 1,))


# -- dequantised tensors ---------------------------------------------------------------------------------------------


def _match_dequantised(node: Node, facts: GraphFacts) -> Match | None:
    """Match a product of two tensors that are dequantised, with scales of rows and of columns."""
    nodes = [produced_by(node.operand(position), "loom.Dequantize") for position in (0, 1)]
    if node.output.dtype is not FLOAT32 or any(each is None for each in nodes):
        return None
    factors, scales = [], []
    for each, axis in zip(nodes, (1, 2), strict=True):
        assert each is not None
        number, scale, zero = each.operand(0), each.operand(1), each.optional(2)
        if number.dtype.name not in BYTES or number.shape != each.output.shape or not _repeats(scale, axis):
            return None
        factors.append(_Bytes(number, zero))
        scales.append(scale)
    left, right = factors
    return (
        Match((node,), {"left": left, "right": right, "scales": scales}) if _are_factors(left, right, facts) else None
    )


def _dequantised(builder: GraphBuilder, match: Match) -> Value:
    left, right = (
        each if each.zero is None else _Bytes(each.number, builder.op("Cast", each.zero, to=INT32.onnx))
        for each in (match["left"], match["right"])
    )
    exact = builder.op("Cast", _product(builder, left, right), to=FLOAT32.onnx)
    one, other = (in_type(builder, scale, FLOAT32) for scale in match["scales"])
    return builder.op("Mul", exact, builder.op("Mul", one, other))


# -- weights in blocks -----------------------------------------------------------------------------------------------


def _match_blocks(node: Node, facts: GraphFacts) -> Match | None:
    """Match a product of many rows with a packed weight whose codes, less their zero points, are bytes."""
    attributes, zero = node.attributes, node.operand(3)
    terms = node.operand(0).shape[-1]
    group = next((size for size in (MOST_GROUP, 64, _LEAST_GROUP) if attributes.block % size == 0), 0)
    if has_few_rows(node) or node.output.dtype is not FLOAT32 or not group or ix.divide(terms, group) is None:
        return None
    number = static_numbers(zero)
    if zero.rank:
        fits = zero.dtype is UINT8 and attributes.bits < 8
    else:
        fits = number is not None and number.dtype.kind in "iu" and (attributes.bits < 8 or int(number) == 128)
    return Match((node,), {"group": group}) if fits else None


def _blocks(builder: GraphBuilder, match: Match) -> Value:
    node, group = match.root, match["group"]
    value, attributes = node.operand(0), node.attributes
    *rows, terms = value.shape
    groups = ix.divide(terms, group)
    assert groups is not None
    grouped = view(builder, value, (*rows, groups, group))
    largest = reduce(builder, builder.op("Abs", grouped), "max", (len(rows) + 1,))
    scale = builder.op("Mul", largest, builder.scalar(1 / 127, largest))
    numbers = view(builder, quantize(builder, grouped, scale, None, INT8), value.shape)
    return builder.op(
        "ByteMatMul",
        builder.op("PackBytes", numbers, domain="loom", stride=8 // attributes.bits),
        node.operand(1),
        view(builder, scale, (*rows, groups)),
        *map(node.operand, (2, 3)),
        domain="loom",
        columns=attributes.columns,
        bits=attributes.bits,
        block=attributes.block,
        group=group,
    )


def rules(compilation: Compilation) -> tuple[Rule, ...]:
    """Return the rules: activations are rounded where the device multiplies bytes fast, and it is allowed.

    Software drivers have none: a product of bytes is many instructions there, which their compilers take minutes for.
    """
    if not compilation.target.uses_workgroup_memory:
        return ()
    products = frozenset({"loom.MatMul"})
    exact = (
        Rule("integer-product", products, _match_integers, _integers),
        Rule("dequantised-product", products, _match_dequantised, _dequantised),
    )
    choice = compilation.options.activations
    if not compilation.target.byte_products or choice == "float":
        return exact

    def allowed(node: Node, facts: GraphFacts) -> Match | None:
        rounds = choice == "int8" or node.attributes.rounds_activations
        return _match_blocks(node, facts) if rounds else None

    return (*exact, Rule("rounded-activations", frozenset({"loom.PackedMatMul"}), allowed, _blocks))
