"""Cases of the operators in ``compiler/ops/microsoft/quantized_gemm.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor
from ..onnx.quantized_products import byte_tensor


def _scale(shape: tuple[int, ...] = (), low: float = 0.01, high: float = 0.1) -> Tensor:
    return Tensor(shape, low=low, high=high, constant=True)


def _zero(value: int, dtype: str = "uint8", shape: tuple[int, ...] = ()) -> Tensor:
    return Tensor(shape, dtype, value, value, constant=True)


def _where_case(condition: tuple[int, ...], left: tuple[int, ...], right: tuple[int, ...], dtype: str) -> Case:
    parameters = [_scale(), _zero(5, dtype)]
    return Case(
        (
            Tensor(condition, "bool"),
            byte_tensor(left, dtype),
            *parameters,
            byte_tensor(right, dtype),
            *parameters,
            *parameters,
        )
    )


CASES: Cases = {
    "QuantizeLinear": (
        Case((Tensor((3, 7), low=-9.0, high=9.0), _scale(), _zero(128))),
        Case((Tensor((3, 5), low=-900.0, high=900.0), _scale(), _zero(32768, "uint16"))),
        Case((Tensor((2, 3, 5), low=-900.0, high=900.0), _scale((3,)), _zero(-7, "int16", (3,))), {"axis": 1}),
    ),
    "DequantizeLinear": (
        Case((byte_tensor((3, 7), "int8"), _scale(), _zero(3, "int8"))),
        Case((Tensor((3, 5), "uint16", 0, 65535), _scale(), _zero(32768, "uint16"))),
        Case((Tensor((2, 3, 5), "int16", -32768, 32767), _scale((5,)), _zero(9, "int16", (5,))), {"axis": 2}),
    ),
    "QGemm": (
        Case(
            (byte_tensor((3, 7)), _scale(), _zero(5), byte_tensor((7, 5), constant=True), _scale(), _zero(99))
            + (None, _scale((), 1.0, 3.0), _zero(120))
        ),
        Case(
            (
                byte_tensor((3, 7), "int8"),
                _scale(),
                _zero(5, "int8"),
                byte_tensor((5, 7), "int8", constant=True),
                _scale((5,)),
            )
            + (_zero(0, "int8", (5,)), Tensor((5,), "int32", -500, 500, constant=True)),
            {"transB": 1, "alpha": 0.5},
        ),
        Case(
            (byte_tensor((7, 3)), _scale(), _zero(131), byte_tensor((7, 9), "int8", constant=True), _scale((9,)))
            + (_zero(0, "int8", (9,)), Tensor((1, 9), "int32", -500, 500), _scale((), 1.0, 3.0), _zero(7)),
            {"transA": 1},
        ),
    ),
    "QLinearWhere": (_where_case((3, 7), (3, 7), (3, 7), "uint8"), _where_case((2, 3, 1), (5,), (3, 5), "int8")),
}
