"""Cases of the operators in ``compiler/ops/microsoft/standard_forms.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

_INT64 = "int64"


def _number(value: int, dtype: str = _INT64) -> Tensor:
    return Tensor((), dtype, data=value, constant=True)


CASES: Cases = {
    "Trilu": [Case((Tensor((4, 5)),)), Case((Tensor((2, 3, 4)), _number(-1)), {"upper": 0})],
    "Pad": [
        Case((Tensor((3, 4)), Tensor((4,), _INT64, data=[1, 0, 2, 3], constant=True), Tensor((1,), data=[0.5]))),
        Case((Tensor((3, 4)), Tensor((4,), _INT64, data=[1, 0, 2, 3], constant=True)), {"mode": "edge"}),
    ],
    "GatherND": [Case((Tensor((3, 4)), Tensor((2, 2), _INT64, data=[[0, 3], [1, 2]])))],
    "GridSample": [
        Case((Tensor((2, 3, 4, 5)), Tensor((2, 3, 2, 2), low=-1.2, high=1.2)), {"mode": "bilinear"}),
        Case((Tensor((1, 2, 4, 5)), Tensor((1, 3, 2, 2), low=-1.2, high=1.2)), {"padding_mode": "border"}),
        Case((Tensor((1, 2, 4, 5)), Tensor((1, 3, 2, 2), low=-1.0, high=1.0)), {"mode": "bicubic", "align_corners": 1}),
    ],
    "TransposeMatMul": [
        Case((Tensor((2, 7, 3)), Tensor((2, 5, 7))), {"transA": 1, "transB": 1}),
        Case((Tensor((3, 7)), Tensor((7, 5))), {"alpha": 0.5}),
    ],
    "ExpandDims": (
        Case((Tensor((3, 5)), _number(1, "int32"))),
        Case((Tensor((3, 5)), _number(-1, "int32"))),
        Case((Tensor((2,), "float32"), _number(0, "int32"))),
    ),
    "CDist": (
        Case((Tensor((3, 7)), Tensor((5, 7))), {"metric": "euclidean"}),
        Case((Tensor((17, 3)), Tensor((1, 3))), {"metric": "sqeuclidean"}),
    ),
}
