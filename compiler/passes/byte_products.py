"""Products of quantised tensors become products of bytes (``loom.ByteMatMul``), four terms at a time.

*Integers*: the operands of an integer product are bytes less a zero point, ``(a - za) (b - zb)``.  With signed bytes
``a'`` and ``b'`` (unsigned ones less 128, their zero points too) the sum over the terms is::

    sum a' b'  -  za' sum (b - zb)  -  zb' sum a'

in wrapping integers, where the second sum is that of columns of the constant weight, and the third one of rows of the
activation, which the product's kernel computes besides, and weights with a zero point of zero do not need.

*Dequantised tensors*: the product of ``(a - za) sa`` and ``(b - zb) sb`` is the product of integers times ``sa sb``.

*Floats times dequantised weights* with scales of columns are scaled behind the product.

*Weights in blocks*, where the model or the caller says that activations may have 8 bits: activations are rounded with a
scale for each group of terms, 1/127 of the largest magnitude.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ...runtime.plan.dtypes import FLOAT32, INT8, INT32, UINT8
from ...runtime.plan.record import record
from ..compilation import Compilation
from ..ir.graph import Node, Value
from ..ops.internal.byte_products import MOST_GROUP, group_scales
from ..ops.internal.packed_weights import has_few_rows
from ..ops.internal.ranges import words_shape
from ..ops.math.nodes import in_type, part
from ..ops.math.reductions import reduce
from ..ops.onnx.quantize import BYTES, centred
from ..ops.onnx.views import permutation
from ..ops.registry import registry
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, Match, Rule
from ..symbolic import polynomial as ix
from ..symbolic.polynomial import Dim
from ..target import Target
from ..tuning import packed_tiles
from ..tuning.gemm_tiles import Problem, parts_cost
from .patterns import is_filled_with, produced_by, static_numbers, view

#: Multiplications from which the weight of a product may be packed in each run: the three calls that this takes, some
#: 15 us on an NVIDIA H200, are a quarter of the time that bytes save there, by the rates of its units
_LARGE_PRODUCT = 1 << 30
#: Terms of a group of activations, at least: fewer would spend the time on scaling
_LEAST_GROUP = 32


@record(slots=False)
class ByteFactor:
    """An integer factor, ``number - zero``: ``zero`` is an integer, as a value or an array; None stands for 0.

    The number is a tensor of bytes, or of known integers that are bytes once they are shifted (:func:`of_bytes`), by a
    number for each index of ``axis``.
    """

    number: Value
    zero: Value | np.ndarray | None
    axis: int = 0

    @property
    def low(self) -> int:
        """What is subtracted to make the number a signed byte."""
        return 128 if self.number.dtype is UINT8 else 0


# -- integers --------------------------------------------------------------------------------------------------------


def _match_integers(node: Node, facts: GraphFacts) -> Match | None:
    """Match an integer product of bytes with a matrix of bytes."""
    left, right = centred_factor(node.operand(0)), centred_factor(node.operand(1), 1)
    if left is None or right is None or not _are_factors(left, right, facts):
        return None
    return Match((node,), {"left": left, "right": right})


def centred_factor(value: Value, axis: int = 0) -> ByteFactor | None:
    """Return the parts of ``Cast(bytes) - zero``, or known numbers that were such; None for anything else.

    A known zero point varies along ``axis`` at most.
    """
    numbers = static_numbers(value)
    if numbers is not None and value.dtype is INT32 and value.rank:
        return ByteFactor(value, None, axis) if _shift(numbers, axis) is not None else None
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
    return ByteFactor(cast.operand(0), zero)


def _are_factors(left: ByteFactor, right: ByteFactor, facts: GraphFacts, turned: bool = False) -> bool:
    """Return whether rows of an activation meet columns of a matrix, or rows of one that is ``turned``, each with a
    zero point of its own; the matrix is constant, or the product large."""
    a, b = left.number, right.number
    if any(factor.zero is not None and len(factor.zero.shape) > factor.number.rank for factor in (left, right)):
        return False
    if b.rank != 2 or a.rank < 1 or facts.is_constant(a) or not b.shape[int(turned)]:
        return False
    if not facts.is_constant(b) and not _pays_to_pack(a, b.shape[1 - turned]):
        return False
    return _repeats(left.zero, 1) and _repeats(right.zero, 1 if turned else 2)


def _pays_to_pack(activations: Value, columns: Dim) -> bool:
    """Return whether a product is so large that packing its weight in each run is little beside it."""
    multiplies = ix.bounds(activations.elements)[1] * columns if isinstance(columns, int) else 0
    return multiplies >= _LARGE_PRODUCT


def _repeats(parameter: Value | np.ndarray | None, axis: int) -> bool:
    """Return whether a parameter has one number along the axis, counted from the end, of the terms."""
    return parameter is None or len(parameter.shape) < axis or parameter.shape[-axis] == 1


def _integers(builder: GraphBuilder, match: Match) -> Value:
    return _product(builder, match["left"], match["right"])


def _product(builder: GraphBuilder, left: ByteFactor, right: ByteFactor) -> Value:
    """Build the exact product, in int32."""
    left, right = of_bytes(builder, left), of_bytes(builder, right)
    words = pack(builder, left, range(left.number.rank))
    columns = ix.number(right.number.shape[1])
    packed = builder.op("PackBlocks", pack(builder, right, (1, 0)), domain="loom")
    zero, weight_zero = signed_zero(builder, left), signed_zero(builder, right)
    operands = [words, packed] if weight_zero is None else [words, packed, column_parameter(builder, weight_zero)]
    result = builder.op("ByteMatMul", *operands, domain="loom", columns=columns)
    return result if zero is None else builder.op("Sub", result, builder.op("Mul", zero, _column_sums(builder, right)))


def column_parameter(builder: GraphBuilder, parameter: Value) -> Value:
    """Reshape a parameter of a weight's columns, or one number of all, to at most one axis."""
    return view(builder, parameter, () if parameter.elements == 1 else (parameter.elements,))


