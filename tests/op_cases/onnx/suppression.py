"""Cases of the operators in ``compiler/ops/onnx/suppression.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

_BOXES = [[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [1, 101, 0, 100]]]

_OPERANDS = (
    Tensor((1, 6, 4), data=_BOXES, constant=True),
    Tensor((1, 1, 6), data=[[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3]]], constant=True),
    Tensor((1,), "int64", data=[3], constant=True),
)


def _threshold(value: float) -> Tensor:
    return Tensor((1,), data=[value], constant=True)


CASES: Cases = {
    "NonMaxSuppression": (
        Case((*_OPERANDS, _threshold(0.5), _threshold(0.4))),
        Case((*_OPERANDS, _threshold(0.5))),
        Case(_OPERANDS),
        Case((*_OPERANDS, None, _threshold(0.4)), {"center_point_box": 1}),
        Case(_OPERANDS[:2]),
    ),
}
