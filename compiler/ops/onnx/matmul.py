"""Matrix products.  The kernel family takes operands of rank at least 2 with numpy's broadcasting of batch axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..checks import NUMERIC, product_shape
from ..registry import Builder, Inferred, register


def _infer_matmul(node: Node) -> Inferred:
    left, right = node.operand(0), node.operand(1)
    checks.require_same_type(node, [left, right])
    return [(left.dtype, product_shape(node, left.shape, right.shape))]


def matmul_array(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Multiply with numpy; floats in double precision, rounded once, so that no sum depends on the processor's BLAS."""
    if left.dtype.kind in "iu":
        return np.matmul(left, right)
    return np.matmul(left.astype(np.float64), right.astype(np.float64)).astype(left.dtype)


def _fold_matmul(node: Node, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    if checks.is_symbolic(left) or checks.is_symbolic(right):
        raise ix.Undecidable("a matrix product of symbolic integers")
    return matmul_array(left, right)


def _expand_vectors(builder: Builder, node: Node) -> Sequence[Value]:
    """Unsqueeze rank-1 operands to matrices, and squeeze the result."""
    left, right = node.operand(0), node.operand(1)
    axes = []
    if left.rank == 1:
        axes.append(-2)
        left = builder.op("Unsqueeze", left, builder.constant(np.array([0], np.int64)))
    if right.rank == 1:
        axes.append(-1)
        right = builder.op("Unsqueeze", right, builder.constant(np.array([1], np.int64)))
    product = builder.op("MatMul", left, right, domain="loom")
    if axes:
        product = builder.op("Squeeze", product, builder.constant(np.array(axes, np.int64)))
    return [product]


register(
    name="MatMul",
    domain="loom",
    infer=_infer_matmul,
    family="gemm",
    types=(NUMERIC,),
    fold=_fold_matmul,
)
register(
    name="MatMul",
    infer=_infer_matmul,
    expand=_expand_vectors,
    types=(NUMERIC,),
    fold=_fold_matmul,
)


# -- Gemm ------------------------------------------------------------------------------------------------------------


@record
class GemmAttributes:
    alpha: float = 1.0
    beta: float = 1.0
    transA: int = 0
    transB: int = 0


def infer_gemm(node: Node) -> Inferred:
    attributes: GemmAttributes = node.attributes
    left, right, addend = node.operand(0), node.operand(1), node.optional(2)
    checks.require_same_type(node, [left, right, *([addend] if addend is not None else [])])
    checks.require(left.rank == right.rank == 2, node, "the operands of Gemm are matrices")
    rows = left.shape[::-1] if attributes.transA else left.shape
    columns = right.shape[::-1] if attributes.transB else right.shape
    shape = product_shape(node, rows, columns)
    if addend is not None:
        broadcast = checks.broadcast_shapes(node, [shape, addend.shape])
        checks.require(broadcast == shape, node, f"C of shape {checks.describe_shape(addend.shape)} does not broadcast")
    return [(left.dtype, shape)]


def _expand_gemm(builder: Builder, node: Node) -> Sequence[Value]:
    """Build alpha * A' * B' + beta * C, without multiplications by 1."""
    attributes: GemmAttributes = node.attributes
    left, right, addend = node.operand(0), node.operand(1), node.optional(2)
    if attributes.transA:
        left = builder.op("Transpose", left, perm=(1, 0))
    if attributes.transB:
        right = builder.op("Transpose", right, perm=(1, 0))
    result = _scaled(builder, builder.op("MatMul", left, right), attributes.alpha)
    if addend is not None and attributes.beta != 0.0:
        result = builder.op("Add", result, _scaled(builder, addend, attributes.beta))
    return [result]


def _scaled(builder: Builder, value: Value, factor: float) -> Value:
    """Build ``factor * value``; integers are multiplied in f32 by a factor that is not whole."""
    if factor == 1.0:
        return value
    if value.dtype.is_float or factor == int(factor):
        number = factor if value.dtype.is_float else int(factor)
        return builder.op("Mul", value, builder.scalar(number, value))
    scaled = builder.op(
        "Mul", builder.op("Cast", value, to=FLOAT32.onnx), builder.constant(np.array(factor, np.float32))
    )
    return builder.op("Cast", scaled, to=value.dtype.onnx)


register(
    name="Gemm",
    infer=infer_gemm,
    attributes=GemmAttributes,
    expand=_expand_gemm,
    types=(NUMERIC,),
)
