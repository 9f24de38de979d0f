"""Cases of the operators in ``compiler/ops/onnx/elementwise.py``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..case import Case, Cases, Tensor

_RANGES = {
    "Ceil": (-3.0, 3.0),
    "Floor": (-3.0, 3.0),
    "Sqrt": (0.0, 9.0),
    "Exp": (-5.0, 5.0),
    "Log": (0.01, 9.0),
    "Sin": (-6.0, 6.0),
    "Cos": (-6.0, 6.0),
    "Tan": (-1.2, 1.2),
    "Asin": (-1.0, 1.0),
    "Acos": (-1.0, 1.0),
    "Atan": (-9.0, 9.0),
    "Sinh": (-4.0, 4.0),
    "Cosh": (-4.0, 4.0),
    "Tanh": (-4.0, 4.0),
    "Asinh": (-4.0, 4.0),
    "Acosh": (1.0, 9.0),
    "Atanh": (-0.99, 0.99),
    "Erf": (-4.0, 4.0),
}


def unary_cases(low: float = -2.0, high: float = 2.0, extra: Sequence[Case] = ()) -> list[Case]:
    """Odd sizes, a scalar, an empty tensor, half precision."""
    shapes = ((3, 7), (17,), (), (1, 3, 1, 7), (0, 3))
    cases = [Case((Tensor(shape, low=low, high=high),)) for shape in shapes]
    return [*cases, Case((Tensor((5, 3), "float16", low, high),), tolerance=2e-3), *extra]


def exactly(*values: float, dtype: str = "float32") -> Tensor:
    return Tensor((len(values),), dtype, data=list(values))


_SATURATED = {
    "Tanh": [Case((exactly(-100.0, -20.0, 0.0, 20.0, 100.0),))],
    "Erf": [Case((exactly(-100.0, -6.0, 0.0, 1e-4, 6.0, 100.0),))],
    "Exp": [Case((exactly(-104.0, -1.0, 0.0, 1.0),))],
}

_INTEGER_UNARY = [
    Case((exactly(-128, -1, 0, 5, 127, dtype="int8"),)),
    Case((exactly(-(2**40), -1, 0, 7, dtype="int64"),)),
    Case((Tensor((3, 5), "int32", -9, 9),)),
]

_SPECIAL = exactly(math.nan, math.inf, -math.inf, 0.0, 1.0, -3e38)


def binary_cases(dtype: str = "float32", low: float = -2.0, high: float = 2.0) -> list[Case]:
    """The kinds of broadcasting, odd sizes, scalars, empty tensors."""
    shapes = (
        ((3, 7), (3, 7)),
        ((2, 3, 5), (3, 1)),
        ((1, 17), (3, 1)),
        ((), (5,)),
        ((2, 1, 3, 1), (1, 4, 1, 7)),
        ((0, 3), (1, 3)),
    )
    return [Case((Tensor(left, dtype, low, high), Tensor(right, dtype, low, high))) for left, right in shapes]


def _wrapping_cases() -> list[Case]:
    return [
        Case((exactly(100, -100, 127, -128, dtype="int8"), exactly(100, 100, 1, -128, dtype="int8")), opset=14),
        Case((exactly(200, 255, 0, dtype="uint8"), exactly(100, 1, 3, dtype="uint8")), opset=14),
        Case((exactly(2**40, -(2**33), 7, dtype="int64"), exactly(3, 2**20, -9, dtype="int64"))),
    ]


_MOD_INTEGERS = (exactly(7, -7, 7, -7, 6, dtype="int32"), exactly(3, 3, -3, -3, 3, dtype="int32"))

CASES: Cases = {
    "Round": unary_cases(-3.0, 3.0, [Case((exactly(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.49),))]),
    "Reciprocal": unary_cases(0.2, 4.0),
    "Abs": unary_cases(extra=_INTEGER_UNARY),
    "Neg": unary_cases(extra=_INTEGER_UNARY),
    "Sign": unary_cases(extra=[*_INTEGER_UNARY, Case((exactly(0, 1, 200, dtype="uint8"),))]),
    "Not": [Case((Tensor((3, 7), "bool"),))],
    "BitwiseNot": [Case((Tensor((7,), dtype, 0, 90),)) for dtype in ("uint8", "int8", "int32", "uint16", "int64")],
    "IsNaN": [Case((_SPECIAL,))],
    "IsInf": [Case((_SPECIAL,), {"detect_negative": n, "detect_positive": p}) for n in (0, 1) for p in (0, 1)],
    "Div": [
        *binary_cases(low=0.5),
        Case((exactly(7, -7, 7, -7, 6, dtype="int32"), exactly(2, 2, -2, -2, 3, dtype="int32"))),
        Case((exactly(7, -7, 2**40, dtype="int64"), exactly(2, 2, -3, dtype="int64"))),
        Case((exactly(200, 255, 9, dtype="uint8"), exactly(100, 2, 4, dtype="uint8")), opset=14),
    ],
    "Mod": [
        Case(_MOD_INTEGERS),
        Case(_MOD_INTEGERS, {"fmod": 1}),
        Case((exactly(-7, 2**40 + 1, dtype="int64"), exactly(3, 5, dtype="int64"))),
        Case((exactly(200, 7, dtype="uint8"), exactly(6, 4, dtype="uint8"))),
        Case((exactly(-4.3, 7.2, 5.0), exactly(2.1, -3.4, 8.0)), {"fmod": 1}),
    ],
    "Pow": [
        *binary_cases(low=0.2),
        Case((Tensor((3, 7)), Tensor(data=2.0, constant=True))),
        Case((Tensor((3, 7)), Tensor(data=3.0, constant=True))),
        Case((Tensor((3, 7), low=0.1), Tensor(data=0.5, constant=True))),
        Case((exactly(-2.0, -2.0, 2.0, 0.0), exactly(2.0, 3.0, -1.0, 0.0))),
        Case((Tensor((7,)), exactly(0, 1, 2, 3, 4, 5, 2, dtype="int64"))),
        Case((exactly(2, -3, 5, 7, 0, dtype="int32"), exactly(10, 3, 0, 1, 2, dtype="int32"))),
        Case((exactly(3, -2, dtype="int64"), exactly(30, 61, dtype="int64"))),
        Case((exactly(4, 9, 2, dtype="int32"), exactly(0.5, 0.5, 3.0))),
    ],
    **{name: unary_cases(low, high, _SATURATED.get(name, ())) for name, (low, high) in _RANGES.items()},
    **dict.fromkeys(("Add", "Sub", "Mul"), (*binary_cases(), *binary_cases("int32", -50, 50)[:3], *_wrapping_cases())),
}
