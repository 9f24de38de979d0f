"""Cases of the operators in ``compiler/ops/onnx/indexing.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

CASES: Cases = {
    "Gather": (
        Case((Tensor((5, 3)), Tensor((2, 2), "int64", data=[[0, -1], [4, -5]]))),
        Case((Tensor((2, 7, 3)), Tensor((3,), "int32", data=[6, -7, 2])), {"axis": 1}),
        Case((Tensor((2, 7), "int64", -9, 9), Tensor((), "int64", data=-2)), {"axis": -1}),
        Case((Tensor((2, 7), "uint8", 0, 255), Tensor((), "int64", data=3, constant=True)), {"axis": 1}),
        Case((Tensor((2, 7), "bool"), Tensor((1, 1), "int64", data=[[-1]], constant=True)), {"axis": 1}),
        Case((Tensor((2, 3, 2, 3)), Tensor((2, 1, 2), "int64", data=[[[1, 0]], [[-1, 1]]])), {"axis": 2}),
        Case((Tensor((4, 3)), Tensor((0,), "int64", data=[])), opset=7),
    ),
    "GatherElements": (
        Case((Tensor((3, 3)), Tensor((2, 3), "int64", data=[[1, 2, 0], [-1, 0, -3]]))),
        Case((Tensor((2, 4), "int64", -9, 9), Tensor((2, 3), "int32", data=[[3, 0, -1], [1, 1, -4]])), {"axis": 1}),
        Case((Tensor((3, 2, 2), "bool"), Tensor((1, 2, 1), "int64", data=[[[1], [-2]]])), {"axis": -1}),
        Case((Tensor((4,), "uint8", 0, 255), Tensor((6,), "int64", data=[0, 1, 3, -1, 2, 2])), opset=11),
    ),
    "GatherND": (
        Case((Tensor((3, 4)), Tensor((2, 2), "int64", data=[[0, 3], [-1, -4]]))),
        Case((Tensor((3, 4, 2), "int64", -9, 9), Tensor((2, 1, 2), "int64", data=[[[0, 3]], [[2, -1]]]))),
        Case((Tensor((3, 4, 2)), Tensor((2, 1), "int64", data=[[2], [-2]]))),
        Case((Tensor((2, 3, 4)), Tensor((2, 1), "int64", data=[[1], [-1]])), {"batch_dims": 1}),
        Case(
            (Tensor((2, 3, 4), "bool"), Tensor((2, 2, 1), "int64", data=[[[1], [0]], [[-1], [2]]])), {"batch_dims": 1}
        ),
        Case((Tensor((2, 3)), Tensor((2, 1), "int64", data=[[1], [0]])), opset=11),
    ),
    "OneHot": (
        Case(
            (
                Tensor((4,), "int64", data=[0, 2, -1, 7]),
                Tensor((), "int64", data=5, constant=True),
                Tensor((2,), "float32", data=[0.0, 1.0]),
            )
        ),
        Case(
            (
                Tensor((2, 3), "int32", data=[[0, 2, -4], [1, -3, 9]]),
                Tensor((1,), "int32", data=[3], constant=True),
                Tensor((2,), "float32", data=[-5.0, 5.0]),
            ),
            {"axis": 1},
        ),
        Case(
            (
                Tensor((2, 2), "float32", data=[[0.0, 2.0], [1.0, -3.0]]),
                Tensor((), "float32", data=3.0, constant=True),
                Tensor((2,), "float32", data=[0.5, 2.0]),
            ),
            {"axis": 0},
        ),
        Case(
            (
                Tensor((3,), "int64", data=[0, 2, 1]),
                Tensor((), "int64", data=3, constant=True),
                Tensor((2,), "int64", data=[0, 1]),
            ),
            opset=9,
        ),
    ),
    "Trilu": (
        Case((Tensor((4, 5)),)),
        Case((Tensor((2, 3, 4), "int64", -9, 9), Tensor((), "int64", data=-1, constant=True)), {"upper": 0}),
        Case((Tensor((4, 3)), Tensor((), "int64", data=2, constant=True))),
        Case((Tensor((3, 3), "bool"), Tensor((), "int64", data=9, constant=True)), {"upper": 1}),
        *(
            Case((Tensor((3, 4)), Tensor((), "int64", data=k, constant=True)), {"upper": upper})
            for k in (2**31 - 1, 2**40, -(2**31) - 1)
            for upper in (0, 1)
        ),
    ),
}
