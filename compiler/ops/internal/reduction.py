"""Reductions.  They expand to ``loom.Reduce`` and ``loom.ArgReduce``; the rest is elementwise.

Integer reductions keep their type and wrap; float ones accumulate in f32.  An empty reduction gives the identity of its
operation (0, 1, the lowest or the highest number of the type).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.plan.dtypes import INT64, DType
from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Undecidable
from .. import checks
from ..checks import NUMERIC
from ..math.reductions import reduced_shape
from ..registry import Inferred, register

# -- the two kernel families -----------------------------------------------------------------------------------------


@record
class ReduceAttributes:
    """``kind`` is sum, prod, max, min or max_number; ``axes`` are sorted and count from the front.

    Of floats with a NaN among them max and min are NaN; max_number, which costs less, is a NaN or any of the numbers.
    """

    kind: str
    axes: tuple[int, ...]
    keepdims: bool


def _infer_reduce(node: Node) -> Inferred:
    attributes: ReduceAttributes = node.attributes
    value = node.operand(0)
    return [(value.dtype, reduced_shape(value.shape, attributes.axes, attributes.keepdims))]


REDUCERS: dict[str, Callable[..., Any]] = {
    "sum": np.add.reduce,
    "prod": np.multiply.reduce,
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
    "max_number": np.fmax.reduce,
}


def identity(kind: str, dtype: DType) -> float | int:
    """Return the identity of a reduction: its result for no elements, and the padding of a partial reduction."""
    if kind in ("sum", "prod"):
        return int(kind == "prod")
    if dtype.is_float:
        return float("inf") if kind == "min" else float("-inf")
    information = np.iinfo(dtype.numpy)
    return int(information.max if kind == "min" else information.min)


def reduce_array(array: np.ndarray, attributes: ReduceAttributes, dtype: DType) -> np.ndarray:
    """Evaluate ``loom.Reduce`` with numpy; half-precision floats accumulate in f32."""
    compute = np.dtype(np.float32) if dtype.is_float and dtype.bits < 32 else array.dtype
    start = identity(attributes.kind, dtype)
    operation = REDUCERS[attributes.kind]
    with np.errstate(all="ignore"):
        result = operation(
            array.astype(compute), axis=attributes.axes, keepdims=attributes.keepdims, dtype=compute, initial=start
        )
        return np.asarray(result).astype(array.dtype)


_SYMBOLIC_RULES = {"sum": ix.add, "prod": ix.multiply, "max": ix.maximum, "min": ix.minimum, "max_number": ix.maximum}


def fold_reduce(node: Node, operand: np.ndarray) -> np.ndarray:
    attributes: ReduceAttributes = node.attributes
    if not checks.is_symbolic(operand):
        return reduce_array(operand, attributes, node.operand(0).dtype)
    if not all(operand.shape[axis] for axis in attributes.axes):
        raise Undecidable("an empty reduction")
    rule = np.frompyfunc(_SYMBOLIC_RULES[attributes.kind], 2, 1)
    for axis in sorted(attributes.axes, reverse=True):
        operand = np.asarray(rule.reduce(operand, axis=axis, keepdims=attributes.keepdims), dtype=object)
    return operand


register(
    name="Reduce",
    domain="loom",
    infer=_infer_reduce,
    attributes=ReduceAttributes,
    family="reduce",
    types=(NUMERIC,),
    fold=fold_reduce,
)


@record
class ArgReduceAttributes:
    """``kind`` is max or min; ``axis`` counts from the front."""

    kind: str
    axis: int
    keepdims: bool
    select_last_index: bool


def _infer_arg_reduce(node: Node) -> Inferred:
    attributes: ArgReduceAttributes = node.attributes
    return [(INT64, reduced_shape(node.operand(0).shape, (attributes.axis,), attributes.keepdims))]


def arg_reduce_array(array: np.ndarray, attributes: ArgReduceAttributes) -> np.ndarray:
    """Evaluate ``loom.ArgReduce`` with numpy; of no elements the position is -1, as in the kernel."""
    find = np.argmax if attributes.kind == "max" else np.argmin
    axis = attributes.axis
    if array.shape[axis] == 0:
        return np.full(np.any(array, axis, keepdims=attributes.keepdims).shape, -1, np.int64)
    if attributes.select_last_index:
        last = array.shape[axis] - 1
        positions = last - find(np.flip(array, axis), axis=axis, keepdims=attributes.keepdims)
    else:
        positions = find(array, axis=axis, keepdims=attributes.keepdims)
    return np.asarray(positions, np.int64)


def _fold_arg_reduce(node: Node, operand: np.ndarray) -> np.ndarray:
    if checks.is_symbolic(operand):
        raise Undecidable("the position of an extremum of symbolic integers")
    return arg_reduce_array(operand, node.attributes)


register(
    name="ArgReduce",
    domain="loom",
    infer=_infer_arg_reduce,
    attributes=ArgReduceAttributes,
    family="arg_reduce",
    types=(NUMERIC,),
    fold=_fold_arg_reduce,
)
