"""Cases of the operators in ``compiler/ops/onnx/matmul.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _cases(dtype: str = "float32", tolerance: float = 1e-5) -> list[Case]:
    shapes = (
        ((3, 7), (7, 5)),
        ((1, 17), (17, 1)),
        ((2, 3, 5, 7), (2, 3, 7, 3)),
        ((2, 1, 5, 7), (3, 7, 3)),
        ((4, 3, 7), (7, 9)),
        ((65, 33), (33, 70)),
    )
    return [Case((Tensor(left, dtype), Tensor(right, dtype)), tolerance=tolerance) for left, right in shapes]


_VECTORS = (((7,), (7, 5)), ((3, 7), (7,)), ((7,), (7,)), ((2, 3, 7), (7,)), ((7,), (2, 7, 3)))

Sizes = tuple[int, ...]


def _gemm_case(left: Sizes, right: Sizes, addend: Sizes | None, **attributes: float) -> Case:
    inputs = [Tensor(shape) for shape in (left, right, addend) if shape is not None]
    return Case(tuple(inputs), dict(attributes))


CASES: Cases = {
    "MatMul": (
        *_cases(),
        *(Case((Tensor(left), Tensor(right))) for left, right in _VECTORS),
        *_cases("float16", 2e-3)[:2],
        Case((Tensor((3, 7), "int32", -9, 9), Tensor((7, 5), "int32", -9, 9))),
        Case((Tensor((3, 0)), Tensor((0, 5)))),
        Case((Tensor((5, 33)), Tensor((33, 17), constant=True))),
    ),
    "Gemm": (
        _gemm_case((3, 7), (7, 5), None),
        _gemm_case((3, 7), (7, 5), (5,)),
        _gemm_case((7, 3), (7, 5), (3, 1), transA=1),
        _gemm_case((3, 7), (5, 7), (1, 5), transB=1, alpha=0.5, beta=0.25),
        _gemm_case((7, 3), (5, 7), (), transA=1, transB=1, alpha=2.0),
        _gemm_case((1, 17), (17, 1), (1, 1), beta=0.0),
        _gemm_case((3, 7), (7, 5), (3, 5)),
        Case((Tensor((3, 7)), Tensor((7, 5)), Tensor((5,))), opset=7),
        Case((Tensor((3, 7), "float16"), Tensor((7, 5), "float16"), Tensor((5,), "float16")), tolerance=2e-3),
        Case((Tensor((3, 7)), Tensor((5, 7), constant=True), Tensor((5,), constant=True)), {"transB": 1}),
    ),
}
