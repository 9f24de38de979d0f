"""Cases of the operators in ``compiler/ops/onnx/quantized_products.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def byte_tensor(shape: tuple[int, ...], dtype: str = "uint8", *, constant: bool = False) -> Tensor:
    """Signed ones have 7 bits: onnxruntime's sums of pairs saturate at 16 bits on some processors."""
    low, high = (0, 255) if dtype == "uint8" else (-64, 63)
    return Tensor(shape, dtype, low, high, constant=constant)


def scale_tensor(shape: tuple[int, ...] = (), low: float = 0.01, high: float = 0.1) -> Tensor:
    return Tensor(shape, low=low, high=high)


def _qlinear_case(left: Tensor, right: Tensor, columns: tuple[int, ...], zero: str = "uint8") -> Case:
    left_zero = Tensor((), left.dtype, data=5)
    right_zero = Tensor(columns, right.dtype, 0, 9)
    result = (scale_tensor((), 4.0, 9.0), Tensor((), zero, data=99))
    return Case((left, scale_tensor(), left_zero, right, scale_tensor(columns), right_zero, *result))


def _qlinear_conv_case(
    value: Tensor, weight: Tensor, *, channels: bool = False, bias: bool = False, **fields: object
) -> Case:
    count = weight.shape[0]
    per = (count,) if channels else ()
    zero = 0 if weight.dtype == "int8" else 120  # onnxruntime has no other zero points for int8 weights of channels
    operands = [
        value,
        scale_tensor(),
        Tensor((), value.dtype, data=5),
        weight,
        scale_tensor(per),
        Tensor(per, weight.dtype, zero, zero, constant=True),
        scale_tensor((), 4.0, 9.0),
        Tensor((), value.dtype, data=99),
    ]
    if bias:
        operands.append(Tensor((count,), "int32", -5000, 5000, constant=True))
    return Case(tuple(operands), dict(fields))


CASES: Cases = {
    "MatMulInteger": (
        Case((byte_tensor((3, 7)), byte_tensor((7, 5)))),
        Case((byte_tensor((3, 7)), byte_tensor((7, 5), "int8"), Tensor((), "uint8", data=131))),
        Case(
            (
                byte_tensor((3, 8)),
                byte_tensor((8, 12), constant=True),
                Tensor((1,), "uint8", data=[12]),
                byte_tensor((12,)),
            )
        ),
        Case(
            (
                byte_tensor((2, 3, 7), "int8"),
                byte_tensor((2, 7, 4), "int8"),
                Tensor((), "int8", data=-3),
                byte_tensor((1,), "int8"),
            )
        ),
        Case((byte_tensor((1, 64)), byte_tensor((64, 33), "int8", constant=True), Tensor((), "uint8", data=131))),
    ),
    "QLinearMatMul": (
        _qlinear_case(byte_tensor((3, 7)), byte_tensor((7, 5)), ()),
        _qlinear_case(byte_tensor((2, 3, 8), "int8"), byte_tensor((2, 8, 4), "int8"), (1,), "int8"),
        _qlinear_case(byte_tensor((3, 8)), byte_tensor((8, 12), "int8", constant=True), (12,)),
    ),
    "ConvInteger": (
        Case((byte_tensor((1, 3, 7, 5)), byte_tensor((4, 3, 3, 3), constant=True))),
        Case(
            (
                byte_tensor((2, 3, 7, 9)),
                byte_tensor((5, 3, 3, 3), "int8", constant=True),
                Tensor((), "uint8", data=131),
            ),
            {"pads": [1, 1, 1, 1]},
        ),
        Case(
            (
                byte_tensor((1, 4, 9, 7)),
                byte_tensor((6, 2, 3, 3)),
                Tensor((), "uint8", data=7),
                Tensor((), "uint8", data=9),
            ),
            {"group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]},
        ),
        Case((byte_tensor((1, 4, 9, 7)), byte_tensor((4, 1, 3, 3)), Tensor((), "uint8", data=7)), {"group": 4}),
        Case(
            (byte_tensor((2, 3, 17)), byte_tensor((4, 3, 5)), Tensor((), "uint8", data=3)),
            {"pads": [2, 1], "dilations": [2]},
        ),
    ),
    "QLinearConv": (
        _qlinear_conv_case(byte_tensor((1, 3, 7, 5)), byte_tensor((4, 3, 3, 3), constant=True)),
        _qlinear_conv_case(
            byte_tensor((2, 3, 7, 9)),
            byte_tensor((5, 3, 3, 3), "int8", constant=True),
            channels=True,
            bias=True,
            pads=[1, 1, 1, 1],
        ),
        _qlinear_conv_case(
            byte_tensor((1, 4, 9, 7)), byte_tensor((4, 1, 3, 3), constant=True), bias=True, group=4, strides=[2, 2]
        ),
        _qlinear_conv_case(
            byte_tensor((1, 4, 9, 7), "int8"), byte_tensor((4, 4, 1, 1), "int8", constant=True), channels=True
        ),
    ),
}
