"""BitCast: the bits of an element as an element of another type of the same width.

Expressions hold values, not bits, so that each kind of type has a formula of its own.  Types of 32 bits have an
operation; integers of one width differ in the sign alone; the bits of half-precision numbers are those of the f32
number of the same value, moved.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan import dtypes
from ....runtime.plan.dtypes import DType, compute_dtype
from ....runtime.plan.errors import ShapeError, UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic.expr import Expr
from ..checks import MOVED, is_symbolic
from ..registry import Inferred, register
from .cast import convert_expression


@record
class BitCastAttributes:
    to: int


def _infer(node: Node) -> Inferred:
    source, target = node.operand(0).dtype, dtypes.from_onnx(node.attributes.to)
    if source.width != target.width:
        raise ShapeError(f"the {source.width} bits of {source} are no {target}", origin=node.origin)
    return [(target, node.operand(0).shape)]


def _u32(value: int) -> Expr:
    return ex.const(value, "u32")


def _and(value: Expr, mask: int) -> Expr:
    return ex.binary("and", value, _u32(mask))


def _or(left: Expr, right: Expr) -> Expr:
    return ex.binary("or", left, right)


def _left(value: Expr, places: int) -> Expr:
    return ex.binary("shl", value, _u32(places))


def _right(value: Expr, places: int) -> Expr:
    return ex.binary("shr", value, _u32(places))


def _half_bits(value: Expr) -> Expr:
    """Return the 16 bits of a half-precision number that f32 holds exactly; a subnormal one is a multiple of 2^-24."""
    bits = ex.bitcast(value, "u32")
    magnitude, fraction = _and(bits, 0x7FFFFFFF), _right(_and(bits, 0x7FFFFF), 13)
    normal = _right(magnitude, 13) - _u32(112 << 10)
    subnormal = ex.cast(ex.unary("abs", value) * ex.const(2.0**24, "f32"), "u32")
    result = ex.select(ex.compare("lt", magnitude, _u32(113 << 23)), subnormal, normal)
    result = ex.select(ex.compare("ge", magnitude, _u32(0x7F800000)), _or(_u32(0x7C00), fraction), result)
    return _or(result, _and(_right(bits, 16), 0x8000))


def _half_value(bits: Expr) -> Expr:
    """Return the f32 value of the 16 bits of a half-precision number."""
    magnitude, fraction = _and(bits, 0x7FFF), _and(bits, 0x3FF)
    normal = _left(magnitude, 13) + _u32(112 << 23)
    subnormal = ex.bitcast(ex.cast(fraction, "f32") * ex.const(2.0**-24, "f32"), "u32")
    result = ex.select(ex.compare("lt", magnitude, _u32(0x400)), subnormal, normal)
    infinite = _or(_u32(0x7F800000), _left(fraction, 13))
    result = ex.select(ex.compare("ge", magnitude, _u32(0x7C00)), infinite, result)
    return ex.bitcast(_or(result, _left(_and(bits, 0x8000), 16)), "f32")


def _bits(value: Expr, source: DType) -> Expr:
    """Return the bits of a float of 16 or 32 bits, or of an integer of at most 32, in a word."""
    if source.name == "float16":
        return _half_bits(value)
    if source.name == "bfloat16":
        return _right(ex.bitcast(value, "u32"), 16)
    if source.is_float or source.width == 32:
        return ex.bitcast(value, "u32")
    return _and(ex.cast(value, "u32"), (1 << source.width) - 1)


def _element(node: Node, args: Sequence[Expr]) -> Expr:
    source, target = node.operand(0).dtype, dtypes.from_onnx(node.attributes.to)
    if not target.on_device:
        raise UnsupportedError(f"no device holds element type {target}", origin=node.origin)
    if source is target:
        return args[0]
    if not any(dtype.is_float or dtype.is_code for dtype in (source, target)):
        return convert_expression(args[0], source, target)
    bits = _bits(args[0], source)
    if target.name == "float16":
        return _half_value(bits)
    if target.name == "bfloat16":
        return ex.bitcast(_left(bits, 16), "f32")
    if target.is_code:
        return bits
    return ex.bitcast(bits, "f32") if target.is_float else convert_expression(bits, dtypes.UINT32, target)


def _fold(node: Node, operand: np.ndarray) -> np.ndarray:
    if is_symbolic(operand):
        operand = operand.astype(np.int64)  # raises for dimensions that are not known
    target = dtypes.from_onnx(node.attributes.to)
    bits = np.ascontiguousarray(operand).view(compute_dtype(target)).reshape(operand.shape)
    return dtypes.from_border(bits, target)


register(
    name="BitCast",
    by_type=True,
    infer=_infer,
    attributes=BitCastAttributes,
    element=_element,
    types=(MOVED,),
    fold=_fold,
)
