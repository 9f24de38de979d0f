"""Cases of the operators in ``compiler/ops/onnx/reductions.py``."""

from __future__ import annotations

from collections.abc import Sequence

from ..case import Case, Cases, Tensor


def axes_input(*axes: int) -> Tensor:
    return Tensor((len(axes),), "int64", data=list(axes), constant=True)


def _cases(types: Sequence[str], low: float = -2.0) -> tuple[Case, ...]:
    def value(*shape: int) -> Tensor:
        return Tensor(shape, low=low)

    others = (Tensor((3, 5), dtype) if dtype == "bool" else Tensor((3, 7), dtype, 1, 5) for dtype in types)
    return (
        Case((value(3, 7),)),
        Case((value(3, 7), axes_input(1)), {"keepdims": 0}),
        Case((value(2, 3, 5, 7), axes_input(-1, 1))),
        Case((value(2, 17, 3), axes_input(0, 2)), {"keepdims": 0}),
        Case((value(1, 130),), {"keepdims": 0}),
        Case((value(2, 3), axes_input()), {"noop_with_empty_axes": 1}),
        Case((value(2, 3, 5),), {"axes": [1], "keepdims": 0}, opset=11),
        Case((value(3, 0, 2), axes_input(0))),
        *(Case((other, axes_input(1))) for other in others),
    )


_TIES = Tensor((2, 5), data=[[1.0, 3.0, 3.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
_ARG_CASES = (
    Case((Tensor((3, 7)),)),
    Case((Tensor((3, 7)),), {"axis": 1, "keepdims": 0}),
    Case((Tensor((2, 3, 5)),), {"axis": -2}),
    Case((_TIES,), {"axis": 1}),
    Case((_TIES,), {"axis": 1, "select_last_index": 1}),
    Case((Tensor((1, 300)),), {"axis": -1, "keepdims": 0}),
    Case((Tensor((3, 7), "int32", -9, 9),), {"axis": 1}),
)


_POOL_CASES = tuple(Case((Tensor(shape),)) for shape in ((2, 3, 7, 5), (1, 17, 1, 1), (1, 3, 9), (1, 2, 3, 4, 5)))

CASES: Cases = {
    # onnxruntime implements versions before 22
    "GlobalLpPool": (
        *(Case(case.inputs, opset=21) for case in _POOL_CASES),
        Case((Tensor((1, 3, 5, 7)),), {"p": 3}, opset=21),
        Case((Tensor((1, 3, 5, 7)),), {"p": 1}, opset=21),
    ),
    **dict.fromkeys(
        ("ReduceSum", "ReduceProd", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare"),
        _cases(("int32", "int64")),
    ),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _cases(("int32", "int64", "bool"))),
    **dict.fromkeys(("ReduceLogSum", "ReduceLogSumExp"), _cases((), 0.1)),
    **dict.fromkeys(("ArgMax", "ArgMin"), _ARG_CASES),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _POOL_CASES),
}
