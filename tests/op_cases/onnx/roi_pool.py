"""Cases of the operators in ``compiler/ops/onnx/roi_pool.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

_REGIONS = [[0.0, 0, 0, 9, 9], [1, 2.4, 1, 7, 9.5], [0, 5, 5, 5, 5], [1, 3, 4, 2, 1], [0, 8, 2, 30, 12]]

_OPERANDS = (Tensor((2, 3, 10, 11)), Tensor((5, 5), data=_REGIONS))

CASES: Cases = {
    # onnxruntime has no kernel for version 22
    "MaxRoiPool": (
        Case(_OPERANDS, {"pooled_shape": [3, 2]}, opset=20),
        Case(_OPERANDS, {"pooled_shape": [2, 7], "spatial_scale": 0.6}, opset=20),
        Case((Tensor((1, 1, 3, 1)), Tensor((1, 5), data=[[0.0, 0, 0, 0, 2]])), {"pooled_shape": [1, 1]}, opset=20),
    ),
}
