"""Floats of 8 and 4 bits as expressions: the number of a code, and the code nearest to a number.

Codes travel through kernels as ``u32`` (:attr:`~.dtypes.DType.is_code`); only conversions look
inside.  The same expressions run on the device and, evaluated with numpy, on the host, so both give the same bits.
They compute on bits and with exact products by powers of two: no driver's rounding or flushing of subnormals decides a
result.

Sources: the tables of ONNX's Cast (version 28) and the OCP formats for microscaling.  What they leave open is as in
onnx's reference evaluator: a NaN becomes -0 in float4e2m1 (0 if its sign is set), and float8e8m0 takes the magnitude of
negative numbers.  Where that evaluator differs from the tables (infinities, zeros and subnormals as float8e8m0), they
decide.
"""

from __future__ import annotations

from ....runtime.plan.dtypes import DType
from ....runtime.plan.record import record
from ...symbolic import expr as ex
from ...symbolic.expr import Expr

_INFINITY = 0x7F800000  #: of f32
_NAN = 0x7FC00000


@record
class _Format:
    """A sign, an exponent, and ``fraction`` bits; the exponent ``bias`` encodes a factor of 1.

    ``largest`` is the code of the largest finite number.  ``beyond`` is what numbers beyond it become without
    saturation (None: they saturate always), ``nan`` what NaN becomes; both without the sign.  A format without negative
    zero has its NaN there, and no sign for NaN.
    """

    width: int
    fraction: int
    bias: int
    largest: int
    beyond: int | None
    nan: int
    negative_zero: bool = True

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)


_FORMATS = {
    "float8e4m3fn": _Format(8, 3, 7, 0x7E, 0x7F, 0x7F),
    "float8e4m3fnuz": _Format(8, 3, 8, 0x7F, 0x80, 0x80, negative_zero=False),
    "float8e5m2": _Format(8, 2, 15, 0x7B, 0x7C, 0x7E),
    "float8e5m2fnuz": _Format(8, 2, 16, 0x7F, 0x80, 0x80, negative_zero=False),
    "float4e2m1": _Format(4, 1, 1, 0x7, None, 0x8),
    "float16": _Format(16, 10, 15, 0x7BFF, 0x7C00, 0x7E00),
}


def number_of(code: Expr, dtype: DType) -> Expr:
    """Decode a code of type ``dtype`` to its f32 number, exactly."""
    if dtype.name == "float8e8m0":
        return _power_of(code)
    form = _FORMATS[dtype.name]
    magnitude = _and(code, form.sign - 1)
    normal = _left(magnitude, 23 - form.fraction) + _u32((127 - form.bias) << 23)
    step = ex.const(2.0 ** (1 - form.bias - form.fraction), "f32")
    subnormal = ex.bitcast(ex.cast(magnitude, "f32") * step, "u32")
    bits = ex.select(ex.compare("lt", magnitude, _u32(1 << form.fraction)), subnormal, normal)
    if form.negative_zero and form.beyond is not None:
        if form.beyond != form.nan:
            bits = ex.select(ex.compare("eq", magnitude, _u32(form.beyond)), _u32(_INFINITY), bits)
        above = max(form.largest, form.beyond if form.beyond != form.nan else 0)
        bits = ex.select(ex.compare("gt", magnitude, _u32(above)), _u32(_NAN), bits)
    bits = ex.binary("or", bits, _left(_and(code, form.sign), 32 - form.width))
    if not form.negative_zero:
        bits = ex.select(ex.compare("eq", code, _u32(form.nan)), _u32(_NAN | 1 << 31), bits)
    return ex.bitcast(bits, "f32")


def is_not_zero(code: Expr, dtype: DType) -> Expr:
    """Return whether a code represents a nonzero number.

    Compare the bits: the number may be a subnormal f32, which devices flush to zero.
    """
    if dtype.name == "float8e8m0":
        return ex.const(True, "bool")
    form = _FORMATS[dtype.name]
    return ex.compare("ne", _and(code, form.sign - 1) if form.negative_zero else code, _u32(0))


