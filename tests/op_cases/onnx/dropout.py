"""Cases of the operators in ``compiler/ops/onnx/dropout.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

CASES: Cases = {
    "Dropout": (
        Case((Tensor((2, 3)),)),
        Case((Tensor((2, 3)), Tensor((), data=0.3, constant=True), Tensor((), "bool", data=False, constant=True))),
        Case((Tensor((2, 3)),), outputs=2),
        Case((Tensor((2, 3)), Tensor((), data=0.0, constant=True), Tensor((), "bool", data=True, constant=True))),
        Case((Tensor((4,)),), {"ratio": 0.25}, opset=7),
    ),
}
