"""Weights of two to eight bits in blocks along an axis: MatMulNBits and GatherBlockQuantized.

Numbers follow each other from the low bits of the first byte on.  ``loom.UnpackBits`` reads single numbers, so memory
holds the packed bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import UINT8
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.nodes import in_type
from ..onnx.quantize import dequantize
from ..registry import Builder, Indices, Inferred, Read, register

_UINT8 = frozenset({"uint8"})


# -- packed numbers --------------------------------------------------------------------------------------------------


@record
class UnpackBitsAttributes:
    """The last axis holds ``size`` numbers of ``bits`` bits."""

    bits: int
    size: Dim


def _infer_unpacked(node: Node) -> Inferred:
    return [(UINT8, (*node.operand(0).shape[:-1], node.attributes.size))]


def _read_unpacked(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    bits = node.attributes.bits
    *outer, last = coordinates
    start = ix.multiply(last, bits)
    first = ix.floordiv(start, 8)
    code = read(0, [*outer, first])
    if bits == 8:
        return code
    if 8 % bits:  # some numbers begin in one byte and end in the next
        end = ix.add(node.operand(0).shape[-1], -1)
        following = read(0, [*outer, ix.minimum(ix.add(first, 1), end)])
        code = ex.binary("or", code, ex.binary("shl", following, ex.const(8, "u32")))
    shift = ex.cast(ex.coordinate(ix.modulo(start, 8)), "u32")
    return ex.binary("and", ex.binary("shr", code, shift), ex.const((1 << bits) - 1, "u32"))


register(
    name="UnpackBits",
    domain="loom",
    infer=_infer_unpacked,
    attributes=UnpackBitsAttributes,
    gather=_read_unpacked,
    types=(_UINT8,),
)


def _check_bits(node: Node, widths: Sequence[int]) -> int:
    bits: int = node.attributes.bits
    checks.require_choice(node, "bits", widths)
    return bits


def unpacked(builder: Builder, value: Value, bits: int, size: Dim) -> Value:
    """Build the ``size`` numbers of ``bits`` bits that the bytes of the last axis hold."""
    return builder.op("UnpackBits", value, domain="loom", bits=bits, size=size)


def repeated(builder: Builder, value: Value, axis: int, block: int, size: Dim) -> Value:
    """Expand a parameter of blocks to the ``size`` numbers of ``axis``, ``block`` neighbours of which share one."""
    return builder.op("RepeatBlocks", value, domain="loom", axis=axis, block=block, size=size)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


# -- MatMulNBits -----------------------------------------------------------------------------------------------------


@record
class MatMulNBitsAttributes:
    """With an ``accuracy_level`` of 4 activations may be rounded to 8 bits; ``weight_prepacked`` is a hint to another
    runtime's kernels."""

    K: int
    N: int
    block_size: int
    bits: int = 4
    accuracy_level: int = 0
    weight_prepacked: int = 0