def code_of(number: Expr, dtype: DType, saturate: bool = True, round_mode: str = "up") -> Expr:
    """Encode an f32 number as the nearest code of type ``dtype``, ties to the even code.

    Beyond the largest finite number, infinity included, ``saturate`` gives that number. ``round_mode`` (``up``,
    ``down`` or ``nearest``) concerns float8e8m0 alone.
    """
    if dtype.name == "float8e8m0":
        return _exponent_of(number, saturate, round_mode)
    form = _FORMATS[dtype.name]
    bits = ex.bitcast(number, "u32")
    sign, magnitude = _left(_right(bits, 31), form.width - 1), _and(bits, 0x7FFFFFFF)
    dropped = 23 - form.fraction
    odd = _and(_right(magnitude, dropped), 1)
    rounded = _right(magnitude + _u32((1 << (dropped - 1)) - 1) + odd, dropped)
    normal = rounded - _u32((127 - form.bias) << form.fraction)
    # below the normal numbers codes count steps; rounding up to the first normal one gives its code
    steps = ex.const(2.0 ** (form.fraction + form.bias - 1), "f32")
    subnormal = ex.cast(ex.unary("round", ex.bitcast(_below(magnitude, form), "f32") * steps), "u32")
    code = ex.select(_is_below(magnitude, form), subnormal, normal)
    limit = _u32(form.largest)
    if saturate or form.beyond is None:
        code = ex.binary("min", code, limit)
    else:
        code = ex.select(ex.compare("gt", code, limit), _u32(form.beyond), code)
    is_nan = ex.compare("gt", magnitude, _u32(_INFINITY))
    if form.negative_zero:
        return ex.binary("xor", ex.select(is_nan, _u32(form.nan), code), sign)
    code = ex.select(is_nan, _u32(form.nan), code)
    return ex.select(ex.compare("eq", code, _u32(0)), code, ex.binary("or", code, sign))


def rounded(number: Expr, dtype: DType) -> Expr:
    """Round an f32 number to a float type as storing does, ties to even: the result of arithmetic in that type."""
    if dtype.name == "float16":
        return number_of(code_of(number, dtype, saturate=False), dtype)
    if dtype.name == "bfloat16":
        bits = ex.bitcast(number, "u32")
        nearest = _and(bits + _u32(0x7FFF) + _and(_right(bits, 16), 1), 0xFFFF0000)
        is_nan = ex.compare("gt", _and(bits, 0x7FFFFFFF), _u32(_INFINITY))
        return ex.bitcast(ex.select(is_nan, bits, nearest), "f32")
    return number


def _is_below(magnitude: Expr, form: _Format) -> Expr:
    return ex.compare("lt", magnitude, _u32((128 - form.bias) << 23))


def _below(magnitude: Expr, form: _Format) -> Expr:
    """Return the magnitude where it is below the normal numbers, else zero: a cast to an integer must not overflow."""
    return ex.select(_is_below(magnitude, form), magnitude, _u32(0))


# -- float8e8m0: powers of two -----------------------------------------------------------------------------------------


def _power_of(code: Expr) -> Expr:
    """Return ``2 ** (code - 127)``; the first is a subnormal f32, built from its bits, and 255 is NaN."""
    bits = ex.select(ex.compare("eq", code, _u32(0)), _u32(1 << 22), _left(code, 23))
    return ex.bitcast(ex.select(ex.compare("eq", code, _u32(255)), _u32(_NAN), bits), "f32")


def _exponent_of(number: Expr, saturate: bool, round_mode: str) -> Expr:
    magnitude = _and(ex.bitcast(number, "u32"), 0x7FFFFFFF)
    exponent, fraction = _right(magnitude, 23), _and(magnitude, 0x7FFFFF)
    one, zero = _u32(1), _u32(0)
    if round_mode == "down":
        code = exponent
    else:
        # from here on the next power is taken; below the normal f32 numbers the one under it is 1 << 22, not 0
        normal, subnormal = (1, (1 << 22) + 1) if round_mode == "up" else (1 << 22, 3 << 21)
        first = ex.select(ex.compare("eq", exponent, zero), _u32(subnormal), _u32(normal))
        code = exponent + ex.select(ex.compare("ge", fraction, first), one, zero)
    if saturate:
        code = ex.binary("min", code, _u32(254))
    else:
        too_small = ex.compare("lt", magnitude, _u32(1 << 22))
        code = ex.select(too_small, _u32(255), ex.binary("min", code, _u32(255)))
    return ex.select(ex.compare("gt", magnitude, _u32(_INFINITY)), _u32(255), code)


# -- words -----------------------------------------------------------------------------------------------------------


def _u32(value: int) -> Expr:
    return ex.const(value, "u32")


def _and(value: Expr, mask: int) -> Expr:
    return ex.binary("and", value, _u32(mask))


def _left(value: Expr, places: int) -> Expr:
    return ex.binary("shl", value, _u32(places))


def _right(value: Expr, places: int) -> Expr:
    return ex.binary("shr", value, _u32(places))
