"""Cases of the operators in ``compiler/ops/onnx/shape.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

CASES: Cases = {
    "Shape": (
        Case((Tensor((2, 3, 5)),)),
        Case((Tensor((2, 3, 5)),), {"start": 1}),
        Case((Tensor((2, 3, 5), "bool"),), {"start": -2, "end": -1}),
        Case((Tensor((2, 3, 5)),), {"start": -9, "end": 9}),
        Case((Tensor((2, 3, 5)),), {"start": 2, "end": 1}),
        Case((Tensor(()),), opset=13),
        Case((Tensor((0, 4)),), opset=7),
    ),
    "Size": (
        Case((Tensor((2, 3, 5)),)),
        Case((Tensor(()),)),
        Case((Tensor((0, 4), "uint8"),), opset=7),
    ),
}
