"""Cases of the operators in ``compiler/ops/onnx/convolution.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

Sizes = tuple[int, ...]  #: of the operands of a case


def _case(value: Sizes, weight: Sizes, *, bias: bool = False, dtype: str = "float32", **attributes: object) -> Case:
    inputs = [Tensor(value, dtype), Tensor(weight, dtype, constant=True)]
    if bias:
        inputs.append(Tensor((weight[0],), dtype, constant=True))
    return Case(tuple(inputs), dict(attributes), tolerance=2e-3 if dtype == "float16" else 1e-5)


def _transpose_case(value: Sizes, weight: Sizes, *, bias: int = 0, **attributes: object) -> Case:
    inputs = [Tensor(value), Tensor(weight, constant=True)] + ([Tensor((bias,), constant=True)] if bias else [])
    return Case(tuple(inputs), dict(attributes))


CASES: Cases = {
    "Conv": (
        _case((1, 3, 7, 5), (4, 3, 3, 3)),
        _case((2, 3, 7, 9), (5, 3, 3, 3), bias=True, pads=[1, 1, 1, 1]),
        _case((1, 7, 9, 17), (3, 7, 1, 1), bias=True),
        _case((1, 3, 17, 13), (8, 3, 7, 7), bias=True, pads=[3, 3, 3, 3], strides=[2, 2]),
        _case((1, 4, 9, 7), (6, 2, 3, 3), group=2, pads=[1, 0, 1, 2]),
        _case((1, 5, 9, 7), (5, 1, 3, 3), bias=True, group=5, pads=[1, 1, 1, 1]),
        _case((2, 4, 9, 7), (8, 1, 5, 5), group=4, pads=[2, 2, 2, 2], strides=[2, 1]),
        _case((1, 3, 11, 11), (4, 3, 3, 3), dilations=[2, 3]),
        _case((1, 3, 7, 8), (4, 3, 3, 2), auto_pad="SAME_UPPER", strides=[2, 3]),
        _case((1, 3, 7, 8), (4, 3, 2, 2), auto_pad="SAME_LOWER"),
        _case((1, 3, 7, 8), (4, 3, 3, 3), auto_pad="VALID", kernel_shape=[3, 3]),
        _case((2, 3, 17), (4, 3, 5), bias=True, pads=[2, 1], strides=[2]),
        _case((1, 4, 17), (4, 1, 3), group=4, dilations=[2]),
        _case((1, 2, 5, 6, 7), (3, 2, 3, 2, 3), bias=True, pads=[1, 0, 1, 1, 1, 1], strides=[1, 2, 1]),
        _case((1, 3, 7, 5), (4, 3, 3, 3), bias=True, dtype="float16"),
        _case((1, 16, 12, 12), (32, 16, 3, 3), bias=True, pads=[1, 1, 1, 1]),
    ),
    "ConvTranspose": (
        _transpose_case((1, 3, 5, 7), (3, 4, 3, 3)),
        _transpose_case((2, 3, 5, 7), (3, 4, 2, 2), bias=4, strides=[2, 2]),
        _transpose_case((1, 3, 5, 7), (3, 4, 3, 3), bias=4, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
        _transpose_case((1, 4, 5, 3), (4, 3, 3, 3), group=2, strides=[3, 2], pads=[0, 1, 2, 0]),
        _transpose_case((1, 3, 5, 7), (3, 2, 3, 3), dilations=[2, 2]),
        _transpose_case((1, 3, 5, 7), (3, 2, 3, 3), strides=[2, 2], output_shape=[10, 14]),
        _transpose_case((1, 3, 5, 7), (3, 2, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER"),
        _transpose_case((1, 3, 5, 7), (3, 2, 3, 3), strides=[2, 2], auto_pad="SAME_LOWER"),
        _transpose_case((1, 3, 9), (3, 2, 4), bias=2, strides=[2], pads=[1, 1]),
    ),
}
