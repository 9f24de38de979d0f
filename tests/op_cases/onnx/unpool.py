"""Cases of the operators in ``compiler/ops/onnx/unpool.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

_INDICES = Tensor((1, 1, 2, 2), "int64", data=[[[[5, 7], [13, 15]]]])

CASES: Cases = {
    "MaxUnpool": (
        Case((Tensor((1, 1, 2, 2)), _INDICES), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        # with an output_shape onnxruntime counts indices in it; the standard's suite counts them in the smaller shape
        Case((Tensor((1, 1, 2, 2)), _INDICES), {"kernel_shape": [1, 1], "strides": [3, 3]}),
    ),
}