def of_bytes(builder: GraphBuilder, factor: ByteFactor) -> ByteFactor:
    """Return the factor with a number that is a tensor of bytes, and a zero point of int32."""
    number, zero = factor.number, factor.zero
    numbers = static_numbers(number)
    if number.dtype is INT32 and numbers is not None:
        shift = _shift(numbers, factor.axis)
        assert shift is not None
        shifted = builder.op("Add", number, builder.constant(shift))
        return ByteFactor(in_type(builder, shifted, INT8), shift if shift.any() else None)
    if not isinstance(zero, Value) or zero.dtype is INT32:
        return factor
    return ByteFactor(number, builder.op("Cast", zero, to=INT32.onnx))


def _shift(numbers: np.ndarray, axis: int) -> np.ndarray | None:
    """Return what is added to known integers to make them signed bytes, for each index of an axis; None where they
    spread too far."""
    if not numbers.size or numbers.ndim <= axis:
        return None
    others = tuple(each for each in range(numbers.ndim) if each != axis)
    low, high = numbers.min(axis=others, keepdims=True), numbers.max(axis=others, keepdims=True)
    if (high - low > 255).any():
        return None
    return np.where((low >= -128) & (high < 128), 0, -128 - low).astype(np.int32)


def pack(builder: GraphBuilder, factor: ByteFactor, order: Sequence[int]) -> Value:
    """Pack a factor, its axes in another order, to words along the last one."""
    number = factor.number
    if tuple(order) != tuple(range(number.rank)):
        number = builder.op("Transpose", number, perm=tuple(order))
    return builder.op("PackBytes", number, domain="loom")


def signed_zero(builder: GraphBuilder, factor: ByteFactor) -> Value | None:
    """Build the zero point of a factor's signed bytes; None if it is known to be 0."""
    if factor.zero is None:
        return builder.constant(np.array(-factor.low, np.int32)) if factor.low else None
    numbers = factor.zero if isinstance(factor.zero, np.ndarray) else static_numbers(factor.zero)
    if numbers is not None:
        return builder.constant(np.asarray(numbers - factor.low, np.int32)) if (numbers != factor.low).any() else None
    assert isinstance(factor.zero, Value)
    return builder.op("Sub", factor.zero, builder.scalar(factor.low, factor.zero)) if factor.low else factor.zero


def _column_sums(builder: GraphBuilder, right: ByteFactor) -> Value:
    zero = builder.constant(right.zero) if isinstance(right.zero, np.ndarray) else right.zero
    return reduce(builder, centred(builder, right.number, zero), "sum", (0,), keepdims=False)


# -- dequantised tensors ---------------------------------------------------------------------------------------------


