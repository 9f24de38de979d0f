"""Cases of the operators in ``compiler/ops/onnx/comparison.py``."""

from __future__ import annotations

import math

from ..case import Case, Cases, Tensor
from .elementwise import exactly

_BITWISE_CASES = (
    Case((Tensor((3, 7), "int32", -99, 99), Tensor((7,), "int32", -99, 99))),
    Case((Tensor((7,), "uint8", 0, 255), Tensor((7,), "uint8", 0, 255))),
    Case((exactly(-5, 2**40, dtype="int64"), exactly(3, 2**40 + 1, dtype="int64"))),
)

_COMPARE_CASES = (
    Case((Tensor((3, 7)), Tensor((7,)))),
    Case((Tensor((3, 1), "int32", -2, 2), Tensor((1, 5), "int32", -2, 2))),
    Case((exactly(2**40, 1, -3, dtype="int64"), exactly(2**40, 2**33 + 1, -(2**35), dtype="int64"))),
    Case((exactly(math.nan, 1.0, math.inf), exactly(math.nan, 1.0, math.inf))),
    Case((Tensor((0, 2)), Tensor((2,)))),
)

_LOGICAL_CASES = (
    Case((Tensor((3, 7), "bool"), Tensor((3, 7), "bool"))),
    Case((Tensor((2, 3, 1), "bool"), Tensor((5,), "bool"))),
)

_SHIFTED = {
    dtype: (exactly(16, 4, 1, 255, dtype=dtype), exactly(1, 2, 3, 4, dtype=dtype))
    for dtype in ("uint8", "uint16", "uint32", "uint64")
}

_SIGNED = {
    dtype: (exactly(-16, 100, -1, -7, 5, dtype=dtype), exactly(1, 2, 3, 99, -1, dtype=dtype))
    for dtype in ("int8", "int16", "int32", "int64")
}

CASES: Cases = {
    "Equal": [*_COMPARE_CASES, Case((Tensor((3, 7), "bool"), Tensor((7,), "bool")))],
    "BitShift": [
        *(Case(_SHIFTED[dtype], {"direction": way}) for dtype in _SHIFTED for way in ("LEFT", "RIGHT")),
        *(Case(_SIGNED[dtype], {"direction": way}) for dtype in _SIGNED for way in ("LEFT", "RIGHT")),
    ],
    **dict.fromkeys(("Less", "LessOrEqual", "Greater", "GreaterOrEqual"), _COMPARE_CASES),
    **dict.fromkeys(("And", "Or", "Xor"), _LOGICAL_CASES),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), _BITWISE_CASES),
}
