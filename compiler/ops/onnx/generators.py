"""Tensors made from nothing but shapes and scalars: ConstantOfShape, Range, EyeLike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....runtime.plan import dtypes
from ....runtime.plan.dtypes import DType
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..registry import Case, Inferred, Read, Tensor, register


def _scalar(value: float, dtype: str) -> Tensor:
    return Tensor((), dtype, data=value, constant=True)


# -- ConstantOfShape -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fill:
    """The one element of a constant tensor."""

    number: float | int | bool
    dtype: DType


@dataclass(frozen=True, slots=True)
class ConstantOfShapeAttributes:
    """``value`` may be given as an array of one element, or as a source of one; it is kept as a :class:`Fill`."""

    value: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _fill(self.value))


def _fill(value: Any) -> Fill:
    if value is None:
        return Fill(0.0, dtypes.FLOAT32)
    if isinstance(value, Fill):
        return value
    array = value.read() if hasattr(value, "read") else np.asarray(value)
    dtype = getattr(value, "dtype", None)
    if not isinstance(dtype, DType):
        dtype = dtypes.from_numpy(array.dtype)
    number = array.reshape(-1)[0]
    return Fill(float(number) if dtype.is_float else number.item(), dtype)


def _infer_constant_of_shape(node: Node) -> Inferred:
    shape = checks.static_dims(node, 0, "the shape of ConstantOfShape")
    for size in shape:
        checks.require(not ix.less(size, 0), node, f"size {ix.text(size)} is negative")
    return [(node.attributes.value.dtype, tuple(shape))]


def _fold_constant_of_shape(node: Node, shape: np.ndarray) -> np.ndarray:
    fill: Fill = node.attributes.value
    sizes = [checks.concrete(node, size, "a size") for size in shape]
    return np.full(sizes, fill.number, dtypes.compute_dtype(fill.dtype))


def _gather_constant_of_shape(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    return checks.literal(node.attributes.value.number, node.attributes.value.dtype)


def _shape(*sizes: int) -> Tensor:
    return Tensor((len(sizes),), "int64", data=list(sizes), constant=True)


register(
    name="ConstantOfShape",
    attributes=ConstantOfShapeAttributes,
    infer=_infer_constant_of_shape,
    gather=_gather_constant_of_shape,
    fold=_fold_constant_of_shape,
    static_inputs=(0,),
    reads=0,
    cases=(
        Case((_shape(2, 3),)),
        Case((_shape(3),), {"value": np.array([-7], np.int64)}),
        Case((_shape(2, 1, 2),), {"value": np.array([True])}),
        Case((_shape(5),), {"value": np.array([200], np.uint8)}),
        Case((_shape(0, 4),), {"value": np.array([1.5], np.float32)}),
        Case((_shape(),), {"value": np.array([1.5], np.float32)}, opset=9),
    ),
)


# -- Range -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RangeAttributes:
    stash_type: int = 1  #: type of intermediate results for 16-bit floats; they are computed in 32 bits anyway


def _bound(node: Node, position: int) -> Any:
    """``start``, ``limit`` or ``delta``: a Python number, or an ``Index``."""
    value = node.operand(position)
    element = checks.known(node, value, "start, limit and delta of Range").reshape(-1)[0]
    if isinstance(element, ix.Index):
        return element
    return float(element) if value.dtype.is_float else int(element)


def _length(node: Node) -> Dim:
    checks.require_same_type(node, [node.operand(position) for position in range(3)])
    start, limit, delta = (_bound(node, position) for position in range(3))
    checks.require(not isinstance(delta, ix.Index) and delta != 0, node, "delta of Range must be a number other than 0")
    if node.operand(0).dtype.is_float:
        return max(math.ceil((limit - start) / delta), 0)
    distance = ix.add(limit, ix.multiply(start, -1))
    if delta < 0:
        distance, delta = ix.multiply(distance, -1), -delta
    return ix.maximum(ix.ceildiv(distance, delta), 0)


def _infer_range(node: Node) -> Inferred:
    return [(node.operand(0).dtype, (_length(node),))]


def _gather_range(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    start, delta = _bound(node, 0), _bound(node, 2)
    dtype = node.output.dtype
    compute = dtype.compute
    if isinstance(start, ix.Index):
        return ex.of_dim(ix.add(start, ix.multiply(coordinates[0], delta)), compute)
    steps = ex.cast(ex.coordinate(coordinates[0]), compute)
    scaled = ex.binary("mul", steps, ex.const(delta, compute))
    return checks.wrap(ex.binary("add", ex.const(start, compute), scaled), dtype)


def _fold_range(node: Node, *_: np.ndarray) -> np.ndarray:
    start, delta = _bound(node, 0), _bound(node, 2)
    length = checks.concrete(node, _length(node), "the length of Range")
    dtype = dtypes.compute_dtype(node.operand(0).dtype)
    if node.operand(0).dtype.is_float:
        return (np.float32(start) + np.arange(length, dtype=np.float32) * np.float32(delta)).astype(dtype)
    array = np.empty(length, object)
    for position in range(length):
        array[position] = ix.add(start, position * delta)
    return array if isinstance(start, ix.Index) else array.astype(dtype)


register(
    name="Range",
    attributes=RangeAttributes,
    infer=_infer_range,
    gather=_gather_range,
    fold=_fold_range,
    types=(checks.NUMERIC,),
    static_inputs=(0, 1, 2),
    reads=0,
    cases=(
        Case((_scalar(3, "int64"), _scalar(9, "int64"), _scalar(3, "int64"))),
        Case((_scalar(10, "int64"), _scalar(4, "int64"), _scalar(-4, "int64"))),
        Case((_scalar(0, "int32"), _scalar(7, "int32"), _scalar(1, "int32"))),
        Case((_scalar(0.5, "float32"), _scalar(3.1, "float32"), _scalar(0.25, "float32"))),
        Case((_scalar(2.0, "float32"), _scalar(-1.0, "float32"), _scalar(-0.75, "float32"))),
        Case((_scalar(5, "int64"), _scalar(5, "int64"), _scalar(1, "int64"))),
        Case((_scalar(2**33, "int64"), _scalar(2**33 + 5, "int64"), _scalar(2, "int64")), opset=11),
    ),
)


# -- EyeLike ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EyeLikeAttributes:
    dtype: int | None = None
    k: int = 0


def _infer_eye(node: Node) -> Inferred:
    value = node.operand(0)
    checks.require(value.rank == 2, node, f"EyeLike needs a matrix, not rank {value.rank}")
    code = node.attributes.dtype
    return [(value.dtype if code is None else dtypes.from_onnx(code), value.shape)]


def _gather_eye(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    row, column = coordinates
    k = checks.within_matrix(node.attributes.k, node.output.shape)
    diagonal = ex.compare("eq", ex.coordinate(column), ex.coordinate(ix.add(row, k)))
    dtype = node.output.dtype
    return ex.select(diagonal, checks.literal(1, dtype), checks.literal(0, dtype))


register(
    name="EyeLike",
    attributes=EyeLikeAttributes,
    infer=_infer_eye,
    gather=_gather_eye,
    reads=0,
    cases=(
        Case((Tensor((3, 5)),)),
        Case((Tensor((4, 3), "int32", -9, 9),), {"k": 1, "dtype": 1}),
        Case((Tensor((4, 3)),), {"k": -2, "dtype": 7}),
        Case((Tensor((3, 3)),), {"k": 5, "dtype": 6}, opset=9),
        Case((Tensor((3, 5)),), {"k": 2**40}),
        Case((Tensor((5, 3)),), {"k": -(2**31)}),
    ),
)
