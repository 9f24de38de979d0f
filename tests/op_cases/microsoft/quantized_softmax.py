"""Cases of the operators in ``compiler/ops/microsoft/quantized_softmax.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _case(
    shape: tuple[int, ...], dtype: str = "uint8", *, scale: float = 1 / 256, zero: int = 0, **attributes: object
) -> Case:
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    parameters = (
        Tensor((), data=0.05, constant=True),
        Tensor((), dtype, data=13, constant=True),
        Tensor((), data=scale, constant=True),
        Tensor((), dtype, data=low + zero, constant=True),
    )
    return Case((Tensor(shape, dtype, low, high), *parameters), dict(attributes))


CASES: Cases = {
    "QLinearSoftmax": (
        _case((2, 5, 7), axis=-1, opset=13),
        _case((2, 5, 7), "int8", axis=1, opset=13),
        _case((2, 5, 7), axis=1, opset=11),
    ),
}
