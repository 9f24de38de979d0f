"""One table of element types: ONNX, numpy, storage in GPU buffers, and the WGSL type that arithmetic uses.

A tensor has one storage format wherever it lives: contiguous words of 32 bits, elements at their ONNX size.

* 4-byte types take one word an element.
* 1- and 2-byte types (bool, int8, uint8, int16, uint16, float16, bfloat16) are packed four or two to a word, so a
  kernel that stores one must own whole words (``packing`` elements that follow each other in memory).
* Types narrower than a byte (int4, uint4, int2, uint2, float4e2m1) take a byte an element, as in numpy arrays of
  ``ml_dtypes``: the number's two's complement, or code, in the low bits, zeros above.  Constants of a model stay as
  ONNX packs them until a kernel reads them (``compiler/ops/narrow_types.py``).
* 8-bit and narrower floats are *codes*: moved as the bits that they are, converted by expressions where a number is
  wanted (``compiler/ops/math/codes.py``), so that no NaN or subnormal changes on the way.
* 8-byte integers take two words (low, high); arithmetic on them is exact in two words on every device.
* float64, complex and strings have no storage on the device; they belong to the cpu provider.

Buffers are padded to a multiple of 16 bytes so that four-lane loads never cross the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import InputError, UnsupportedError
from .record import record


@record
class DType:
    """An element type.

    ``compute`` names the type in which expressions evaluate it: ``f32``, ``i32``, ``u32``, ``bool``, ``i64``, ``u64``,
    or ``""`` when the device cannot hold it.  ``bits`` are those that an element takes in memory, ``width`` those of
    the number itself, which is also what ONNX packs an element into; they differ for types narrower than a byte.
    """

    name: str
    onnx: int
    numpy: str  #: name of the numpy dtype at the border; those of ``ml_dtypes`` where numpy has none
    bits: int
    compute: str
    narrow: int = 0  #: the width where it is less than ``bits``, else 0
    is_code: bool = False  #: a float that expressions carry as its code, not as a number

    @property
    def width(self) -> int:
        """Bits of the number."""
        return self.narrow or self.bits

    @property
    def storage(self) -> str:
        """The numpy dtype, one that numpy has itself, of an element's bits or number: the compiler's arrays."""
        return {"i32": "int8", "u32": "uint8"}[self.compute] if self.narrow or self.is_code else self.numpy

    @property
    def format(self) -> str:
        """Name of the type whose numbers have the same bits in memory: codes are unsigned integers."""
        if not self.narrow and not self.is_code:
            return self.name
        return f"{'int' if self.compute == 'i32' else 'uint'}{self.width}"

    @property
    def integer_range(self) -> tuple[int, int]:
        """The lowest and the highest number of an integer type."""
        return (-(1 << self.width - 1), (1 << self.width - 1) - 1) if self.is_signed else (0, (1 << self.width) - 1)

    @property
    def itemsize(self) -> int:
        """Bytes per element in memory."""
        return max(self.bits // 8, 1)

    @property
    def packing(self) -> int:
        """Elements that share one 32-bit word (1 when an element takes a word or more)."""
        return max(32 // self.bits, 1)

    @property
    def on_device(self) -> bool:
        return bool(self.compute)

    @property
    def is_float(self) -> bool:
        return self.name in ("float32", "float16", "bfloat16", "float64")

    @property
    def is_integer(self) -> bool:
        return self.name.startswith(("int", "uint"))

    @property
    def is_signed(self) -> bool:
        return self.is_float or self.name.startswith("int")

    def __str__(self) -> str:
        return self.name


_ROWS = (
    DType("float32", 1, "float32", 32, "f32"),
    DType("uint8", 2, "uint8", 8, "u32"),
    DType("int8", 3, "int8", 8, "i32"),
    DType("uint16", 4, "uint16", 16, "u32"),
    DType("int16", 5, "int16", 16, "i32"),
    DType("int32", 6, "int32", 32, "i32"),
    DType("int64", 7, "int64", 64, "i64"),
    DType("string", 8, "object", 64, ""),
    DType("bool", 9, "bool", 8, "bool"),
    DType("float16", 10, "float16", 16, "f32"),
    DType("float64", 11, "float64", 64, ""),
    DType("uint32", 12, "uint32", 32, "u32"),
    DType("uint64", 13, "uint64", 64, "u64"),
    DType("complex64", 14, "complex64", 64, ""),
    DType("complex128", 15, "complex128", 128, ""),
    DType("bfloat16", 16, "bfloat16", 16, "f32"),
    DType("float8e4m3fn", 17, "float8_e4m3fn", 8, "u32", is_code=True),
    DType("float8e4m3fnuz", 18, "float8_e4m3fnuz", 8, "u32", is_code=True),
    DType("float8e5m2", 19, "float8_e5m2", 8, "u32", is_code=True),
    DType("float8e5m2fnuz", 20, "float8_e5m2fnuz", 8, "u32", is_code=True),
    DType("uint4", 21, "uint4", 8, "u32", narrow=4),
    DType("int4", 22, "int4", 8, "i32", narrow=4),
    DType("float4e2m1", 23, "float4_e2m1fn", 8, "u32", narrow=4, is_code=True),
    DType("float8e8m0", 24, "float8_e8m0fnu", 8, "u32", is_code=True),
    DType("uint2", 25, "uint2", 8, "u32", narrow=2),
    DType("int2", 26, "int2", 8, "i32", narrow=2),
)

BY_NAME: dict[str, DType] = {row.name: row for row in _ROWS}
_BY_ONNX = {row.onnx: row for row in _ROWS}
_BY_NUMPY = {row.numpy: row for row in _ROWS if row.numpy != "object"}
#: Types that numpy has only with the package ml_dtypes
EXTENSIONS = frozenset(row.name for row in _ROWS if row.is_code or row.narrow or row.name == "bfloat16")

FLOAT32 = BY_NAME["float32"]
FLOAT16 = BY_NAME["float16"]
BFLOAT16 = BY_NAME["bfloat16"]
INT8 = BY_NAME["int8"]
UINT8 = BY_NAME["uint8"]
INT32 = BY_NAME["int32"]
UINT32 = BY_NAME["uint32"]
INT64 = BY_NAME["int64"]
UINT64 = BY_NAME["uint64"]
BOOL = BY_NAME["bool"]

#: How float32 models may be stored; see ``compiler/precision/float16_storage.py``
PRECISIONS = ("float32", "float16")

FLOAT16_LARGEST = 65504.0
FLOAT16_SMALLEST_NORMAL = 2.0**-14  #: below it float16 loses bits
#: What a run was seen to reach may be exceeded so many times by another
RANGE_MARGIN = 4.0


def fits_float16(reached: float) -> bool:
    """Return whether magnitudes up to ``reached``, as measured, fit float16 with a margin and are not all subnormal."""
    return reached == 0.0 or FLOAT16_SMALLEST_NORMAL <= reached <= FLOAT16_LARGEST / RANGE_MARGIN


def check_precision(name: str) -> str:
    """Return ``name`` if it is one of :data:`PRECISIONS`, else raise :class:`InputError`."""
    if name not in PRECISIONS:
        raise InputError(f"there is no precision '{name}'", hint=f"there are {', '.join(PRECISIONS)}")
    return name


def from_onnx(code: int) -> DType:
    """Return the type of an ONNX ``TensorProto.DataType`` code.

    Raises :class:`UnsupportedError` for unknown codes.
    """
    try:
        return _BY_ONNX[code]
    except KeyError:
        name = f" ({_NAMES[code]})" if code in _NAMES else ""
        device_types = [row.name for row in _ROWS if row.on_device]
        error = UnsupportedError(
            f"element type {code} is not supported{name}", hint=f"supported are {', '.join(sorted(device_types))}"
        )
        error.fault, error.supported = f"element type {code}", tuple(device_types)
        raise error from None


#: Types of the standard without a row, for errors
_NAMES = {27: "float6e2m3", 28: "float6e3m2"}


def from_numpy(dtype: np.dtype | type | str) -> DType:
    """Return the type of a numpy dtype, or of anything that numpy converts to one.

    Raises :class:`UnsupportedError` if there is none.
    """
    try:
        name = np.dtype(dtype).name
    except TypeError:
        raise UnsupportedError(f"{dtype!r} is no element type", hint=f"use one of {', '.join(_BY_NUMPY)}") from None
    try:
        return _BY_NUMPY[name]
    except KeyError:
        raise UnsupportedError(f"numpy dtype '{name}' has no ONNX tensor type") from None


def packed_bytes(elements: int, dtype: DType) -> int:
    """Return the bytes of a tensor as ONNX stores it: sub-byte elements are packed, the first in the low bits."""
    return (elements * dtype.width + 7) // 8


def padded_bytes(elements: int, dtype: DType) -> int:
    """Return the size of the buffer range of a tensor: its bytes rounded up to a multiple of 16, and never zero."""
    return max((elements * dtype.bits + 127) // 128 * 16, 16)


def interface_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the numpy dtype that holds elements of ``dtype`` in inputs and outputs of a model.

    For types that numpy lacks it is that of ``ml_dtypes``, which comes with onnx.  Where that is not installed, codes
    and integers narrower than a byte are their bits as ``uint8``.
    """
    if dtype.name not in EXTENSIONS:
        return np.dtype(dtype.numpy)
    try:
        import ml_dtypes
    except ImportError:
        if dtype is BFLOAT16:
            raise
        return np.dtype(np.uint8)
    return np.dtype(getattr(ml_dtypes, dtype.numpy))


def compute_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the numpy dtype that holds elements of ``dtype`` inside the compiler: numpy's own but for bfloat16.

    Codes are uint8, integers narrower than a byte int8 or uint8 (:attr:`DType.storage`).
    """
    if dtype is BFLOAT16:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype.storage)


def to_border(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Convert an array of :attr:`DType.storage` to the border's dtype: the same bits, zeros above the width."""
    if not dtype.narrow and not dtype.is_code:
        return array
    codes = np.asarray(array).view(np.uint8)
    return (codes & np.uint8((1 << dtype.width) - 1)).view(interface_dtype(dtype))


def from_border(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Convert an array of the border's dtype to :attr:`DType.storage`: integers are sign-extended.

    Takes arrays of either dtype.
    """
    if not dtype.narrow and not dtype.is_code:
        return array
    codes = np.asarray(array).view(np.uint8) & np.uint8((1 << dtype.width) - 1)
    if not dtype.is_signed:
        return codes
    sign = np.uint8(1 << (dtype.width - 1))
    return ((codes ^ sign).astype(np.int8) - np.int8(sign)).astype(np.int8)
