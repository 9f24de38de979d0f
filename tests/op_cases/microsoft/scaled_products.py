"""Cases of the operators in ``compiler/ops/microsoft/scaled_products.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor
from ..onnx.quantized_products import byte_tensor, scale_tensor

_WEIGHT = byte_tensor((7, 5), "int8", constant=True)

CASES: Cases = {
    "DynamicQuantizeMatMul": (
        Case((Tensor((3, 7)), _WEIGHT, scale_tensor(()))),
        Case((Tensor((3, 7)), _WEIGHT, scale_tensor((5,)), byte_tensor((5,), "int8", constant=True))),
        Case((Tensor((2, 3, 7)), _WEIGHT, scale_tensor((1,)), None, Tensor((5,)))),
        Case(
            (
                Tensor((3, 7)),
                byte_tensor((7, 5), constant=True),
                scale_tensor(()),
                Tensor((), "uint8", data=120),
                Tensor((5,)),
            )
        ),
    ),
    "MatMulIntegerToFloat": (
        Case((byte_tensor((3, 7)), _WEIGHT, scale_tensor(()), scale_tensor(()))),
        Case((byte_tensor((3, 7)), _WEIGHT, scale_tensor(()), scale_tensor((5,)), Tensor((), "uint8", data=120))),
        Case(
            (
                byte_tensor((3, 7)),
                _WEIGHT,
                scale_tensor(()),
                scale_tensor(()),
                None,
                Tensor((), "int8", data=9),
                Tensor((5,)),
            )
        ),
    ),
}