def _blocks(node: Node) -> int:
    """Return the number of blocks in a row of the weight."""
    return -(-node.attributes.K // node.attributes.block_size)


def _infer_matmul_nbits(node: Node) -> Inferred:
    attributes: MatMulNBitsAttributes = node.attributes
    value, weight = node.operand(0), node.operand(1)
    bits, block = _check_bits(node, range(2, 9)), attributes.block_size
    checks.require(block >= 16 and not block & (block - 1), node, f"block_size {block} is no power of two from 16 on")
    blocks = _blocks(node)
    groups = node.optional(4)
    checks.require(
        groups is None or groups.shape == (attributes.K,), node, f"g_idx is not one of {attributes.K} numbers"
    )
    checks.require_choice(node, "weight_prepacked", (0,))
    fits = value.rank >= 1 and ix.equal(value.shape[-1], attributes.K)
    checks.require(fits, node, f"A of shape {checks.describe_shape(value.shape)} for K = {attributes.K}")
    wanted = (attributes.N, blocks, block * bits // 8)
    checks.require(weight.shape == wanted, node, f"B of shape {checks.describe_shape(weight.shape)}, not {wanted}")
    scales = ix.product(node.operand(2).shape)
    checks.require(
        scales == attributes.N * blocks, node, f"{ix.text(scales)} scales for {attributes.N * blocks} blocks"
    )
    bias = node.optional(5)
    checks.require(bias is None or bias.shape == (attributes.N,), node, "the bias has one number for each column")
    return [(value.dtype, (*value.shape[:-1], attributes.N))]


def _zero_points(builder: Builder, node: Node, position: int, rows: int, blocks: int, bits: int) -> Value:
    """Build one zero point for each block: packed like the weight, in the type of the scales, or half of the range."""
    zero_points = node.optional(position)
    if zero_points is None:
        return builder.constant(np.array(1 << (bits - 1), np.uint8))
    if zero_points.dtype.is_float:
        return builder.op("Reshape", zero_points, builder.constant(_ints(rows, blocks)))
    packed = builder.op("Reshape", zero_points, builder.constant(_ints(rows, -(-blocks * bits // 8))))
    return unpacked(builder, packed, bits, blocks)


def _of_numbers(builder: Builder, node: Node, parameter: Value) -> Value:
    """Expand a parameter of blocks [N, blocks] to numbers [N, K], by the block of each number or by ``g_idx``."""
    attributes: MatMulNBitsAttributes = node.attributes
    groups = node.optional(4)
    if groups is not None:
        return builder.op("Gather", parameter, groups, axis=1)
    return repeated(builder, parameter, 1, attributes.block_size, attributes.K)


def _expand_matmul_nbits(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: MatMulNBitsAttributes = node.attributes
    value, bias = node.operand(0), node.optional(5)
    rows, blocks, bits = attributes.N, _blocks(node), attributes.bits
    row_bytes = blocks * attributes.block_size * bits // 8
    packed = builder.op("Reshape", node.operand(1), builder.constant(_ints(rows, row_bytes)))
    numbers = unpacked(builder, packed, bits, attributes.K)
    scales = builder.op("Reshape", node.operand(2), builder.constant(_ints(rows, blocks)))
    scales = _of_numbers(builder, node, scales)
    zeros = _zero_points(builder, node, 3, rows, blocks, bits)
    if zeros.rank:
        zeros = _of_numbers(builder, node, zeros)
    if zeros.dtype.is_float:
        difference = builder.op("Sub", builder.op("Cast", numbers, to=scales.dtype.onnx), zeros)
        weight = builder.op("Mul", difference, scales)
    else:
        rounds = attributes.accuracy_level == 4
        weight = dequantize(builder, numbers, scales, zeros, scales.dtype, rounds_activations=rounds)
    weight = in_type(builder, builder.op("Transpose", weight, perm=(1, 0)), value.dtype)
    result = builder.op("MatMul", value, weight)
    return [result if bias is None else builder.op("Add", result, bias)]


register(
    name="MatMulNBits",
    domain="com.microsoft",
    infer=_infer_matmul_nbits,
    attributes=MatMulNBitsAttributes,
    expand=_expand_matmul_nbits,
    types=(FLOATS, _UINT8, FLOATS, FLOATS | _UINT8, frozenset({"int32"}), FLOATS),
)


# -- GatherBlockQuantized --------------------------------------------------------------------------------------------


@record
class GatherBlockQuantizedAttributes:
    bits: int = 4
    block_size: int = 128
    gather_axis: int = 0
    quantize_axis: int = 1


def _is_packed(node: Node) -> bool:
    """Return whether bytes hold several numbers each, along the last axis; tensors of 4-bit integers are not packed."""
    return node.operand(0).dtype is UINT8


def _unpacked_shape(node: Node) -> tuple[Dim, ...]:
    data = node.operand(0)
    per_byte = 8 // _check_bits(node, (2, 4, 8)) if _is_packed(node) else 1
    return (*data.shape[:-1], ix.multiply(data.shape[-1], per_byte))


def _infer_gather_block(node: Node) -> Inferred:
    attributes: GatherBlockQuantizedAttributes = node.attributes
    data, indices, scales, zeros = node.operand(0), node.operand(1), node.operand(2), node.optional(3)
    checks.require(data.rank >= 1, node, "data is a scalar")
    checks.require(attributes.block_size > 0, node, f"block_size must be positive, not {attributes.block_size}")
    shape = _unpacked_shape(node)
    gathered = checks.normalise_axis(node, attributes.gather_axis, data.rank)
    quantised = checks.normalise_axis(node, attributes.quantize_axis, data.rank)
    if quantised != data.rank - 1 and _is_packed(node):
        checks.require_choice(node, "quantize_axis", (-1, data.rank - 1))
    blocks = ix.ceildiv(shape[quantised], attributes.block_size)
    wanted = (*shape[:quantised], blocks, *shape[quantised + 1 :])
    checks.require(scales.shape == wanted, node, f"scales of shape {checks.describe_shape(scales.shape)}")
    checks.require(zeros is None or zeros.dtype == data.dtype, node, "zero points of another type than the data")
    return [(scales.dtype, (*shape[:gathered], *indices.shape, *shape[gathered + 1 :]))]


def _gathered_sizes(node: Node) -> Sequence[Dim]:
    axis = checks.normalise_axis(node, node.attributes.gather_axis, node.operand(0).rank)
    return [_unpacked_shape(node)[axis]]


def _expand_gather_block(builder: Builder, node: Node) -> Sequence[Value]:
    """Dequantise, then gather: fusion reads only what is gathered.

    Without zero points packed bytes have half of their range as the zero point, 4-bit integers have 0.
    """
    attributes: GatherBlockQuantizedAttributes = node.attributes
    numbers, scales, zeros = node.operand(0), node.operand(2), node.optional(3)
    axis = attributes.quantize_axis % numbers.rank
    size = _unpacked_shape(node)[axis]
    if _is_packed(node):
        numbers = unpacked(builder, numbers, attributes.bits, size)
        if zeros is not None:
            zeros = unpacked(builder, zeros, attributes.bits, scales.shape[axis])
        else:
            zeros = builder.constant(np.array(1 << (attributes.bits - 1), np.uint8))
    if node.optional(3) is not None:
        assert zeros is not None
        zeros = repeated(builder, zeros, axis, attributes.block_size, size)
    scales = repeated(builder, scales, axis, attributes.block_size, size)
    floats = dequantize(builder, numbers, scales, zeros, scales.dtype)
    return [builder.op("Gather", floats, node.operand(1), axis=attributes.gather_axis % numbers.rank)]


_BLOCK_DATA = _UINT8 | {"int4", "uint4"}

register(
    name="GatherBlockQuantized",
    domain="com.microsoft",
    infer=_infer_gather_block,
    attributes=GatherBlockQuantizedAttributes,
    expand=_expand_gather_block,
    indices=(Indices(1, _gathered_sizes),),
    types=(_BLOCK_DATA, checks.INDICES, FLOATS, _BLOCK_DATA),
)
