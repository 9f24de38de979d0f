"""Quantised weights as products read them: codes packed into words, four rows of the weight side by side.

A weight [N, K] of codes ``q`` of ``bits`` bits stands for ``(q - zero) * scale``, with a scale for each block of
neighbours along K.  ``loom.PackCodes`` packs codes to words [N / 4, words of a row, 4], the first in the low bits, and
``loom.PackBlocks`` scales or zero points to [N / 4, blocks, 4]: one vector has a word, or a scale, of each of four
rows, which are the four neighbouring columns of a result that a thread computes.  ``loom.PackedMatMul`` multiplies by
such a weight.  Rows past the end hold zeros.  ``loom.UnpackCodes`` gives the codes back to who reads single rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import UINT32, from_onnx
from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.lanes import LANES
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..registry import Inferred, Read, register

WORD_BITS = 32
#: Rows of a product up to which a thread computes them all
MOST_ROWS = 8
#: Element types of codes
CODES = frozenset({"uint8", "int8", "uint4", "int4", "uint2", "int2"})


def unit_of(bits: int) -> int:
    """Return how many neighbours along K kernels decode together: whole words, and two vectors of activations."""
    return max(2 * LANES, WORD_BITS // bits)


def has_few_rows(node: Node) -> bool:
    """Return whether so few rows are multiplied that a kernel of its own reads the weight once for all."""
    rows = ix.product(list(node.outputs[0].shape[:-1]))
    return ix.bounds(rows)[1] <= MOST_ROWS and node.outputs[0].dtype.compute == "f32"


@record
class PackCodesAttributes:
    """Codes have ``bits`` bits; those of signed types are stored plus half of the range."""

    bits: int


@record
class PackedMatMulAttributes:
    """``columns`` are those of the result; ``block`` neighbours along K share a scale.

    ``rounds_activations``: the model allows that activations are rounded to 8 bits, with a scale for each block.
    """

    bits: int
    block: int
    columns: int
    rounds_activations: bool = False


def _inside(node: Node, coordinates: Sequence[Dim], value: Expr) -> Expr:
    """Return ``value`` in rows of the operand, zero past its end."""
    row = ix.add(ix.multiply(coordinates[0], LANES), coordinates[2])
    return ex.guard(ex.in_range(row, 0, node.operand(0).shape[0]), value, ex.const(0, value.dtype))


def _infer_codes(node: Node) -> Inferred:
    rows, size = node.operand(0).shape
    words = ix.divide(ix.multiply(size, node.attributes.bits), WORD_BITS)
    checks.require(words is not None, node, f"rows of {ix.text(size)} codes are not whole words")
    assert words is not None
    return [(UINT32, (ix.ceildiv(rows, LANES), words, LANES))]


def _read_codes(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    bits, signed = node.attributes.bits, node.operand(0).dtype.compute == "i32"
    group, word, lane = coordinates
    row, many = ix.add(ix.multiply(group, LANES), lane), WORD_BITS // bits
    result = ex.const(0, "u32")
    for place in range(many):
        code = ex.cast(read(0, (row, ix.add(ix.multiply(word, many), place))), "u32")
        if signed:
            code = ex.binary("and", code + ex.const(1 << (bits - 1), "u32"), ex.const((1 << bits) - 1, "u32"))
        result = ex.binary("or", result, ex.binary("shl", code, ex.const(bits * place, "u32"))) if place else code
    return _inside(node, coordinates, result)


register(
    name="PackCodes",
    domain="loom",
    infer=_infer_codes,
    attributes=PackCodesAttributes,
    gather=_read_codes,
    reads=8,
    types=(CODES,),
)


@record
class UnpackCodesAttributes:
    """The result has ``rows`` rows of codes of ``bits`` bits, in the element type ``to`` of ONNX."""

    bits: int
    rows: int
    to: int


def _infer_unpacked(node: Node) -> Inferred:
    attributes: UnpackCodesAttributes = node.attributes
    size = ix.number(node.operand(0).shape[1]) * (WORD_BITS // attributes.bits)
    return [(from_onnx(attributes.to), (attributes.rows, size))]


def _read_unpacked(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    attributes: UnpackCodesAttributes = node.attributes
    bits, many = attributes.bits, WORD_BITS // attributes.bits
    row, column = coordinates
    word = read(0, (ix.floordiv(row, LANES), ix.floordiv(column, many), ix.modulo(row, LANES)))
    shift = ex.cast(ex.coordinate(ix.multiply(ix.modulo(column, many), bits)), "u32")
    code = ex.binary("and", ex.binary("shr", word, shift), ex.const((1 << bits) - 1, "u32"))
    if node.output.dtype.compute == "u32":
        return code
    return ex.cast(code, "i32") - ex.const(1 << (bits - 1), "i32")


register(
    name="UnpackCodes",
    domain="loom",
    infer=_infer_unpacked,
    attributes=UnpackCodesAttributes,
    gather=_read_unpacked,
    types=(frozenset({"uint32"}),),
)


def _infer_blocks(node: Node) -> Inferred:
    rows, blocks = node.operand(0).shape
    return [(node.operand(0).dtype, (ix.ceildiv(rows, LANES), blocks, LANES))]


def _read_blocks(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    group, block, lane = coordinates
    return _inside(node, coordinates, read(0, (ix.add(ix.multiply(group, LANES), lane), block)))


register(
    name="PackBlocks",
    domain="loom",
    infer=_infer_blocks,
    gather=_read_blocks,
    reads=2,  # no view: what kernels read is the packed tensor
)


# -- the product -----------------------------------------------------------------------------------------------------


def _infer_product(node: Node) -> Inferred:
    value, attributes = node.operand(0), node.attributes
    return [(value.dtype, (*value.shape[:-1], attributes.columns))]


def packed_rows(packed: np.ndarray, columns: int) -> np.ndarray:
    """Return [N, ...] of a packed [N / 4, ..., 4]."""
    return packed.transpose(0, 2, 1).reshape(-1, packed.shape[1])[:columns]


def packed_weight(node: Node, operands: Sequence[np.ndarray]) -> np.ndarray:
    """Return the weight [N, K] of a ``PackedMatMul``, whose zero points are the last operand."""
    attributes: PackedMatMulAttributes = node.attributes
    words = packed_rows(operands[1], attributes.columns)
    shifts = np.arange(0, WORD_BITS, attributes.bits, dtype=np.uint32)
    codes = ((words[..., None] >> shifts) & ((1 << attributes.bits) - 1)).reshape(len(words), -1)

    def of_codes(parameter: np.ndarray) -> np.ndarray:
        if not parameter.ndim:
            return parameter
        return packed_rows(parameter, attributes.columns).repeat(attributes.block, axis=1)[:, : codes.shape[1]]

    scales, zeros = map(of_codes, operands[2:4])
    return np.asarray((codes.astype(np.float32) - zeros.astype(np.float32)) * scales.astype(np.float32))


register(
    name="PackedMatMul",
    domain="loom",
    infer=_infer_product,
    attributes=PackedMatMulAttributes,
    family="packed_gemm",
    types=(FLOATS, frozenset({"uint32"}), FLOATS, FLOATS | {"uint8"}),
)
