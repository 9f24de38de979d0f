"""Cases of the operators in ``compiler/ops/onnx/topk.py``."""

from __future__ import annotations

import numpy as np

from ..case import Case, Cases, Tensor


def _k(value: int) -> Tensor:
    return Tensor((1,), "int64", data=[value], constant=True)


CASES: Cases = {
    "TopK": (
        Case((Tensor((3, 7)), _k(3)), outputs=2),
        Case((Tensor((3, 7)), _k(7)), {"largest": 0}, outputs=2),
        Case((Tensor((5, 2, 3)), _k(2)), {"axis": 0}, outputs=2),
        Case((Tensor((2, 9), "int32", -3, 3), _k(5)), {"axis": 1}, outputs=2),
        Case((Tensor((2, 9), "int64", -(2**40), 2**40), _k(4)), {"largest": 0}, outputs=2),
        Case((Tensor((2, 1300), "int32", -100, 100), _k(9)), outputs=2),
        Case((Tensor((1100, 2), data=np.zeros((1100, 2))), _k(4)), {"axis": 0}, outputs=2),
        Case((Tensor((1, 1300), "int32", -100, 100), _k(1300)), {"largest": 0}, outputs=2),
        Case((Tensor((1537, 2), data=np.round(np.sin(np.arange(3074)), 1)), _k(700)), {"axis": 0}, outputs=2),
        Case((Tensor((4, 5), "float16"), _k(2)), outputs=2),
        Case((Tensor((4, 5), "uint8", 0, 9), _k(3)), outputs=2),
        Case((Tensor((3, 7)), _k(0)), outputs=2),
        Case((Tensor((3, 7)), _k(2)), {"sorted": 1}, outputs=2, opset=11),
    ),
}
