"""Products with quantised weights become ``loom.PackedMatMul``, however the file spells the dequantisation.

The weight of a MatMul that is ``(codes - zero) * scale``, with a scale for each block along its terms, is packed once,
when weights are made, in the order in which kernels read it (:mod:`..ops.internal.packed_weights`).  The order depends
on no size of the activation: a plan for a token and one for a prompt share the weight.  Not packed are the weights of
products of two dequantised tensors, which are products of bytes instead (:mod:`.byte_products`), and bytes with one
scale a column where a GPU computes a product of many rows with floats faster in parts (:mod:`.split`).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...runtime.plan.dtypes import INT32, UINT8
from ...runtime.plan.record import record
from ..compilation import Compilation
from ..ir.graph import Node, Shape, Value
from ..kernels.products.packed_partners import row_total
from ..ops.internal.packed_weights import CODES, has_few_rows, unit_of
from ..ops.onnx.views import permutation
from ..ops.registry import registry
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, Match, Rule
from ..symbolic import polynomial as ix
from ..target import Target
from ..tuning import gemm_tiles, packed_tiles
from . import byte_products
from .patterns import produced_by, static_numbers, view

#: Widths of the codes that are packed
WIDTHS = (2, 4, 8)
#: Factors of activations that are looked at
_FACTORS = 4


@record(slots=False)
class _Blocks:
    """A parameter with one element for ``block`` neighbours along the terms of a weight; it broadcasts to [rows,
    blocks], or [blocks, rows]."""

    value: Value
    block: int


@record(slots=False)
class _Weight:
    """What a weight is computed from; ``axis`` is that of the terms in ``codes``, and in the parameters."""

    codes: Value
    bits: int
    axis: int
    scale: _Blocks
    zero: _Blocks | None
    rounds_activations: bool


def _match(node: Node, facts: GraphFacts, compilation: Compilation) -> Match | None:
    """Match a product with a matrix of constants that is dequantised."""
    left, right = node.operand(0), node.operand(1)
    if right.rank != 2 or facts.is_constant(left) or not facts.is_constant(right):
        return None
    if byte_products.match_dequantised(node, facts) is not None:
        return None  # becomes a product of bytes
    weight = _weight(right)
    if weight is None:
        return None
    has_columns = weight.bits == 8 and weight.scale.block == right.shape[0]
    if has_columns and not byte_products.rounds_activations(compilation, weight.rounds_activations):
        if _is_split(node, compilation.target):
            return None
    return Match((node,), {"value": left, "weight": weight})


def _is_split(node: Node, target: Target) -> bool:
    """Return whether a product is faster in parts (:mod:`.split`), which those with packed weights do not have.

    Bytes with one scale a column are read a word of four columns at a time then, as they are.
    """
    rows, (terms, columns) = ix.product(list(node.output.shape[:-1])), node.operand(1).shape
    if has_few_rows(node) or not (isinstance(rows, int) and isinstance(terms, int) and isinstance(columns, int)):
        return False
    problem = gemm_tiles.Problem(rows, columns, terms)
    parts = gemm_tiles.split_parts(problem, terms, target)
    return parts > 1 and not packed_tiles.takes_groups(problem, target, gemm_tiles.parts_cost(problem, parts, target))


def _weight(right: Value) -> _Weight | None:
    """Return the parts of a weight [terms, columns], or None if it is computed in another way."""
    axis, value = 0, right
    while (above := produced_by(value, "Transpose", "Cast")) is not None and above.operand(0).dtype.is_float:
        if above.op == "Transpose" and permutation(above) == (1, 0):
            axis = 1 - axis
        value = above.operand(0)
    parts = _parts(value)
    if parts is None or parts[0].shape != value.shape or not all(isinstance(size, int) for size in value.shape):
        return None
    codes, scale, zero = parts
    bits = _bits(codes)
    if not bits:
        return None
    scales = _blocks(scale, value.shape, axis)
    zeros = None if zero is None else _blocks(zero, value.shape, axis)
    unit = unit_of(bits)
    if scales is None or scales.block % unit or ix.number(value.shape[axis]) % unit:
        return None
    if zero is not None and (zeros is None or (zeros.block != scales.block and not _is_one_number(zero))):
        return None
    node = value.producer
    rounds = node is not None and node.op == "Dequantize" and node.attributes.rounds_activations
    return _Weight(codes, bits, axis, scales, zeros, rounds)


def _is_one_number(parameter: Value) -> bool:
    numbers = static_numbers(parameter)
    return numbers is not None and numbers.size == 1


def _parts(value: Value) -> tuple[Value, Value, Value | None] | None:
    """Return codes, scale and zero point (None: zero) of a dequantised value."""
    node = produced_by(value, "loom.Dequantize", "Mul")
    if node is None:
        return None
    if node.op == "Dequantize":
        return node.operand(0), node.operand(1), node.optional(2)
    for number, scale in ((node.operand(0), node.operand(1)), (node.operand(1), node.operand(0))):
        zero = None
        difference = produced_by(number, "Sub")
        if difference is not None:
            number, zero = difference.operand(0), difference.operand(1)
        cast = produced_by(number, "Cast")
        if cast is not None and not cast.operand(0).dtype.is_float:
            return cast.operand(0), scale, zero
    return None


def _bits(codes: Value) -> int:
    """Return the width in which the codes are packed, the least that holds them; 0 for values that are no codes."""
    if codes.dtype.name not in CODES:
        return 0
    unpacked = produced_by(codes, "loom.UnpackBits")
    bits = codes.dtype.width if unpacked is None else int(unpacked.attributes.bits)
    return next((width for width in WIDTHS if width >= bits), 0)


def _blocks(parameter: Value, shape: Shape, axis: int) -> _Blocks | None:
    """Return how a parameter that broadcasts to the codes repeats along their terms."""
    repeated = produced_by(parameter, "loom.RepeatBlocks")
    if repeated is not None and repeated.attributes.axis == axis and repeated.operand(0).rank == 2:
        return _Blocks(repeated.operand(0), repeated.attributes.block)
    along = parameter.rank - 2 + axis
    if parameter.rank > 2 or (along >= 0 and parameter.shape[along] != 1):
        return None
    return _Blocks(parameter, ix.number(shape[axis]))


# -- packing ---------------------------------------------------------------------------------------------------------


def _pack(builder: GraphBuilder, match: Match) -> Value:
    weight: _Weight = match["weight"]
    columns = ix.number(weight.codes.shape[1 - weight.axis])
    words = builder.op("PackCodes", _rows_first(builder, weight.codes, weight.axis), domain="loom", bits=weight.bits)
    return builder.op(
        "PackedMatMul",
        match["value"],
        words,
        _packed(builder, weight.scale.value, columns, weight.axis),
        _zero(builder, weight, columns),
        domain="loom",
        bits=weight.bits,
        block=weight.scale.block,
        columns=columns,
        rounds_activations=weight.rounds_activations,
    )


def _zero(builder: GraphBuilder, weight: _Weight, columns: int) -> Value:
    """Return the code of zero: a number, or one for each block.  Packed codes of signed types begin at 0."""
    low = weight.codes.dtype.integer_range[0]
    if weight.zero is None:
        return builder.constant(np.array(-low, np.uint8))
    zero = weight.zero.value
    number = static_numbers(zero)
    if number is not None and number.size == 1:
        moved = number.reshape(()) - low if zero.dtype.is_float else np.uint8(int(number.reshape(-1)[0]) - low)
        return builder.constant(np.asarray(moved))
    if not zero.dtype.is_float and zero.dtype is not UINT8:
        wide = builder.op("Cast", zero, to=INT32.onnx)
        zero = builder.op("Cast", builder.op("Sub", wide, builder.scalar(low, wide)), to=UINT8.onnx)
    elif low:
        zero = builder.op("Sub", zero, builder.scalar(low, zero))
    return _packed(builder, zero, columns, weight.axis)


def _rows_first(builder: GraphBuilder, value: Value, axis: int) -> Value:
    return value if axis == 1 else builder.op("Transpose", value, perm=(1, 0))


def _packed(builder: GraphBuilder, parameter: Value, columns: int, axis: int) -> Value:
    """Pack a parameter of blocks; it keeps the type in which the file stores it."""
    rows = _rows_first(builder, view(builder, parameter, (1,) * (2 - parameter.rank) + parameter.shape), axis)
    if rows.shape[0] != columns:
        rows = builder.op("Expand", rows, builder.constant(np.array([columns, rows.shape[1]], np.int64)))
    packed = builder.op("PackBlocks", rows, domain="loom")
    while parameter.producer is not None and registry.of(parameter.producer).is_view:
        parameter = parameter.producer.operand(0)
    packed.storage = parameter.storage
    return packed


# -- factors of rows -------------------------------------------------------------------------------------------------


def _match_factor(node: Node, facts: GraphFacts) -> Match | None:
    """Match a product of few rows with activations that are divided by their root mean square, or the like."""
    value = node.operand(0)
    if not has_few_rows(node) or any(user.op != node.op or user.domain != node.domain for user in value.users):
        return None
    others: list[Value] = []
    while len(others) < _FACTORS and (product := produced_by(value, "Mul")) is not None:
        left, right = product.operand(0), product.operand(1)
        for factor, rest in ((left, right), (right, left)):
            total = row_total(factor, value)
            summed = None if total is None else total.operand(0).producer
            if summed is not None and rest in summed.inputs:
                return Match((node, product), {"factor": factor, "value": rest, "others": others})
        value, other = (left, right) if left.shape == value.shape else (right, left)
        others.append(other)
    return None


def _multiply_after(builder: GraphBuilder, match: Match) -> Value:
    """Multiply the few columns of the result instead: the product's kernel may compute the factor then."""
    root, value = match.root, match["value"]
    for other in match["others"]:
        value = builder.op("Mul", value, other)
    operands = [value, *map(root.operand, (1, 2, 3))]
    (result,) = builder.emit(registry.of(root), operands, root.attributes)
    return builder.op("Mul", result, match["factor"])


