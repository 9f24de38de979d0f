"""Cases of the operators in ``compiler/ops/onnx/generators.py``."""

from __future__ import annotations

import numpy as np

from ..case import Case, Cases, Tensor


def _scalar(value: float, dtype: str) -> Tensor:
    return Tensor((), dtype, data=value, constant=True)


def _shape(*sizes: int) -> Tensor:
    return Tensor((len(sizes),), "int64", data=list(sizes), constant=True)


CASES: Cases = {
    "ConstantOfShape": (
        Case((_shape(2, 3),)),
        Case((_shape(3),), {"value": np.array([-7], np.int64)}),
        Case((_shape(2, 1, 2),), {"value": np.array([True])}),
        Case((_shape(5),), {"value": np.array([200], np.uint8)}),
        Case((_shape(0, 4),), {"value": np.array([1.5], np.float32)}),
        Case((_shape(),), {"value": np.array([1.5], np.float32)}, opset=9),
    ),
    "Range": (
        Case((_scalar(3, "int64"), _scalar(9, "int64"), _scalar(3, "int64"))),
        Case((_scalar(10, "int64"), _scalar(4, "int64"), _scalar(-4, "int64"))),
        Case((_scalar(0, "int32"), _scalar(7, "int32"), _scalar(1, "int32"))),
        Case((_scalar(0.5, "float32"), _scalar(3.1, "float32"), _scalar(0.25, "float32"))),
        Case((_scalar(2.0, "float32"), _scalar(-1.0, "float32"), _scalar(-0.75, "float32"))),
        Case((_scalar(5, "int64"), _scalar(5, "int64"), _scalar(1, "int64"))),
        Case((_scalar(2**33, "int64"), _scalar(2**33 + 5, "int64"), _scalar(2, "int64")), opset=11),
    ),
    "EyeLike": (
        Case((Tensor((3, 5)),)),
        Case((Tensor((4, 3), "int32", -9, 9),), {"k": 1, "dtype": 1}),
        Case((Tensor((4, 3)),), {"k": -2, "dtype": 7}),
        Case((Tensor((3, 3)),), {"k": 5, "dtype": 6}, opset=9),
        Case((Tensor((3, 5)),), {"k": 2**40}),
        Case((Tensor((5, 3)),), {"k": -(2**31)}),
    ),
}
