"""Cases of the operators in ``compiler/ops/microsoft/biased.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

_RATIO = Tensor((), data=0.3, constant=True)

CASES: Cases = {
    "BiasAdd": (
        Case((Tensor((2, 3, 7)), Tensor((7,)), Tensor((2, 3, 7)))),
        Case((Tensor((1, 1, 320)), Tensor((320,)), Tensor((1, 1, 320)))),
    ),
    "BiasSplitGelu": (
        Case((Tensor((2, 3, 14)), Tensor((14,)))),
        Case((Tensor((1, 5, 64), low=-4.0, high=4.0), Tensor((64,)))),
    ),
    "BiasSoftmax": (
        Case((Tensor((2, 3, 5, 7)), Tensor((2, 1, 1, 7))), {"axis": 3, "is_inner_broadcast": 1}),
        Case((Tensor((2, 3, 5, 7)), Tensor((5, 7))), {"axis": 3, "is_inner_broadcast": 0}),
        Case((Tensor((2, 3, 5, 7)), Tensor((1, 1, 5, 7))), {"axis": 2, "is_inner_broadcast": 0}),
    ),
    "BiasDropout": (
        Case((Tensor((2, 3, 7)), Tensor((7,)), Tensor((2, 3, 7)), _RATIO), outputs=2),
        Case((Tensor((2, 3, 7)), Tensor((7,)), None, _RATIO, Tensor((), "bool", data=False, constant=True))),
        Case((Tensor((3, 5)), Tensor((5,)))),
    ),
}