# -- weights that are read elsewhere too -----------------------------------------------------------------------------


def _match_shared(node: Node, facts: GraphFacts) -> Match | None:
    """Match packed codes that something else dequantises, too: the table of a tied embedding."""
    for user in node.operand(0).users:
        value = user.outputs[0]
        if user.op in ("Dequantize", "Cast") and not facts.is_output(value) and _is_selected(value):
            return Match((user,), {"packed": node})
    return None


def _is_selected(value: Value) -> bool:
    """Return whether rows of a value are selected, as they are or less a zero point and scaled."""
    return any(
        user.op in ("Gather", "GatherND") or (user.op in ("Sub", "Mul") and _is_selected(user.output))
        for user in value.users
        if not user.domain
    )


def _unpack(builder: GraphBuilder, match: Match) -> Value:
    root, packed = match.root, match["packed"]
    codes, bits = root.operand(0), packed.attributes.bits
    rows = ix.number(codes.shape[0])
    unpacked = builder.op("UnpackCodes", packed.output, domain="loom", bits=bits, rows=rows, to=codes.dtype.onnx)
    operands = [unpacked, *root.inputs[1:]]
    (result,) = builder.emit(registry.of(root), operands, root.attributes)
    return result


def rules(compilation: Compilation) -> tuple[Rule, ...]:
    """Return the rules that pack weights."""
    return (
        Rule("packed-weight", frozenset({"loom.MatMul"}), partial(_match, compilation=compilation), _pack),
        Rule("packed-once", frozenset({"loom.PackCodes"}), _match_shared, _unpack),
    )


def factor_rules(target: Target) -> tuple[Rule, ...]:
    """Return the rules for factors of rows: none where threads share no row, as each would compute the factor."""
    factors = Rule("factor-of-rows", frozenset({"loom.PackedMatMul"}), _match_factor, _multiply_after)
    return (factors,) if target.uses_workgroup_memory else ()
