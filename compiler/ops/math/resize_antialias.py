"""Resize with antialiasing: the filter is stretched by what the image shrinks, one axis after the other.

Each axis is a product with a constant matrix, most of which is zero; sizes must be numbers.
"""

from __future__ import annotations

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ..registry import Builder
from .nodes import in_type
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


def resample(builder: Builder, node: Node, value: Value, axes: dict[int, ResizedAxis]) -> Value:
    """Resize ``value`` along ``axes``, computed in f32."""
    dtype, result = value.dtype, in_type(builder, value, FLOAT32)
    for at, axis in axes.items():
        perm = list(range(result.rank))
        perm[at], perm[-1] = perm[-1], perm[at]
        turned = builder.op("Transpose", result, perm=tuple(perm))
        product = builder.op("MatMul", turned, builder.constant(filter_matrix(node, axis).T))
        result = builder.op("Transpose", product, perm=tuple(perm))
    return in_type(builder, result, dtype)
