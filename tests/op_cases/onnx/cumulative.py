"""Cases of the operators in ``compiler/ops/onnx/cumulative.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _axis(axis: int) -> Tensor:
    return Tensor((), "int64", data=axis, constant=True)


_CASES = (
    Case((Tensor((3, 7)), _axis(1))),
    Case((Tensor((3, 7)), _axis(0)), {"exclusive": 1}),
    Case((Tensor((2, 5, 3)), _axis(-2)), {"reverse": 1}),
    Case((Tensor((2, 9)), _axis(-1)), {"exclusive": 1, "reverse": 1}),
    Case((Tensor((7,), "int32", -3, 3), _axis(0))),
    Case((Tensor((2, 7), "int64", -(2**20), 2**20), _axis(1))),
    Case((Tensor((2, 400), low=0.98, high=1.02), _axis(1))),
    Case((Tensor((3, 1)), _axis(1)), {"exclusive": 1}),
    Case((Tensor((0, 3)), _axis(0))),
    Case((Tensor((3, 7), "float16"), _axis(1)), tolerance=2e-3),
)

CASES: Cases = {
    **dict.fromkeys(("CumSum", "CumProd"), _CASES),
}
