"""Tensors built from shapes and scalars only: ConstantOfShape, Range, EyeLike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.plan import dtypes
from ....runtime.plan.dtypes import DType
from ....runtime.plan.errors import NotKnownError
from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..math.quotients import significand
from ..registry import Inferred, Read, SplitBuilder, register
from .integers_ahead import is_open

# -- ConstantOfShape -------------------------------------------------------------------------------------------------


@record
class Fill:
    """The one element of a constant tensor."""

    number: float | int | bool
    dtype: DType


@record
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


register(
    name="ConstantOfShape",
    attributes=ConstantOfShapeAttributes,
    infer=_infer_constant_of_shape,
    gather=_gather_constant_of_shape,
    fold=_fold_constant_of_shape,
    static_inputs=(0,),
    reads=0,
)


# -- Range -----------------------------------------------------------------------------------------------------------


@record
class RangeAttributes:
    stash_type: int = 1  #: type of intermediate results for 16-bit floats; they are computed in 32 bits anyway


def _bound(node: Node, position: int) -> Any:
    """Return ``start``, ``limit`` or ``delta`` as a Python number, or an ``Index``."""
    value = node.operand(position)
    element = checks.static_elements(node, value, "start, limit and delta of Range").reshape(-1)[0]
    if isinstance(element, ix.Index):
        return element
    return float(element) if value.dtype.is_float else int(element)


def _length(node: Node) -> Dim:
    checks.require_same_type(node, [node.operand(position) for position in range(3)])
    start, limit, delta = (_bound(node, position) for position in range(3))
    if isinstance(delta, ix.Index):
        raise NotKnownError("delta of Range must be known at compile time", origin=node.origin)
    checks.require(delta != 0, node, "delta of Range must be a number other than 0")
    if node.operand(0).dtype.is_float:
        with np.errstate(all="ignore"):
            count = float(np.float32(limit) - np.float32(start)) / delta
        checks.require(math.isfinite(count), node, f"Range from {start} to {limit} by {delta} has no length")
        return max(math.ceil(count), 0)
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


def _read_length(node: Node, args: Sequence[Expr]) -> Expr:
    """Compute ``ceil((limit - start) / delta)``, at least 0, of the exact quotient: devices round quotients wrongly.

    It is 2 ** 31 - 1 for longer ones, and -1 where the quotient is no number.
    """
    start, limit, delta = args
    if not node.operand(0).dtype.is_float:
        return _integer_length(start, limit, delta)
    distance = limit - start
    both = [ex.bitcast(value, "u32") for value in (distance, delta)]
    top, low = (ex.binary("and", bits, ex.const((1 << 31) - 1, "u32")) for bits in both)
    (dividend, up), (divisor, down) = map(significand, (top, low))
    shift = ex.binary("min", ex.binary("max", up - down, ex.const(-39, "i32")), ex.const(39, "i32"))
    zero = ex.const(0, "i32")
    raised, lowered = (ex.cast(ex.binary("max", each, zero), "u64") for each in (shift, -shift))
    dividend, divisor = ex.binary("shl", dividend, raised), ex.binary("shl", divisor, lowered)
    is_number = ex.compare("ne", low, ex.const(0, "u32"))
    quotient = ex.binary("div", dividend, ex.select(is_number, divisor, ex.const(1, "u64")))
    has_rest = ex.compare("lt", ex.binary("mul", quotient, divisor), dividend)
    count = ex.binary("min", quotient + ex.cast(has_rest, "u64"), ex.const((1 << 31) - 1, "u64"))
    infinite = ex.const(0xFF << 23, "u32")
    is_number = ex.binary("and", is_number, ex.compare("lt", top, infinite))
    is_number = ex.binary("and", is_number, ex.compare("le", low, infinite))
    sign = ex.binary("and", ex.binary("xor", *both), ex.const(1 << 31, "u32"))
    has_steps = ex.binary("and", ex.compare("eq", sign, ex.const(0, "u32")), ex.compare("lt", low, infinite))
    return ex.select(is_number, ex.select(has_steps, ex.cast(count, "i32"), zero), ex.const(-1, "i32"))


def _integer_length(start: Expr, limit: Expr, delta: Expr) -> Expr:
    start, limit, delta = (ex.cast(value, "i64") for value in (start, limit, delta))
    zero, one, longest = (ex.const(number, "i64") for number in (0, 1, (1 << 31) - 1))
    is_up = ex.compare("lt", zero, delta)
    distance = ex.select(is_up, limit - start, start - limit)
    stride = ex.binary("max", ex.select(is_up, delta, -delta), one)
    count = ex.binary("min", ex.binary("div", distance - one, stride) + one, longest)
    count = ex.select(ex.compare("lt", zero, distance), count, zero)
    return ex.cast(ex.select(ex.compare("eq", delta, zero), ex.const(-1, "i64"), count), "i32")


def _infer_length(node: Node) -> Inferred:
    checks.require_same_type(node, [node.operand(position) for position in range(3)])
    return [(dtypes.INT32, ())]


register(name="RangeLength", domain="loom", infer=_infer_length, element=_read_length, types=(checks.NUMERIC,))


def _read_steps(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    start, delta = (read(position, ()) for position in (0, 1))
    return checks.wrap(start + ex.cast(ex.coordinate(coordinates[0]), start.dtype) * delta, node.output.dtype)


register(
    name="RangeOf",
    domain="loom",
    infer=lambda node: [(node.operand(0).dtype, tuple(checks.static_dims(node, 2, "the length of Range")))],
    gather=_read_steps,
    types=(checks.NUMERIC, checks.NUMERIC, frozenset({"int32"})),
    static_inputs=(2,),
    reads=2,
)


def _split_range(builder: SplitBuilder, inputs: Sequence[str], outputs: Sequence[str], attributes: Any) -> None:
    start, _, delta = inputs
    length = builder.apply("RangeLength", *inputs, domain="loom")
    builder.apply_to(outputs, "RangeOf", start, delta, length, domain="loom")


register(
    name="Range",
    attributes=RangeAttributes,
    infer=_infer_range,
    gather=_gather_range,
    fold=_fold_range,
    types=(checks.NUMERIC,),
    static_inputs=(0, 1, 2),
    negative_inputs=(0, 1),
    reads=0,
    split_ahead=_split_range,
    is_split_ahead=lambda operands, attributes: is_open(operands[2]),
)


# -- EyeLike ---------------------------------------------------------------------------------------------------------


@record
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
)
