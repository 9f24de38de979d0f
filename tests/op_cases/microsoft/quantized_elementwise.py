"""Cases of the operators in ``compiler/ops/microsoft/quantized_elementwise.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _binary_cases(coarse: float) -> tuple[Case, ...]:
    return (
        Case(
            (
                *(byte_tensor((2, 3, 7)), scale_tensor(0.0061), zero_tensor(120)),
                *(byte_tensor((3, 7)), scale_tensor(0.0083), zero_tensor(5)),
                *(scale_tensor(coarse), zero_tensor(99)),
            )
        ),
        Case(
            (
                *(byte_tensor((4, 5), "int8"), scale_tensor(0.0061), zero_tensor(-12, "int8")),
                *(byte_tensor((4, 1), "int8"), scale_tensor(0.0083), zero_tensor(5, "int8")),
                *(scale_tensor(coarse), zero_tensor(7, "int8")),
            )
        ),
        Case(
            (
                *(byte_tensor((7,)), scale_tensor(0.0061), zero_tensor(0)),
                *(byte_tensor((1,)), scale_tensor(0.0083), zero_tensor(1)),
                *(scale_tensor(coarse), zero_tensor(3)),
            )
        ),
    )


def byte_tensor(shape: tuple[int, ...], dtype: str = "uint8") -> Tensor:
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    return Tensor(shape, dtype, low, high)


def scale_tensor(value: float) -> Tensor:
    return Tensor((), data=value, constant=True)


def zero_tensor(value: int, dtype: str = "uint8") -> Tensor:
    return Tensor((), dtype, data=value, constant=True)


def _unary_cases(scale: float, zero: int) -> tuple[Case, ...]:
    return (
        Case((byte_tensor((3, 7)), scale_tensor(0.0371), zero_tensor(131), scale_tensor(scale), zero_tensor(zero))),
        Case(
            (
                byte_tensor((2, 9), "int8"),
                scale_tensor(0.0293),
                zero_tensor(-4, "int8"),
                scale_tensor(scale),
                zero_tensor(zero - 128, "int8"),
            )
        ),
    )


_MEANS = (scale_tensor(0.0371), zero_tensor(131), scale_tensor(0.0113), zero_tensor(99))

CASES: Cases = {
    "QLinearSigmoid": _unary_cases(0.0037, 0),
    "QLinearLeakyRelu": _unary_cases(0.031, 20),
    "QLinearGlobalAveragePool": (
        Case(
            (byte_tensor((2, 3, 5, 7)), scale_tensor(0.0371), zero_tensor(131), scale_tensor(0.0113), zero_tensor(99))
        ),
        Case(
            (byte_tensor((1, 4, 4, 3)), scale_tensor(0.0371), zero_tensor(131), scale_tensor(0.0113), zero_tensor(99)),
            {"channels_last": 1},
        ),
    ),
    "QLinearReduceMean": (
        Case((byte_tensor((2, 3, 5, 7)), *_MEANS), {"axes": [2, 3], "keepdims": 1}),
        Case((byte_tensor((2, 3, 5)), *_MEANS), {"axes": [-1], "keepdims": 0}),
        Case((byte_tensor((3, 5), "int8"), scale_tensor(0.0371), None, scale_tensor(0.0113)), {"axes": [0]}),
    ),
    "QLinearConcat": (
        Case(
            (
                *(scale_tensor(0.0113), zero_tensor(99)),
                *(byte_tensor((2, 3)), scale_tensor(0.0061), zero_tensor(120)),
                *(byte_tensor((2, 4)), scale_tensor(0.0113), zero_tensor(5)),
            ),
            {"axis": 1},
        ),
        Case(
            (scale_tensor(0.0113), zero_tensor(99), byte_tensor((2, 3, 5)), scale_tensor(0.0061), zero_tensor(120)),
            {"axis": -1},
        ),
    ),
    "QLinearAdd": _binary_cases(0.013),
    "QLinearMul": _binary_cases(0.0007),
}
