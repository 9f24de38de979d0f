"""Cases of the operators in ``compiler/ops/onnx/determinant.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

CASES: Cases = {
    "Det": (
        Case((Tensor((2, 2)),)),
        Case((Tensor((3, 4, 4)),), tolerance=2e-5),
        Case((Tensor((2, 2, 3, 3)),), tolerance=2e-5),
        Case((Tensor((1, 1)),)),
        Case((Tensor((2, 2), data=[[0.0, 2.0], [3.0, 0.0]]),)),
        Case((Tensor((2, 2), data=[[0.0, 2.0], [0.0, 5.0]]),)),
    ),
}
