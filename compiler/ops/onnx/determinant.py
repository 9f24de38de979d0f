"""Det: Gaussian elimination with partial pivoting, a few elementwise kernels a column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.errors import UnsupportedError
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..checks import FLOATS
from ..math.nodes import in_type, part, view
from ..registry import Builder, Inferred, register

#: Largest matrix: elimination is written out column by column
MAX_SIZE = 32


def _size(node: Node) -> int:
    value = node.operand(0)
    checks.require(value.rank >= 2 and ix.equal(value.shape[-1], value.shape[-2]), node, "Det needs square matrices")
    size = checks.concrete(node, value.shape[-1], "the size of a matrix")
    if size > MAX_SIZE:
        raise UnsupportedError(f"Det of matrices of size {size}", origin=node.origin, hint=f"at most {MAX_SIZE}")
    return size


def _infer(node: Node) -> Inferred:
    _size(node)
    return [(node.operand(0).dtype, node.operand(0).shape[:-2])]


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    size, dtype = _size(node), node.operand(0).dtype
    matrix = in_type(builder, node.operand(0), FLOAT32)
    batch = matrix.shape[:-2]
    matrix = view(builder, matrix, ix.product(batch), size, size)
    result: Value | None = None
    for _ in range(size):
        pivot, matrix = _eliminate(builder, matrix)
        result = pivot if result is None else builder.op("Mul", result, pivot)
    if result is None:  # the determinant of nothing
        result = builder.op("Broadcast", builder.scalar(1.0, matrix), domain="loom", shape=(matrix.shape[0], 1, 1))
    return [in_type(builder, view(builder, result, *batch), dtype)]


def _eliminate(builder: Builder, matrix: Value) -> tuple[Value, Value]:
    """Return the signed pivot [batch, 1, 1] of the first column, and the rest of the matrix without its row and column.

    The first row replaces the pivot's row, which changes the sign.
    """
    batch, size = matrix.shape[0], ix.number(matrix.shape[1])
    column = part(builder, matrix, 2, 0, 1)
    largest = builder.op("ArgMax", builder.op("Abs", column), axis=1, keepdims=1)
    chosen = builder.op("Broadcast", largest, domain="loom", shape=(batch, 1, size))
    row = builder.op("GatherElements", matrix, chosen, axis=1)
    pivot = part(builder, row, 2, 0, 1)
    zero, one = builder.scalar(0.0, matrix), builder.scalar(1.0, matrix)
    first = builder.op("Equal", largest, builder.constant(np.array(0, np.int64)))
    sign = builder.op("Where", first, one, builder.op("Neg", one))
    signed = builder.op("Mul", pivot, sign)
    if size == 1:
        return signed, matrix
    rest = size - 1
    numbers = builder.constant(np.arange(1, size, dtype=np.int64).reshape(1, rest, 1))
    is_pivot = builder.op("Equal", numbers, largest)
    below = builder.op("Where", is_pivot, part(builder, matrix, 1, 0, 1), part(builder, matrix, 1, 1, rest))
    divisor = builder.op("Where", builder.op("Equal", pivot, zero), one, pivot)  # a column of zeros: nothing to do
    factors = builder.op("Div", part(builder, below, 2, 0, 1), divisor)
    product = builder.op("Mul", factors, part(builder, row, 2, 1, rest))
    return signed, builder.op("Sub", part(builder, below, 2, 1, rest), product)


register(
    name="Det",
    infer=_infer,
    expand=_expand,
    types=(FLOATS,),
)
