"""Cases of the operators in ``compiler/ops/onnx/pooling.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _window_cases(**extra: object) -> list[Case]:
    def case(shape: tuple[int, ...], **attributes: object) -> Case:
        return Case((Tensor(shape),), {**attributes, **extra})

    return [
        case((1, 3, 7, 9), kernel_shape=[2, 2], strides=[2, 2]),
        case((2, 3, 9, 7), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        case((1, 5, 8, 8), kernel_shape=[3, 2], pads=[1, 0, 2, 1]),
        case((1, 2, 8, 7), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        case((1, 2, 7, 8), kernel_shape=[3, 3], strides=[2, 3], auto_pad="SAME_UPPER"),
        case((1, 2, 7, 8), kernel_shape=[2, 3], strides=[2, 3], auto_pad="SAME_LOWER"),
        case((1, 2, 7, 8), kernel_shape=[2, 3], auto_pad="VALID"),
        case((2, 3, 17), kernel_shape=[4], strides=[3], pads=[1, 2]),
        case((1, 2, 5, 6, 7), kernel_shape=[2, 3, 2], strides=[1, 2, 2]),
        case((1, 2, 9, 11), kernel_shape=[3, 2], dilations=[2, 3]),
    ]


CASES: Cases = {
    "MaxPool": (
        *_window_cases(),
        Case((Tensor((1, 2, 7, 8), "uint8", 0, 255),), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
        Case((Tensor((1, 2, 7, 8), "int8", -99, -1),), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
        Case((Tensor((2, 3, 7, 8)),), {"kernel_shape": [2, 2], "strides": [2, 2]}, outputs=2),
        Case((Tensor((1, 2, 7, 8)),), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, outputs=2),
        Case((Tensor((1, 2, 7, 8)),), {"kernel_shape": [2, 3], "storage_order": 1}, outputs=2),
        Case((Tensor((1, 2, 5, 6), "uint8", 0, 1),), {"kernel_shape": [2, 2]}, outputs=2),
        Case((Tensor((1, 2, 5, 6), "int8", -128, -127),), {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}, outputs=2),
        Case((Tensor((1, 2, 7, 8)),), {"kernel_shape": [2, 2]}, opset=8),
    ),
    "AveragePool": (
        *_window_cases(),
        *_window_cases(count_include_pad=1),
        Case((Tensor((1, 2, 7, 8)),), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, opset=7),
    ),
    "LpPool": (
        *(case for case in _window_cases() if "ceil_mode" not in case.attributes),
        Case((Tensor((1, 2, 7, 8)),), {"kernel_shape": [3, 3], "p": 3}),
        Case((Tensor((1, 2, 7, 8)),), {"kernel_shape": [3, 3], "p": 1, "pads": [1, 1, 1, 1]}),
    ),
}
