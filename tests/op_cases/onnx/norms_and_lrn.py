"""Cases of the operators in ``compiler/ops/onnx/norms_and_lrn.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

CASES: Cases = {
    "LpNormalization": (
        Case((Tensor((3, 7)),)),
        Case((Tensor((3, 7)),), {"p": 1}),
        Case((Tensor((2, 3, 5)),), {"axis": 1}),
        Case((Tensor((2, 3, 5)),), {"axis": -2, "p": 1}),
    ),
    "MeanVarianceNormalization": (
        Case((Tensor((2, 3, 5, 7)),)),
        Case((Tensor((2, 3, 5, 7)),), {"axes": [1]}),
        Case((Tensor((3, 17)),), {"axes": [-1]}),
    ),
    "LRN": (
        Case((Tensor((2, 7, 3, 5)),), {"size": 3, "alpha": 0.5}),
        Case((Tensor((1, 5, 3, 3)),), {"size": 5, "alpha": 0.2, "beta": 0.5, "bias": 2.0}),
        Case((Tensor((1, 3, 3, 3)),), {"size": 1}),
    ),
}
