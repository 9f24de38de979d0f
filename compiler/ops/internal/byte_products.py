"""Products of bytes: four signed integers of 8 bits in a word, multiplied with four others at a time.

``loom.PackBytes`` packs integers along the last axis to words, the first in the low bits; unsigned ones less 128.
With a ``stride`` the bytes of a word are terms so far apart, and the words of ``4 stride`` neighbours follow each
other: the order in which masks and shifts take codes of fewer bits out of their words.

``loom.RoundGroups`` rounds a tensor [..., M, K] to bytes with a scale for each ``group`` of neighbours, 1/127 of the
largest magnitude: the words that ``loom.PackBytes`` makes of the bytes, one after another, and behind them the bits of
the scales.

``loom.ByteMatMul`` multiplies words of activations [..., M, W] by those of a weight [N / 4, W, 4], in the order of
:mod:`.packed_weights`: exactly, to integers of 32 bits.  A last operand, int32 of no axis or [N], is subtracted from
the bytes of the weight.  With scales of activations [..., M, groups] it multiplies by a weight of blocks, whose words,
scales and zero points are those of ``loom.PackedMatMul``, to floats: the sum of each group of terms is exact, then
scaled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32, INT32, UINT32
from ....runtime.plan.record import record
from ...ir.graph import Node, Shape
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from ..checks import FLOATS
from ..registry import Inferred, Read, register
from .packed_weights import packed_rows, packed_weight

_BYTES = frozenset({"int8", "uint8"})
#: Bytes of a word
WORD_BYTES = 4
#: Terms of a group of activations at the most; their sum of products of bytes is exact as a float of 23 bits
MOST_GROUP = 128
#: Magnitude that the largest number of a group has as a byte
LARGEST_BYTE = 127


@record
class PackBytesAttributes:
    """``stride`` is the distance of the terms in a word; with more than 1 their number is a multiple of 4 strides."""

    stride: int = 1


@record
class ByteMatMulAttributes:
    """``columns`` are those of the result.

    ``block`` terms share a scale of the weight, whose codes have ``bits`` bits, and ``group`` terms one of the
    activations; 0: there are no scales, and the weight is signed bytes.
    """

    columns: int
    bits: int = 8
    block: int = 0
    group: int = 0

    @property
    def stride(self) -> int:
        """Distance of the terms in a word of activations (``PackBytes``)."""
        return 8 // self.bits


def _infer_bytes(node: Node) -> Inferred:
    shape = node.operand(0).shape
    return [(UINT32, (*shape[:-1], ix.ceildiv(shape[-1], WORD_BYTES)))]


def _read_bytes(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    *outer, word = coordinates
    size, signed = node.operand(0).shape[-1], node.operand(0).dtype.compute == "i32"
    stride = node.attributes.stride
    first = ix.add(ix.multiply(ix.floordiv(word, stride), WORD_BYTES * stride), ix.modulo(word, stride))
    codes = []
    for place in range(WORD_BYTES):
        at = ix.add(first, place * stride)
        code = ex.cast(read(0, (*outer, at)), "u32")
        inside = ex.const(True, "bool") if ix.divide(size, WORD_BYTES) is not None else ex.in_range(at, 0, size)
        codes.append(ex.guard(inside, code, ex.const(0 if signed else 128, "u32")))
    result = ex.word(codes)
    return result if signed else ex.binary("xor", result, ex.const(0x80808080, "u32"))


def _are_words(node: Node) -> bool:
    """Return whether the bytes of a word are neighbours in memory: they are if their axis becomes the innermost one,
    which that of a model's input may not."""
    value = node.operand(0)
    while value.producer is not None and value.producer.op == "Transpose" and not value.producer.domain:
        value = value.producer.operand(0)
    placed = value is node.operand(0) or value.producer is not None
    return placed and node.attributes.stride == 1 and ix.divide(node.operand(0).shape[-1], WORD_BYTES) is not None


register(
    name="PackBytes",
    domain="loom",
    infer=_infer_bytes,
    attributes=PackBytesAttributes,
    gather=_read_bytes,
    reads=WORD_BYTES,
    reads_word=_are_words,
    types=(_BYTES,),
)


@record
class RoundGroupsAttributes:
    """``group`` neighbours along the last axis share a scale; ``stride`` is that of :class:`PackBytesAttributes`."""

    group: int
    stride: int = 1


def group_scales(shape: Shape, group: int) -> tuple[Dim, ...]:
    """Return the shape of the scales of a tensor's groups."""
    return (*shape[:-1], ix.floordiv(shape[-1], group))


def _infer_groups(node: Node) -> Inferred:
    shape, group = node.operand(0).shape, node.attributes.group
    scales = ix.product(list(group_scales(shape, group)))
    return [(UINT32, (ix.multiply(scales, group // WORD_BYTES + 1),))]


def rounded_groups(values: np.ndarray, group: int, stride: int) -> np.ndarray:
    """Return the result of a ``RoundGroups``."""
    groups = np.asarray(values, np.float32).reshape(-1, group)
    scales = np.abs(groups).max(axis=1, initial=0.0) * np.float32(1 / LARGEST_BYTE)
    with np.errstate(invalid="ignore", divide="ignore"):  # a group of zeros has a scale of 0, and any bytes
        quotients = np.rint(groups / scales[:, None])
    numbers = np.clip(np.nan_to_num(quotients), -LARGEST_BYTE - 1, LARGEST_BYTE).astype(np.int8)
    units = numbers.reshape(-1, WORD_BYTES, stride).swapaxes(1, 2)
    words = np.ascontiguousarray(units).reshape(-1).view(np.uint32)
    return np.concatenate([words, scales.view(np.uint32)])


register(
    name="RoundGroups",
    domain="loom",
    infer=_infer_groups,
    attributes=RoundGroupsAttributes,
    family="round_groups",
    types=(frozenset({"float32"}),),
)


def _infer_product(node: Node) -> Inferred:
    dtype = FLOAT32 if node.attributes.group else INT32
    return [(dtype, (*node.operand(0).shape[:-1], node.attributes.columns))]


def signed_bytes(words: np.ndarray) -> np.ndarray:
    """Return the bytes [..., 4 W] of words [..., W], as integers of 32 bits."""
    return np.ascontiguousarray(words).view(np.int8).astype(np.int32)


def byte_product(node: Node, operands: Sequence[np.ndarray]) -> np.ndarray:
    """Return the result of a ``ByteMatMul``."""
    attributes: ByteMatMulAttributes = node.attributes
    left = signed_bytes(operands[0])
    left = left.reshape(*left.shape[:-1], -1, attributes.stride, WORD_BYTES).swapaxes(-1, -2).reshape(left.shape)
    if not attributes.group:
        rows = signed_bytes(packed_rows(operands[1], attributes.columns))
        zero = operands[2].reshape(-1, 1) if len(operands) > 2 else 0
        return np.asarray(left @ (rows - zero).T)
    scale = operands[2].repeat(attributes.group, axis=-1)
    weight = packed_weight(node, [operands[0], operands[1], operands[3], operands[4]])
    return np.asarray((left * scale) @ weight.T, np.float32)


register(
    name="ByteMatMul",
    domain="loom",
    infer=_infer_product,
    attributes=ByteMatMulAttributes,
    family="byte_gemm",
    types=(frozenset({"uint32"}), frozenset({"uint32"}), frozenset({"float32", "int32"}), FLOATS, FLOATS | {"uint8"}),
)
