"""Cases of the operators in ``compiler/ops/onnx/scatter.py``."""

from __future__ import annotations

import numpy as np

from ..case import Case, Cases, Tensor


def _indices(data: object, dtype: str = "int64") -> Tensor:
    return Tensor(np.asarray(data).shape, dtype, data=data)


_ELEMENT_CASES = (
    Case((Tensor((3, 3)), _indices([[1, 0, 2], [0, 2, 1]]), Tensor((2, 3)))),
    Case((Tensor((1, 5)), _indices([[1, -2]]), Tensor((1, 2))), {"axis": 1}),
    Case((Tensor((2, 4, 3)), _indices([[[0, 2]], [[1, 0]]], "int32"), Tensor((2, 1, 2))), {"axis": -1}),
)

_REDUCED = tuple(
    Case(
        (Tensor((4, 3), dtype, -9, 9), _indices([[1, 0, 3], [1, 2, -1]]), Tensor((2, 3), dtype, -9, 9)),
        {"reduction": kind},
        tolerance=2e-3 if dtype == "float16" else 1e-5,
    )
    for dtype, kind in (
        ("float32", "add"),
        ("float32", "mul"),
        ("int32", "max"),
        ("float32", "min"),
        ("int64", "add"),
        ("float16", "add"),
        ("int8", "max"),
    )
)

_NARROW = (
    Case((Tensor((3, 3), "uint8", 0, 255), _indices([[1, 0, 2]]), Tensor((1, 3), "uint8", 0, 255))),
    Case((Tensor((3, 3), "bool"), _indices([[1, 0, 2]]), Tensor((1, 3), "bool"))),
    Case((Tensor((3, 3)), Tensor((0, 3), "int64", data=[]), Tensor((0, 3)))),
)

CASES: Cases = {
    "ScatterElements": (*_ELEMENT_CASES, *_REDUCED, *_NARROW, Case(_ELEMENT_CASES[0].inputs, {"axis": 0}, opset=11)),
    "Scatter": tuple(Case(case.inputs, case.attributes, opset=10) for case in _ELEMENT_CASES[:2]),
    "ScatterND": (
        Case((Tensor((8,)), _indices([[4], [3], [1], [7]]), Tensor((4,)))),
        Case((Tensor((4, 3, 2)), _indices([[0], [-2]]), Tensor((2, 3, 2)))),
        Case((Tensor((4, 3, 2)), _indices([[[0, 1], [3, 2]]]), Tensor((1, 2, 2)))),
        Case((Tensor((4, 3)), _indices([[0, 1], [-1, -3], [2, 2]]), Tensor((3,)))),
        Case((Tensor((4, 3)), _indices([[0], [2], [0]]), Tensor((3, 3))), {"reduction": "add"}),
        Case((Tensor((4, 3)), _indices([[0], [2], [0]]), Tensor((3, 3))), {"reduction": "mul"}),
        Case(
            (Tensor((4,), "int32", -9, 9), _indices([[0], [2], [0]]), Tensor((3,), "int32", -9, 9)),
            {"reduction": "max"},
        ),
        Case((Tensor((4,)), _indices([[0], [2], [0]]), Tensor((3,))), {"reduction": "min"}),
        Case((Tensor((4, 3), "uint8", 0, 255), _indices([[0], [2]]), Tensor((2, 3), "uint8", 0, 255))),
        Case((Tensor((4, 3), "int64", -9, 9), _indices([[0], [2]]), Tensor((2, 3), "int64", -9, 9)), opset=11),
        Case((Tensor((4, 3), "bool"), _indices([[1, 1]]), Tensor((1,), "bool"))),
    ),
}
