"""Resize with antialiasing: the filter is stretched by what the image shrinks, one axis after the other.

Each axis is a product with a matrix, most of which is zero: a constant, or for sizes and scales that a run decides one
that the device computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from ..registry import Builder
from .nodes import in_type, integer, view
from .reductions import reduce
from .resize_positions import ResizedAxis, positions


def _linear(distance: np.ndarray, _: float) -> np.ndarray:
    return np.clip(1.0 - np.abs(distance), 0.0, 1.0)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


_FILTERS = {"linear": (_linear, 1.0), "cubic": (_cubic, 2.0)}


def filter_matrix(node: Node, axis: ResizedAxis) -> np.ndarray:
    """Return the matrix [after, before] of the weight of each input element in each element of the result.

    Beyond the border the outermost element is repeated, or with ``exclude_outside`` has no weight.
    """
    attributes = node.attributes
    before, after = ix.number(axis.before), ix.number(axis.after)
    kernel, reach = _FILTERS[attributes.mode]
    shrink = min(axis.scale or 1.0, 1.0)
    support = int(np.ceil(reach / shrink)) + 1
    matrix = np.zeros((after, before))
    for row, position in enumerate(positions(attributes.coordinate_transformation_mode, axis).astype(np.float64)):
        places = np.arange(int(np.floor(position)) - support, int(np.floor(position)) + support + 1)
        weights = kernel((places - position) * shrink, attributes.cubic_coeff_a)
        if attributes.exclude_outside:
            weights[(places < 0) | (places >= before)] = 0.0
        np.add.at(matrix[row], np.clip(places, 0, before - 1), weights / weights.sum())
    return matrix.astype(np.float32)


def computed_filter_matrix(builder: Builder, attributes: Any, position: Value, scale: Value, before: Dim) -> Value:
    """Build what :func:`filter_matrix` gives, transposed, for ``position`` [after] and ``scale`` of the run.

    So many places beyond either border are summed that no filter reaches farther: it is stretched to an axis at most.
    """
    kernel = attributes.mode
    one, most = builder.scalar(1, scale), ix.add(ix.multiply(before, int(_FILTERS[kernel][1])), 2)
    shrink = builder.op("Min", scale, one)

    def column(first: Dim, size: Dim) -> Value:
        """Build the places from ``first`` on, [size, 1]."""
        bounds = (integer(builder, number) for number in (first, ix.add(first, size), 1))
        return view(builder, in_type(builder, builder.op("Range", *bounds), FLOAT32), size, 1)

    def weights(places: Value) -> Value:
        distance = builder.op("Mul", builder.op("Sub", places, position), shrink)
        options = {"kernel": kernel, "coefficient": attributes.cubic_coeff_a}
        return builder.op("FilterWeight", distance, domain="loom", **options)

    def summed(value: Value) -> Value:
        return reduce(builder, value, "sum", (0,), keepdims=True)

    places = column(0, before)
    matrix = weights(places)
    total = summed(matrix)
    if not attributes.exclude_outside:
        zero, last = (in_type(builder, integer(builder, size), FLOAT32) for size in (0, ix.add(before, -1)))
        for border, first in ((zero, ix.multiply(most, -1)), (last, before)):
            beyond = summed(weights(column(first, most)))
            total = builder.op("Add", total, beyond)
            here = builder.op("Equal", places, border)
            matrix = builder.op("Add", matrix, builder.op("Where", here, beyond, zero))
    return builder.op("Div", matrix, total)


def resample(builder: Builder, value: Value, matrices: Mapping[int, Value]) -> Value:
    """Resize ``value`` along axes by their matrices [before, after], computed in f32."""
    dtype, result = value.dtype, in_type(builder, value, FLOAT32)
    for at, matrix in matrices.items():
        perm = list(range(result.rank))
        perm[at], perm[-1] = perm[-1], perm[at]
        turned = builder.op("Transpose", result, perm=tuple(perm))
        product = builder.op("MatMul", turned, matrix)
        result = builder.op("Transpose", product, perm=tuple(perm))
    return in_type(builder, result, dtype)
