"""Cases of the operators in ``compiler/ops/onnx/bitcast.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor
from .elementwise import exactly

_HALVES = exactly(-2.5, -0.0, 0.0, 1.0, 65504.0, 6e-8, 3e-5, 6.2e-5, float("inf"), float("-inf"), dtype="float16")

CASES: Cases = {
    "BitCast": (
        Case((Tensor((3, 7)),), {"to": 6}),
        Case((exactly(-1, 0, 1, 2**30, -(2**31), dtype="int32"),), {"to": 12}),
        Case((exactly(0, 1065353216, -1082130432, dtype="int32"),), {"to": 1}),
        Case((exactly(-(2**40), -1, 7, dtype="int64"),), {"to": 13}),
        Case((exactly(-128, -1, 0, 127, dtype="int8"),), {"to": 2}),
        Case((Tensor((5, 3), "bool"),), {"to": 2}),
        Case((_HALVES,), {"to": 4}),
        Case((_HALVES,), {"to": 5}),
        Case((exactly(0, 1, 1023, 1024, 0x3C00, 0x7BFF, 0x7C00, 0x8001, 0xFC00, dtype="uint16"),), {"to": 10}),
        Case((exactly(0, 0x3F80, 0x7F80, 0xC000, dtype="uint16"),), {"to": 16}),
        Case((Tensor((7,), "bfloat16"),), {"to": 4}),
        Case((Tensor((0, 3)),), {"to": 6}),
    ),
}
