"""Cases of the operators in ``compiler/ops/onnx/tensor_scatter.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

_CACHE = (Tensor((2, 3, 6, 4)), Tensor((2, 3, 2, 4)))

CASES: Cases = {
    "TensorScatter": (
        Case((*_CACHE, Tensor((2,), "int64", data=[1, 4]))),
        Case(_CACHE),
        Case((*_CACHE, Tensor((2,), "int64", data=[5, 2])), {"mode": "circular"}),
        Case((Tensor((2, 6, 4), "int8", -9, 9), Tensor((2, 6, 1), "int8", -9, 9)), {"axis": -1}),
    ),
}
