"""Cases of the operators in ``compiler/ops/onnx/fourier.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _number(value: int) -> Tensor:
    return Tensor((), "int64", data=value, constant=True)


CASES: Cases = {
    "DFT": (
        Case((Tensor((2, 9, 1)),), tolerance=1e-5),
        Case((Tensor((2, 9, 2)),), tolerance=1e-5),
        Case((Tensor((2, 10, 2)),), {"inverse": 1}),
        Case((Tensor((2, 10, 1)),), {"onesided": 1}),
        Case((Tensor((5, 3, 1)), None, _number(0))),
        Case((Tensor((2, 9, 1)), _number(12))),
        Case((Tensor((2, 9, 2)), _number(6))),
        # onnxruntime's own error against double precision is 1.3e-4 here, that of the factors 2e-7
        Case((Tensor((1, 600, 1)),), {"onesided": 1}, tolerance=2e-4),
        Case((Tensor((1, 520, 2)),), {"inverse": 1}, tolerance=2e-4),
        Case((Tensor((1, 6, 1)),), {"axis": 1}, opset=17),
    ),
    "STFT": (
        Case((Tensor((2, 40, 1)), _number(4), Tensor((12,)))),
        Case((Tensor((1, 40, 1)), _number(6), None, _number(10))),
        Case((Tensor((1, 40, 1)), _number(5), Tensor((12,)), _number(12)), {"onesided": 0}),
    ),
    "MelWeightMatrix": (
        Case(
            (
                _number(8),
                _number(64),
                _number(8192),
                Tensor((), data=0.0, constant=True),
                Tensor((), data=4096.0, constant=True),
            )
        ),
    ),
}
