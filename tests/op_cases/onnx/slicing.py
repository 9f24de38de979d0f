"""Cases of the operators in ``compiler/ops/onnx/slicing.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _ints(*values: int, dtype: str = "int64") -> Tensor:
    return Tensor((len(values),), dtype, data=list(values), constant=True)


CASES: Cases = {
    "Slice": (
        Case((Tensor((5, 7)), _ints(1, 2), _ints(4, 7))),
        Case((Tensor((5, 7)), _ints(-3), _ints(2**31 - 1), _ints(-1))),
        Case((Tensor((5, 7), "int64", -9, 9), _ints(0, 6), _ints(5, 0), _ints(0, 1), _ints(2, -2))),
        Case((Tensor((9,), "uint8", 0, 255), _ints(-1), _ints(-(2**63)), _ints(0), _ints(-1))),
        Case((Tensor((9,), "bool"), _ints(100), _ints(-100), _ints(0), _ints(-4))),
        Case((Tensor((4, 5)), _ints(3, dtype="int32"), _ints(2, dtype="int32"), _ints(1, dtype="int32"))),
        Case((Tensor((2, 3, 4, 2, 3, 5)), _ints(1, 0), _ints(4, 5), _ints(2, 5), _ints(1, 3))),
        Case((Tensor((0, 4)), _ints(1), _ints(3), _ints(1))),
        Case((Tensor((5, 7)),), {"starts": [1, -4], "ends": [3, 1000], "axes": [0, 1]}, opset=9),
        Case((Tensor((5, 7)),), {"starts": [2], "ends": [4]}, opset=7),
    ),
    "Split": (
        Case((Tensor((6, 5)),), {"num_outputs": 3}, outputs=3),
        Case((Tensor((2, 7)),), {"axis": 1, "num_outputs": 3}, outputs=3),
        Case((Tensor((2, 9), "int64", -9, 9), _ints(2, 4, 3)), {"axis": -1}, outputs=3),
        Case((Tensor((2, 3, 4), "uint8", 0, 255), _ints(0, 3)), {"axis": 1}, outputs=2),
        Case((Tensor((4,), "bool"),), {"num_outputs": 1}),
        Case((Tensor((2, 6)),), {"axis": 1}, outputs=2),
        Case((Tensor((2, 6)),), {"axis": 1}, outputs=2, opset=13),
        Case((Tensor((2, 6)),), {"axis": 1, "split": [1, 5]}, outputs=2, opset=11),
        Case((Tensor((4, 3)),), outputs=2, opset=7),
    ),
    "Concat": (
        Case((Tensor((2, 3)), Tensor((2, 5))), {"axis": 1}),
        Case((Tensor((2, 3)), Tensor((1, 3)), Tensor((4, 3))), {"axis": 0}),
        Case((Tensor((3,), "int64", -9, 9),) * 4, {"axis": -1}),
        Case((Tensor((2, 3, 2), "uint8", 0, 255), Tensor((2, 3, 3), "uint8", 0, 255)), {"axis": -1}),
        Case((Tensor((2, 1), "bool"), Tensor((2, 1), "bool")), {"axis": 1}),
        Case((Tensor((2, 0)), Tensor((2, 3)), Tensor((2, 0))), {"axis": 1}),
        Case((Tensor((2, 3)),), {"axis": 1}, opset=7),
        Case((Tensor((1, 2, 1, 3, 1, 2)), Tensor((1, 2, 2, 3, 1, 2))), {"axis": 2}),
    ),
    "Tile": (
        Case((Tensor((2, 3)), _ints(2, 3))),
        Case((Tensor((3, 1, 2), "int64", -9, 9), _ints(1, 4, 1))),
        Case((Tensor((5,), "bool"), _ints(3))),
        Case((Tensor((2, 3), "uint8", 0, 255), _ints(0, 2))),
        Case((Tensor((2, 1, 3)), _ints(1, 1, 1)), opset=7),
    ),
}
