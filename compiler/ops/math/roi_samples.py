"""RoiAlign with as many samples in a bin as it has pixels, whose number is known at run time only.

Samples are a grid: what they are along one axis does not depend on the other.  So each axis is looked at on its own,
and the two are put together by products: in a mean the weight of an element is that of its row times that of its
column; the largest of weighted elements is where the product of two weights is the largest, or for negative elements
the smallest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...ir.graph import Value
from ..registry import Builder
from .nodes import fields_of
from .reductions import reduce
from .roi_axes import RoiAxisSamplesAttributes

#: Gives the parameters of an axis, of the rows or of the columns
ResizedAxis = Callable[[bool], RoiAxisSamplesAttributes]


def _axis(builder: Builder, regions: Value, parameters: RoiAxisSamplesAttributes, kind: str) -> Value:
    return builder.op("RoiAxisSamples", regions, domain="loom", **fields_of(replace(parameters, kind=kind)))


def _with_axes(builder: Builder, value: Value, *axes: int) -> Value:
    return builder.op("Unsqueeze", value, builder.constant(np.array(axes, np.int64)))


def adaptive_mean(builder: Builder, value: Value, regions: Value, axis: ResizedAxis) -> Value:
    """Average the samples of each region.

    Image of each region [R, C, H, W] in f32, and regions -> [R, C, rows, columns].
    """
    rows, columns = (
        _with_axes(builder, _axis(builder, regions, axis(vertical), "mean"), 1) for vertical in (True, False)
    )
    narrow = builder.op("MatMul", value, builder.op("Transpose", columns, perm=(0, 1, 3, 2)))
    return builder.op("MatMul", rows, narrow)


def adaptive_largest(builder: Builder, value: Value, regions: Value, axis: ResizedAxis) -> Value:
    """Take the largest of the weighted neighbours of all samples of each region; a sample outside gives 0.

    Image of each region [R, C, H, W] in f32, and regions -> [R, C, rows, columns].
    """
    image = _with_axes(builder, value, 2, 3)
    zero, lowest = builder.scalar(0.0, value), builder.scalar(float(np.finfo(np.float32).min), value)
    products: dict[str, Value] = {}
    for kind in ("largest", "smallest"):
        rows = _with_axes(builder, _axis(builder, regions, axis(True), kind), 1, 3, 5)
        columns = _with_axes(builder, _axis(builder, regions, axis(False), kind), 1, 2, 4)
        products[kind] = builder.op("Mul", image, builder.op("Mul", rows, columns))
        if kind == "largest":
            near = builder.op("GreaterOrEqual", builder.op("Min", rows, columns), zero)
    touched = builder.op("Where", near, builder.op("Max", products["largest"], products["smallest"]), lowest)
    result = reduce(builder, touched, "max", (4, 5), keepdims=False)
    outside = builder.op(
        "Max",
        _with_axes(builder, _axis(builder, regions, axis(True), "outside"), 1),
        builder.op(
            "Transpose", _with_axes(builder, _axis(builder, regions, axis(False), "outside"), 1), perm=(0, 1, 3, 2)
        ),
    )
    return builder.op("Where", builder.op("Greater", outside, zero), builder.op("Max", result, zero), result)
