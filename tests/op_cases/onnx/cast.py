"""Cases of the operators in ``compiler/ops/onnx/cast.py``."""

from __future__ import annotations

from shaderloom.compiler.ops.onnx.cast import ROUND_MODES
from shaderloom.runtime.plan import dtypes

from ..case import Case, Cases, Tensor
from .elementwise import exactly


def _cases() -> tuple[Case, ...]:
    onnx_code = {row.name: row.onnx for row in dtypes.BY_NAME.values()}
    numbers = exactly(-2.7, -1.0, -0.5, 0.0, 0.5, 1.0, 2.7, 100.9)
    integers = exactly(-(2**40) - 3, -129, -1, 0, 1, 127, 255, 70000, dtype="int64")
    narrow = exactly(0, 1, 127, 128, 255, dtype="uint8")
    targets = ("float32", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")
    cases = [Case((integers,), {"to": onnx_code[name]}) for name in targets if name != "float16"]
    cases += [Case((narrow,), {"to": onnx_code[name]}) for name in targets]
    cases += [Case((numbers,), {"to": onnx_code[name]}) for name in targets if not name.startswith("uint")]
    cases += [Case((Tensor((3, 5), "bool"),), {"to": onnx_code[name]}) for name in ("float32", "int64", "int8")]
    cases += [Case((Tensor((3, 5), "float16"),), {"to": 1}), Case((Tensor((0, 3)),), {"to": 7})]
    edges = exactly(-448.0, -6.5, -1e-3, -0.0, 0.0, 0.3, 1.0625, 2.5, 5.0, 464.0, 1e6, float("nan"), float("inf"))
    codes = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")
    cases += [Case((edges,), {"to": onnx_code[name], "saturate": keep}) for name in codes for keep in (0, 1)]
    cases += [Case((edges,), {"to": onnx_code["float4e2m1"]})]
    powers = exactly(2.0**-120, 0.3, 0.75, 1.0, 1.5, 5.9, 6.0, 3e38)
    cases += [Case((powers,), {"to": onnx_code["float8e8m0"], "round_mode": mode}) for mode in ROUND_MODES]
    cases += [Case((Tensor((3, 7), name, -5, 6),), {"to": 1}) for name in (*codes, "float4e2m1")]
    cases += [Case((Tensor((3, 7), "float8e8m0", 0.1, 6),), {"to": to}) for to in (1, 10)]
    for name in ("int4", "uint4", "int2", "uint2"):
        low, high = dtypes.BY_NAME[name].integer_range
        cases += [Case((integers,), {"to": onnx_code[name]}), Case((numbers,), {"to": onnx_code[name]})]
        cases += [Case((Tensor((3, 7), name, low, high),), {"to": to}) for to in (1, 3, 17)]
    return tuple(cases)


CASES: Cases = {
    "Cast": _cases(),
    "CastLike": (
        Case((exactly(-2.7, 0.0, 2.7), Tensor((1,), "int32"))),
        Case((Tensor((3,), "int64", -9, 9), Tensor((2, 2)))),
    ),
}