def match_dequantised(node: Node, facts: GraphFacts) -> Match | None:
    """Match a product of two tensors that are dequantised, with scales of rows and of columns."""
    left, right = node.operand(0), node.operand(1)
    turned = produced_by(right, "Transpose")  # a weight [columns, terms]
    if turned is not None and permutation(turned) == (1, 0):
        right = turned.operand(0)
    nodes = [produced_by(value, "loom.Dequantize") for value in (left, right)]
    if node.output.dtype is not FLOAT32 or any(each is None for each in nodes):
        return None
    factors, scales = [], []
    for each, axis in zip(nodes, (1, 2 if turned is None else 1), strict=True):
        assert each is not None
        number, scale, zero = each.operand(0), each.operand(1), each.optional(2)
        if number.dtype.name not in BYTES or number.shape != each.output.shape or not _repeats(scale, axis):
            return None
        factors.append(ByteFactor(number, zero))
        scales.append(scale)
    if not _are_factors(factors[0], factors[1], facts, turned is not None):
        return None
    return Match((node,), {"factors": factors, "scales": scales, "turned": turned is not None})


def _dequantised(
    builder: GraphBuilder, match: Match, product: Callable[[GraphBuilder, ByteFactor, ByteFactor], Value]
) -> Value:
    """Build the product of bytes, as floats, times the scales."""
    left, right = match["factors"]
    one, other = (in_type(builder, scale, FLOAT32) for scale in match["scales"])
    if match["turned"]:
        assert not isinstance(right.zero, np.ndarray)  # those of known integers, which are not dequantised
        zero = None if right.zero is None else _turned(builder, right.zero)
        right, other = ByteFactor(_turned(builder, right.number), zero), _turned(builder, other)
    return builder.op("Mul", product(builder, left, right), builder.op("Mul", one, other))


def _exact_product(builder: GraphBuilder, left: ByteFactor, right: ByteFactor) -> Value:
    return builder.op("Cast", _product(builder, left, right), to=FLOAT32.onnx)


def _turned(builder: GraphBuilder, value: Value) -> Value:
    """Transpose a matrix, or a parameter that broadcasts to one."""
    if value.rank < 2:
        return value if value.elements == 1 else view(builder, value, (value.elements, 1))
    return builder.op("Transpose", value, perm=(1, 0))


# -- products of floats ----------------------------------------------------------------------------------------------


def _match_cast_integers(node: Node, facts: GraphFacts) -> Match | None:
    """Match the conversion to floats of an integer product that nothing else reads."""
    product = produced_by(node.operand(0), "loom.MatMul")
    if node.output.dtype is not FLOAT32 or product is None or not facts.single_use(product.output):
        return None
    match = _match_integers(product, facts)
    return None if match is None else Match((node, product), match.parts)


def _cast_integers(builder: GraphBuilder, match: Match) -> Value:
    return _float_product(builder, match["left"], match["right"])


def _float_product(builder: GraphBuilder, left: ByteFactor, right: ByteFactor) -> Value:
    """Build the product of bytes less their zero points in floats, as exact as any product of floats."""
    one, other = (number_less_zero(builder, of_bytes(builder, factor)) for factor in (left, right))
    return builder.op("MatMul", one, other, domain="loom")


def number_less_zero(builder: GraphBuilder, factor: ByteFactor) -> Value:
    """Build the numbers of a factor as floats; zero points are subtracted from integers, so that expressions cancel one
    that was added just before."""
    zero = builder.constant(factor.zero) if isinstance(factor.zero, np.ndarray) else factor.zero
    if zero is None or is_filled_with(zero, 0):
        return in_type(builder, factor.number, FLOAT32)
    return in_type(builder, centred(builder, factor.number, zero), FLOAT32)


def _match_scaled_weight(node: Node, facts: GraphFacts) -> Match | None:
    """Match a product of floats with a constant weight of bytes, less a zero point, times scales of its columns."""
    left, right = node.operand(0), node.operand(1)
    if node.output.dtype is not FLOAT32 or right.rank != 2 or facts.is_constant(left) or not facts.is_constant(right):
        return None
    dequantised, scaled = produced_by(right, "loom.Dequantize"), produced_by(right, "Mul")
    if dequantised is not None:
        factor = ByteFactor(dequantised.operand(0), dequantised.optional(2))
        return _scaled_weight_match(node, factor, dequantised.operand(1))
    if scaled is None:
        return None
    for number, scale in ((0, 1), (1, 0)):
        cast = produced_by(scaled.operand(number), "Cast")
        weight = None if cast is None else ByteFactor(cast.operand(0), None)
        match = None if weight is None else _scaled_weight_match(node, weight, scaled.operand(scale))
        if match is not None:
            return match
    return None


def _scaled_weight_match(node: Node, weight: ByteFactor, scale: Value) -> Match | None:
    fits = weight.number.dtype.name in BYTES and weight.number.shape == node.operand(1).shape and _repeats(scale, 2)
    return Match((node,), {"weight": weight, "scale": scale}) if fits else None


