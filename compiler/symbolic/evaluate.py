"""Evaluate expressions with numpy: what a kernel computes, element by element, in the same compute types.

Used to fold elementwise operators on the host and by the graph interpreter that tests compare with other runtimes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...runtime.plan.dtypes import BFLOAT16, FLOAT16, compute_dtype
from . import expr as ex
from . import polynomial as ix
from .expr import Expr, Load

Array = Any  #: a numpy array or scalar

NUMPY_TYPES: dict[str, np.dtype] = {
    "f32": np.dtype(np.float32),
    "i32": np.dtype(np.int32),
    "u32": np.dtype(np.uint32),
    "i64": np.dtype(np.int64),
    "u64": np.dtype(np.uint64),
    "bool": np.dtype(np.bool_),
}

ReadLoad = Callable[[Load, tuple[Array, ...]], Array]
"""Gives the elements of a load's operand at the values of its coordinates."""

_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def evaluate_expr(
    value: Expr,
    read_load: ReadLoad | None = None,
    variables: Mapping[str, Array] | None = None,
    registers: Mapping[str, Array] | None = None,
) -> Array:
    """Evaluate an expression, vectorised: coordinates and registers may be arrays that broadcast to each other.

    ``read_load(load, coordinates)`` is also called for elements outside the operand where a guard protects the load; it
    must return some value then.
    """
    bound = variables or {}
    memo: dict[Expr, Any] = {}

    def number(index: ix.Dim) -> Array:
        return ix.evaluate(index, bound, lambda payload: ex.fold(payload, visit, memo).astype(np.int64))

    def visit(node: Expr, args: tuple[Any, ...]) -> Array:
        dtype = NUMPY_TYPES[node.dtype]
        if node.op == "const":
            return np.asarray(node.payload, dtype)
        if node.op == "load":
            if read_load is None:
                raise ValueError("the expression reads memory")
            coordinates = tuple(np.asarray(number(axis)) for axis in node.payload.coordinates)
            return np.asarray(read_load(node.payload, coordinates)).astype(dtype)
        if node.op == "coordinate":
            return np.asarray(number(node.payload)).astype(dtype)
        if node.op == "register":
            return np.asarray((registers or {})[node.payload]).astype(dtype)
        return np.asarray(apply(node.op, node.dtype, args)).astype(dtype, copy=False)

    with np.errstate(all="ignore"):
        return ex.fold(value, visit, memo)


def apply(op: str, dtype: str, args: tuple[Array, ...]) -> Array:
    """Apply one operation to arrays of compute types; ``dtype`` is the compute type of the result."""
    if op == "cast":
        return convert(args[0], NUMPY_TYPES[dtype])
    if op == "bitcast":
        return np.ascontiguousarray(args[0]).view(NUMPY_TYPES[dtype]).reshape(np.shape(args[0]))
    if op in ("select", "guard"):
        return np.where(*args)
    if op == "word":
        return sum((np.asarray(arg).astype(np.uint32) & 255) << (8 * place) for place, arg in enumerate(args))
    if op in _INEXACT and dtype in ex.FLOATS:
        return _nearest(_INEXACT[op], args, NUMPY_TYPES[dtype])
    function = _FUNCTIONS.get(op)
    if function is not None:
        return function(*args)
    if dtype in ex.FLOATS:
        return _FLOAT_FUNCTIONS[op](*args)
    return _INTEGER_FUNCTIONS[op](*args)


def _nearest(function: Callable[..., Array], args: tuple[Array, ...], dtype: np.dtype) -> np.ndarray:
    """Compute in double precision and round once.

    numpy picks implementations by the processor's vector instructions, and they differ in the last bits; in double
    precision those bits are gone after rounding, so that folded constants and bundles are the same on every machine.
    """
    return np.asarray(function(*(np.asarray(arg).astype(np.float64) for arg in args))).astype(dtype)


def convert(array: Array, dtype: np.dtype) -> np.ndarray:
    """Convert as ONNX does: floats to integers truncate, anything to bool compares with zero, integers wrap."""
    source = np.asarray(array)
    if dtype == np.bool_:
        return source != 0
    with np.errstate(all="ignore"):
        if source.dtype.kind not in "iub" and dtype.kind in "iu" and dtype.itemsize < 8:
            # through the widest integer, so that what does not fit wraps on every host
            return source.astype(np.int64).astype(dtype)
        return source.astype(dtype)


def _truncated_quotient(left: Array, right: Array) -> Array:
    left, right = np.broadcast_arrays(left, right)
    safe = np.where(right == 0, np.ones_like(right), right)
    quotient = left // safe
    # // floors: one too low where the signs differ and there is a remainder
    return quotient + ((left % safe != 0) & ((left < 0) != (safe < 0))).astype(left.dtype)


def _shift(function: Callable[..., Array]) -> Callable[..., Array]:
    def shift(left: Array, right: Array) -> Array:
        return function(left, np.asarray(right).astype(np.asarray(left).dtype))

    return shift


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "not": np.logical_not,
    "bitnot": np.invert,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "min_number": np.fmin,
    "max_number": np.fmax,
    "pow": np.power,  # of integers
    "mod": np.mod,
    "fmod": np.fmod,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": _shift(np.left_shift),
    "shr": _shift(np.right_shift),
}

_FLOAT_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "div": np.divide,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "round_float16": lambda value: value.astype(compute_dtype(FLOAT16)),
    "round_bfloat16": lambda value: value.astype(compute_dtype(BFLOAT16)),
}

#: Functions of floats that IEEE 754 does not define to the last bit
_INEXACT: dict[str, Callable[..., Array]] = {
    "pow": np.power,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": lambda value: np.asarray(_erf(value)).astype(np.float64),
    "erfc": lambda value: np.asarray(_erfc(value)).astype(np.float64),
}

_INTEGER_FUNCTIONS: dict[str, Callable[..., Array]] = {"div": _truncated_quotient}
