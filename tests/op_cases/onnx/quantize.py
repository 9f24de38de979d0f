"""Cases of the operators in ``compiler/ops/onnx/quantize.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor
from .elementwise import exactly


def _scales(shape: tuple[int, ...]) -> Tensor:
    """Powers of two and near ones: quotients that are no ties are the same however a device divides."""
    return Tensor(shape, low=0.01, high=0.1)


CASES: Cases = {
    "QuantizeLinear": (
        Case((Tensor((3, 7), low=-9.0, high=9.0), _scales(()), Tensor((), "uint8", data=128))),
        Case((Tensor((3, 7), low=-9.0, high=9.0), _scales((1,)), Tensor((1,), "int8", data=[3]))),
        Case((Tensor((3, 7)), _scales(()))),
        Case((exactly(-1e9, -2.5, -1.5, 0.5, 1.5, 2.5, 1e9), Tensor((), data=1.0), Tensor((), "int8", data=1))),
        Case((Tensor((2, 3, 5)), _scales((3,)), Tensor((3,), "uint8", 100, 150))),
        Case((Tensor((2, 3, 5)), _scales((5,)), Tensor((5,), "int8", -9, 9)), {"axis": -1}),
        Case((Tensor((3, 5), low=-900.0, high=900.0), _scales(()), Tensor((), "uint16", data=32768))),
        Case((Tensor((3, 5), low=-900.0, high=900.0), _scales(()), Tensor((), "int16", data=-7))),
        Case((Tensor((3, 5)), _scales(())), {"output_dtype": 3}),
        Case((Tensor((3, 10)), _scales((3, 3)), Tensor((3, 3), "uint8", 100, 150)), {"axis": 1, "block_size": 4}),
        Case((Tensor((4, 3)), _scales((2, 3))), {"axis": 0, "block_size": 2}),
        Case((Tensor((3, 5), "int32", -900, 900), Tensor((), data=4.0), Tensor((), "int8", data=1))),
        Case((Tensor((3, 7)), _scales(()), Tensor((), "uint8", data=128)), opset=10),
        Case((Tensor((2, 3, 5)), _scales((3,)), Tensor((3,), "int8", -9, 9)), {"axis": 1}, opset=13),
    ),
    "DequantizeLinear": (
        Case((Tensor((3, 7), "uint8", 0, 255), _scales(()), Tensor((), "uint8", data=128))),
        Case((Tensor((3, 7), "int8", -128, 127), _scales((1,)), Tensor((1,), "int8", data=[3]))),
        Case((Tensor((3, 7), "int8", -128, 127), _scales(()))),
        Case((Tensor((2, 3, 5), "uint8", 0, 255), _scales((3,)), Tensor((3,), "uint8", 100, 150))),
        Case((Tensor((2, 3, 5), "int8", -128, 127), _scales((5,)), Tensor((5,), "int8", -9, 9)), {"axis": -1}),
        Case((Tensor((3, 5), "int32", -90000, 90000), _scales(()))),
        Case((Tensor((3, 5), "uint16", 0, 65535), _scales(()), Tensor((), "uint16", data=32768))),
        Case((Tensor((3, 5), "int16", -32768, 32767), _scales(()), Tensor((), "int16", data=5))),
        Case(
            (Tensor((3, 10), "uint8", 0, 255), _scales((3, 3)), Tensor((3, 3), "uint8", 100, 150)),
            {"axis": 1, "block_size": 4},
        ),
        Case((Tensor((4, 3), "int8", -128, 127), _scales((2, 3))), {"axis": 0, "block_size": 2}),
        Case((Tensor((3, 7), "int8", -128, 127), Tensor((), "float16", 0.01, 0.1)), tolerance=2e-3),
        Case((Tensor((3, 7), "uint8", 0, 255), _scales(()), Tensor((), "uint8", data=128)), opset=10),
        Case((Tensor((2, 3, 5), "int8", -128, 127), _scales((3,)), Tensor((3,), "int8", -9, 9)), opset=13),
    ),
    "DynamicQuantizeLinear": (
        Case((Tensor((3, 7), low=-1.0, high=3.0),), outputs=3),
        Case((Tensor((2, 3, 5), low=0.5, high=3.0),), outputs=3),
        Case((Tensor((17,), low=-3.0, high=-0.5),), outputs=3),
        Case((Tensor((3,), data=[0.0, 0.0, 0.0]),), outputs=3),
    ),
}
