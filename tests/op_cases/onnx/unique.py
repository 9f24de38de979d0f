"""Cases of the operators in ``compiler/ops/onnx/unique.py``."""

from __future__ import annotations

import numpy as np

from ..case import Case, Cases, Tensor

_TWICE = np.array([[2.0, 1.0, 2.0], [1.0, 3.0, 1.0], [2.0, 1.0, 2.0], [0.5, 3.0, 0.5]])

CASES: Cases = {
    "Unique": (
        Case((Tensor((4, 3), data=_TWICE, constant=True),), outputs=4),
        Case((Tensor((4, 3), data=_TWICE, constant=True),), {"sorted": 0}, outputs=4),
        Case((Tensor((4, 3), data=_TWICE, constant=True),), {"axis": 0}, outputs=4),
        Case((Tensor((4, 3), data=_TWICE, constant=True),), {"axis": -1, "sorted": 0}, outputs=4),
        Case((Tensor((7,), "int64", data=[5, -(2**40), 5, 7, 2**40, 7, 5], constant=True),), outputs=2),
    ),
}