def _scaled_weight(builder: GraphBuilder, match: Match) -> Value:
    weight = number_less_zero(builder, of_bytes(builder, match["weight"]))
    product = builder.op("MatMul", match.root.operand(0), weight, domain="loom")
    return builder.op("Mul", product, in_type(builder, match["scale"], FLOAT32))


def _match_scaled_columns(node: Node, facts: GraphFacts) -> Match | None:
    """Match a product of many rows with a packed weight that has one scale for each column."""
    scale = node.operand(2)
    fits = node.output.dtype is FLOAT32 and not has_few_rows(node) and scale.rank and scale.shape[1] == 1
    return Match((node,)) if fits else None


def _scaled_columns(builder: GraphBuilder, match: Match) -> Value:
    node = match.root
    value, words, scale, zero = map(node.operand, range(4))
    operands = [value, words, builder.scalar(1, scale), zero]
    (product,) = builder.emit(registry.of(node), operands, node.attributes)
    scales = part(builder, view(builder, scale, (scale.elements,)), 0, 0, node.attributes.columns)
    return builder.op("Mul", product, in_type(builder, scales, FLOAT32))


# -- weights in blocks -----------------------------------------------------------------------------------------------


def rounds_activations(compilation: Compilation, is_allowed: bool) -> bool:
    """Return whether a product with a packed weight may round activations to 8 bits, as the caller wants; the model
    tells whether that ``is_allowed`` of itself."""
    choice = compilation.options.activations
    return bool(compilation.target.byte_products) and (choice == "int8" or (choice == "auto" and is_allowed))


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


def _takes_groups(node: Node, target: Target) -> bool:
    """Return whether groups of rows are multiplied by the packed weight sooner than activations of 8 bits."""
    rows, columns, terms = ix.product(list(node.output.shape[:-1])), node.attributes.columns, node.operand(0).shape[-1]
    words = Problem.of(rows, columns, ix.floordiv(terms, 4), factors="scaled words")
    return packed_tiles.takes_groups(Problem.of(rows, columns, terms), target, parts_cost(words, 1, target))


def _blocks(builder: GraphBuilder, match: Match) -> Value:
    node, group = match.root, match["group"]
    value, attributes = node.operand(0), node.attributes
    shape, scales = words_shape(value.shape), group_scales(value.shape, group)
    count = ix.product(list(shape))
    rounded = builder.op("RoundGroups", value, domain="loom", group=group, stride=8 // attributes.bits)
    bits = part(builder, rounded, 0, count, ix.product(list(scales)))
    return builder.op(
        "ByteMatMul",
        view(builder, part(builder, rounded, 0, 0, count), shape),
        node.operand(1),
        view(builder, builder.op("BitCast", bits, to=FLOAT32.onnx), scales),
        *map(node.operand, (2, 3)),
        domain="loom",
        columns=attributes.columns,
        bits=attributes.bits,
        block=attributes.block,
        group=group,
    )


def rules(compilation: Compilation) -> tuple[Rule, ...]:
    """Return the rules: activations are rounded where the device multiplies bytes fast, and it is allowed.

    A product of bytes is many instructions in software drivers, which their compilers take minutes for.  They multiply
    floats.  Products of floats are scaled in place of each factor.
    """
    products, packed = frozenset({"loom.MatMul"}), frozenset({"loom.PackedMatMul"})
    scaled = (
        Rule("scales-of-weight-behind-product", products, _match_scaled_weight, _scaled_weight),
        Rule("scales-of-columns-behind-product", packed, _match_scaled_columns, _scaled_columns),
    )
    if not compilation.target.uses_workgroup_memory:
        return (
            Rule("integers-as-floats", frozenset({"Cast"}), _match_cast_integers, _cast_integers),
            Rule("scales-behind-product", products, match_dequantised, partial(_dequantised, product=_float_product)),
            *scaled,
        )
    exact = (
        Rule("integer-product", products, _match_integers, _integers),
        Rule("dequantised-product", products, match_dequantised, partial(_dequantised, product=_exact_product)),
    )

    def allowed(node: Node, facts: GraphFacts) -> Match | None:
        if not rounds_activations(compilation, node.attributes.rounds_activations):
            return None
        match = _match_blocks(node, facts)
        return None if match is None or _takes_groups(node, compilation.target) else match

    return (*exact, Rule("rounded-activations", packed, allowed, _blocks), *scaled)
