"""Cases of the operators in ``compiler/ops/onnx/col2im.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _integers(*values: int) -> Tensor:
    return Tensor((len(values),), "int64", data=list(values), constant=True)


CASES: Cases = {
    "Col2Im": (
        Case((Tensor((1, 5, 5)), _integers(5, 5), _integers(1, 5))),
        Case((Tensor((2, 12, 9)), _integers(4, 4), _integers(2, 2))),
        Case((Tensor((1, 9, 4)), _integers(5, 5), _integers(3, 3)), {"strides": [2, 2]}),
        Case((Tensor((1, 8, 16)), _integers(5, 5), _integers(2, 2)), {"dilations": [2, 2], "pads": [1, 0, 0, 1]}),
        Case((Tensor((1, 8, 12)), _integers(3, 4, 3), _integers(2, 2, 2))),
    ),
}
