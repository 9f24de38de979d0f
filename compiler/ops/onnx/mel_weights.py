"""MelWeightMatrix."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....runtime.plan import dtypes
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..math.nodes import in_type
from ..registry import Builder, Inferred, register


@record
class MelWeightMatrixAttributes:
    output_datatype: int = 1


def mel_matrix(bins: int, length: int, rate: int, low: float, high: float) -> np.ndarray:
    """Return triangular filters, float32 [length // 2 + 1, bins], with corners evenly spaced on the mel scale."""
    first, last = (2595.0 * math.log10(1.0 + edge / 700.0) for edge in (low, high))
    mels = np.arange(bins + 2) * ((last - first) / (bins + 2)) + first
    corners = ((length + 1) * 700.0 * (10.0 ** (mels / 2595.0) - 1.0) // rate).astype(np.int64)
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    matrix = np.zeros((length // 2 + 1, bins), np.float32)
    column, row = _runs(left, centre + 1)
    matrix[row, column] = (row - left[column]) / np.maximum(centre - left, 1)[column]
    matrix[centre, np.arange(bins)] = 1.0
    column, row = _runs(centre, right)
    matrix[row, column] = (right[column] - row) / (right - centre)[column]
    return matrix


def _runs(first: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for each number from ``first[i]`` to ``end[i] - 1``, over all i: i, and the number."""
    sizes = end - first
    position = np.repeat(np.arange(len(sizes)), sizes)
    within = np.arange(len(position)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return position, first[position] + within


_MEL_NUMBERS = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")


def _static_number(node: Node, position: int) -> float:
    """Return a number of which the matrix is a table that the compiler computes: the device would round its bands."""
    what = f"{_MEL_NUMBERS[position]} of MelWeightMatrix"
    elements = checks.static_elements(node, node.operand(position), what)
    checks.require(elements.size == 1, node, f"{what} is one number")
    element = elements.reshape(-1)[0]
    return checks.concrete(node, element, what) if isinstance(element, ix.Index) else float(element)


def _infer_mel(node: Node) -> Inferred:
    bins, length, rate, low, high = (_static_number(node, position) for position in range(5))
    bins, length, rate = int(bins), int(length), int(rate)
    checks.require(bins > 0 and length > 0 and rate > 0, node, f"{bins} bins, {length} points, {rate} samples a second")
    # the highest corner is a row of the result
    reach = 0 <= low < high and (length + 1) * high // rate <= length // 2
    checks.require(reach, node, f"edges from {low:g} to {high:g} Hz of {rate} samples a second")
    return [(dtypes.from_onnx(node.attributes.output_datatype), (length // 2 + 1, bins))]


def _expand_mel(builder: Builder, node: Node) -> Sequence[Value]:
    bins, length, rate, low, high = (_static_number(node, position) for position in range(5))
    matrix = mel_matrix(int(bins), int(length), int(rate), low, high)
    return [in_type(builder, builder.constant(matrix), dtypes.from_onnx(node.attributes.output_datatype))]


register(
    name="MelWeightMatrix",
    infer=_infer_mel,
    attributes=MelWeightMatrixAttributes,
    expand=_expand_mel,
    static_inputs=(0, 1, 2, 3, 4),
)
