"""Cases of the operators in ``compiler/ops/onnx/nonzero.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

CASES: Cases = {
    "NonZero": (
        Case((Tensor((2, 3), data=[[1.0, 0.0, 2.0], [0.0, 0.0, -1.0]], constant=True),)),
        Case((Tensor((4,), "bool", data=[True, False, False, True], constant=True),)),
        Case((Tensor((2, 2), "int64", data=[[0, 0], [0, 0]], constant=True),), opset=9),
    ),
    "Compress": (
        Case((Tensor((3, 4)), Tensor((3,), "bool", data=[True, False, True], constant=True)), {"axis": 0}),
        Case((Tensor((3, 4), "int64", -9, 9), Tensor((2,), "bool", data=[False, True], constant=True)), {"axis": -1}),
        Case((Tensor((2, 3), "uint8", 0, 255), Tensor((5,), "bool", data=[0, 1, 1, 0, 1], constant=True))),
        Case((Tensor((3, 4)), Tensor((3,), "bool", data=[0, 0, 1], constant=True)), {"axis": 0}, opset=9),
    ),
}
