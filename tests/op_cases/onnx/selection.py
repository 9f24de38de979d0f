"""Cases of the operators in ``compiler/ops/onnx/selection.py``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..case import Case, Cases, Tensor
from .elementwise import exactly


def _variadic_cases(dtypes: Sequence[str]) -> list[Case]:
    cases = []
    for dtype in dtypes:
        cases += [
            Case((Tensor((3, 7), dtype, -9, 9),)),
            Case((Tensor((3, 7), dtype, -9, 9), Tensor((7,), dtype, -9, 9))),
            Case((Tensor((1, 3), dtype, -9, 9), Tensor((5, 1), dtype, -9, 9), Tensor((), dtype, -9, 9))),
        ]
    return cases


_NAN_PAIR = (exactly(math.nan, 1.0, math.nan, -3.0), exactly(1.0, math.nan, math.nan, 2.0))

_LOW, _HIGH = Tensor(data=-0.5, constant=True), Tensor(data=0.75, constant=True)

CASES: Cases = {
    "Sum": tuple(_variadic_cases(("float32",))),
    "Mean": tuple(_variadic_cases(("float32",))),
    "Where": [
        Case((Tensor((3, 7), "bool"), Tensor((3, 7)), Tensor((7,)))),
        Case((Tensor((3, 1), "bool"), Tensor((1, 5), "int64", -9, 9), Tensor((), "int64", -9, 9))),
        Case((Tensor((5,), "bool"), Tensor((2, 5), "uint8", 0, 255), Tensor((1,), "uint8", 0, 255))),
        Case((Tensor((0,), "bool"), Tensor((0,)), Tensor((1,)))),
    ],
    "Clip": [
        Case((Tensor((3, 7)), _LOW, _HIGH)),
        Case((Tensor((17,)), Tensor(data=-0.5), Tensor(data=0.75))),
        Case((Tensor((3, 7)), None, _HIGH)),
        Case((Tensor((3, 7)), _LOW)),
        Case((Tensor((3, 7)),)),
        Case((Tensor((3, 7)), _HIGH, _LOW)),
        Case((exactly(math.nan, -9.0, 9.0), _LOW, _HIGH)),
        Case((Tensor((7,)),), {"min": 0.0, "max": 1.0}, opset=10),
        Case((Tensor((7,)),), {"max": 1.0}, opset=7),
        Case((Tensor((7,), "int32", -9, 9), Tensor((), "int32", data=-3), Tensor((), "int32", data=4))),
        Case((Tensor((7,), "int8", -9, 9), Tensor((), "int8", data=-3), Tensor((), "int8", data=4))),
    ],
    **dict.fromkeys(("Max", "Min"), (*_variadic_cases(("float32", "int32", "int64")), Case(_NAN_PAIR))),
}
