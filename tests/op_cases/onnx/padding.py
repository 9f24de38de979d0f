"""Cases of the operators in ``compiler/ops/onnx/padding.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _ints(*values: int) -> Tensor:
    return Tensor((len(values),), "int64", data=list(values), constant=True)


CASES: Cases = {
    "Pad": (
        Case((Tensor((3, 4)), _ints(1, 0, 2, 3))),
        Case((Tensor((2, 3), "int64", -9, 9), _ints(0, 2, 1, 0), Tensor((), "int64", data=-7, constant=True))),
        Case((Tensor((2, 3)), _ints(1, 1, 1, 1), Tensor((), "float32", data=2.5))),
        Case((Tensor((4, 5)), _ints(-1, 2, 1, -3))),
        Case((Tensor((2, 3, 4)), _ints(2, 1), None, _ints(-1)), {"mode": "edge"}),
        Case((Tensor((5, 4)), _ints(2, 1, 3, 2)), {"mode": "reflect"}),
        Case((Tensor((5, 4)), _ints(-1, 2, 3, -1)), {"mode": "reflect"}),
        Case((Tensor((1, 2, 3, 3), "uint8", 0, 255), _ints(0, 0, 2, 1, 0, 0, 1, 2)), {"mode": "reflect"}),
        Case((Tensor((3, 4)), _ints(2, 3, 1, 4)), {"mode": "wrap"}, opset=19),
        Case((Tensor((2, 2), "bool"), _ints(1, 0, 0, 1), Tensor((), "bool", data=True, constant=True))),
        Case((Tensor((0, 2)), _ints(1, 0, 1, 1))),
        Case((Tensor((2, 3)),), {"pads": [1, 0, 0, 2], "value": 1.5}, opset=10),
        Case((Tensor((2, 3), "float16"),), {"pads": [1, 0, 0, 2], "value": 1.5}, opset=10),
        Case((Tensor((2, 3)),), {"pads": [1, 1, 1, 1], "mode": "edge"}, opset=7),
    ),
    "CenterCropPad": (
        Case((Tensor((10, 7, 3)), _ints(8, 10, 3))),
        Case((Tensor((4, 7), "int64", -9, 9), _ints(4)), {"axes": [-1]}),
        Case((Tensor((5, 6, 2), "uint8", 0, 255), _ints(8, 3)), {"axes": [0, 1]}),
    ),
}
