"""MatMulBnb4 (domain com.microsoft): weights of four bits that are places in a table of 16 numbers, NF4 or FP4.

Numbers follow each other over the whole weight [N, K], two in a byte with the first in its high bits; a block of them
shares a scale, the largest magnitude of what it was made of.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import INT32
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..checks import FLOATS
from ..math.nodes import in_type
from ..registry import Builder, Inferred, register

_UINT8 = frozenset({"uint8"})

#: The numbers of each format by ``quant_type``.  FP4: a sign, then three bits for magnitudes of a 12th; NF4: quantiles
#: of the normal distribution (Dettmers et al., QLoRA, 2023, appendix E)
_MAGNITUDES = (0.0, 0.0625 / 12, 8 / 12, 1.0, 4 / 12, 6 / 12, 2 / 12, 3 / 12)
_TABLES: dict[int, tuple[float, ...]] = {
    0: (*_MAGNITUDES, *(-number for number in _MAGNITUDES)),
    1: (
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
        *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
        *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ),
}


@record
class MatMulBnb4Attributes:
    """``transB`` 1: A [..., K] times the transpose of the weight [N, K]; 0: A [..., N] times the weight."""

    K: int
    N: int
    block_size: int
    quant_type: int
    training_mode: int = 0
    transB: int = 1


def _infer(node: Node) -> Inferred:
    attributes: MatMulBnb4Attributes = node.attributes
    value, weight, scales = node.operand(0), node.operand(1), node.operand(2)
    checks.require_choice(node, "quant_type", tuple(_TABLES))
    block, count = attributes.block_size, attributes.N * attributes.K
    checks.require(block >= 16 and not block & (block - 1), node, f"block_size {block} is no power of two from 16 on")
    inner, outer = (attributes.K, attributes.N) if attributes.transB else (attributes.N, attributes.K)
    fits = value.rank >= 1 and ix.equal(value.shape[-1], inner)
    checks.require(fits, node, f"A of shape {checks.describe_shape(value.shape)}, its last axis is {inner}")
    for operand, needed, what in ((weight, -(-count // 2), "bytes"), (scales, -(-count // block), "scales")):
        size = ix.product(operand.shape)
        checks.require(size == needed, node, f"{ix.text(size)} {what}, {needed} are needed")
    return [(value.dtype, (*value.shape[:-1], outer))]


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    attributes: MatMulBnb4Attributes = node.attributes
    value, count = node.operand(0), attributes.N * attributes.K
    column = builder.op("Reshape", node.operand(1), builder.constant(np.array([-1, 1])))
    high = builder.op("BitShift", column, builder.constant(np.array(4, np.uint8)), direction="RIGHT")
    low = builder.op("BitwiseAnd", column, builder.constant(np.array(15, np.uint8)))
    codes = builder.op("Reshape", builder.op("Concat", high, low, axis=1), builder.constant(np.array([-1])))
    if count % 2:
        ends = (builder.constant(np.array([number])) for number in (0, count))
        codes = builder.op("Slice", codes, *ends)
    table = builder.constant(np.array(_TABLES[attributes.quant_type], np.float32))
    numbers = builder.op("Gather", table, builder.op("Cast", codes, to=INT32.onnx), axis=0)
    scales = builder.op("Reshape", node.operand(2), builder.constant(np.array([-1])))
    repeated = builder.op("RepeatBlocks", scales, domain="loom", axis=0, block=attributes.block_size, size=count)
    flat = builder.op("Mul", in_type(builder, numbers, repeated.dtype), repeated)
    weight = builder.op("Reshape", flat, builder.constant(np.array([attributes.N, attributes.K])))
    if attributes.transB:
        weight = builder.op("Transpose", weight, perm=(1, 0))
    return [builder.op("MatMul", value, in_type(builder, weight, value.dtype))]


register(
    name="MatMulBnb4",
    domain="com.microsoft",
    infer=_infer,
    attributes=MatMulBnb4Attributes,
    expand=_expand,
    types=(FLOATS, _UINT8, FLOATS),
)
