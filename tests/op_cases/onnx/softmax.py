"""Cases of the operators in ``compiler/ops/onnx/softmax.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

_CASES = (
    Case((Tensor((3, 7)),)),
    Case((Tensor((3, 7)),), {"axis": 0}),
    Case((Tensor((2, 3, 5, 7)),), {"axis": 1}),
    Case((Tensor((2, 3, 5, 7)),), {"axis": -2}),
    Case((Tensor((17,)),)),
    Case((Tensor((2, 1)),)),
    Case((Tensor((5, 300), low=-60.0, high=90.0),)),
    Case((Tensor((2, 3, 5)),), opset=11),
    Case((Tensor((2, 3, 5)),), {"axis": 2}, opset=11),
    Case((Tensor((2, 3, 5)),), {"axis": -2}, opset=11),
)

CASES: Cases = {
    **dict.fromkeys(("Softmax", "LogSoftmax"), (*_CASES, Case((Tensor((3, 7), "float16"),), tolerance=3e-3))),
    "Hardmax": (*_CASES, Case((Tensor((2, 4), data=[[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0]]),))),
}
