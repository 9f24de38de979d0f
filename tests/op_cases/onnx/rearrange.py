"""Cases of the operators in ``compiler/ops/onnx/rearrange.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

CASES: Cases = {
    "DepthToSpace": (
        Case((Tensor((1, 8, 2, 3)),), {"blocksize": 2}),
        Case((Tensor((2, 12, 1, 3)),), {"blocksize": 2, "mode": "CRD"}),
        Case((Tensor((1, 18, 2, 2)),), {"blocksize": 3, "mode": "DCR"}),
        Case((Tensor((1, 4, 3, 2)),), {"blocksize": 2}, opset=7),
    ),
    "SpaceToDepth": (
        Case((Tensor((1, 2, 4, 6)),), {"blocksize": 2}),
        Case((Tensor((2, 3, 3, 9)),), {"blocksize": 3}),
        Case((Tensor((1, 1, 2, 4)),), {"blocksize": 2}, opset=7),
    ),
    "ReverseSequence": (
        Case((Tensor((5, 3)), Tensor((3,), "int64", data=[5, 2, 1]))),
        Case((Tensor((3, 4, 2)), Tensor((3,), "int64", data=[1, 4, 3])), {"batch_axis": 0, "time_axis": 1}),
        Case((Tensor((4, 2), "int64", -9, 9), Tensor((2,), "int64", data=[3, 4])), opset=10),
    ),
}
