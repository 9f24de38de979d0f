"""Cases of the operators in ``compiler/ops/onnx/views.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _ints(*values: int) -> Tensor:
    return Tensor((len(values),), "int64", data=list(values), constant=True)


CASES: Cases = {
    "Reshape": (
        Case((Tensor((2, 3, 4)), _ints(6, 4))),
        Case((Tensor((2, 3, 5)), _ints(5, 6))),
        Case((Tensor((2, 3, 4)), _ints(0, -1))),
        Case((Tensor((2, 7, 24)), _ints(0, 0, 4, -1))),
        Case((Tensor((1, 6, 1, 5), "int64", -9, 9), _ints(3, 1, 2, 5))),
        Case((Tensor((6,), "bool"), _ints(1, 2, 1, 3, 1, 1))),
        Case((Tensor((1, 1)), Tensor((0,), "int64", data=[], constant=True))),
        Case((Tensor((0, 3)), _ints(3, 0)), {"allowzero": 1}),
        Case((Tensor((0, 3)), _ints(-1, 3))),
        Case((Tensor((4, 3), "uint8", 0, 255), _ints(-1)), opset=7),
    ),
    "Flatten": (
        Case((Tensor((2, 3, 4, 5)),)),
        Case((Tensor((2, 3, 4)),), {"axis": 0}),
        Case((Tensor((2, 3, 4), "int32", -9, 9),), {"axis": 3}),
        Case((Tensor((2, 3, 5)),), {"axis": -1}, opset=11),
        Case((Tensor((3, 0, 2)),)),
    ),
    "Squeeze": (
        Case((Tensor((1, 3, 1, 5)), _ints(0, -2))),
        Case((Tensor((1, 3, 1, 5), "int64", -9, 9),)),
        Case((Tensor((1, 1), "bool"),)),
        Case((Tensor((2, 1, 3)),), {"axes": [1]}, opset=11),
        Case((Tensor((0, 1)), _ints(1))),
    ),
    "Unsqueeze": (
        Case((Tensor((3, 5)), _ints(0, -1))),
        Case((Tensor((), "int64", -9, 9), _ints(0))),
        Case((Tensor((2, 3)), _ints(3, 1))),
        Case((Tensor((2, 3), "uint8", 0, 255),), {"axes": [0, 2]}, opset=11),
    ),
    "Transpose": (
        Case((Tensor((3, 5)),)),
        Case((Tensor((2, 3, 4, 5)),), {"perm": [0, 2, 3, 1]}),
        Case((Tensor((2, 3, 4), "int64", -9, 9),), {"perm": [2, 0, 1]}),
        Case((Tensor((2, 1, 3, 2, 2, 3), "uint8", 0, 255),), {"perm": [5, 0, 3, 1, 4, 2]}),
        Case((Tensor((7,), "bool"),), {"perm": [0]}),
        Case((Tensor(()),)),
        Case((Tensor((0, 3)),), {"perm": [1, 0]}, opset=7),
    ),
    "Expand": (
        Case((Tensor((3, 1)), _ints(3, 5))),
        Case((Tensor((3, 1)), _ints(2, 1, 6))),
        Case((Tensor((2, 3), "int64", -9, 9), _ints(1, 1))),
        Case((Tensor((), "bool"), _ints(2, 3))),
        Case((Tensor((1, 3, 1, 2), "uint8", 0, 255), _ints(2, 1, 2, 3, 4, 2))),
        Case((Tensor((1, 3)), _ints(0, 3)), opset=8),
    ),
    "Identity": (
        Case((Tensor((2, 3)),)),
        Case((Tensor((), "int64", -9, 9),)),
        Case((Tensor((5,), "bool"),), opset=7),
        Case((Tensor((0, 2), "uint8"),)),
    ),
}
