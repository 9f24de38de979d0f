"""MelWeightMatrix: a constant, or from numbers that a run decides.

Its filters begin and end at rows of the result, which the standard computes in float64.  Where a run decides them the
device does so in integers of 64 bits, as exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.plan import dtypes
from ....runtime.plan.dtypes import FLOAT32, INT32, INT64, UINT64
from ....runtime.plan.errors import NotKnownError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..internal import fixed_point
from ..internal.fixed_point import FRACTION, POINT, shifted, whole
from ..math.nodes import in_type, integer, part
from ..registry import Builder, Inferred, SplitBuilder, register
from .integers_ahead import is_open


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
    what = f"{_MEL_NUMBERS[position]} of MelWeightMatrix"
    elements = checks.static_elements(node, node.operand(position), what)
    checks.require(elements.size == 1, node, f"{what} is one number")
    element = elements.reshape(-1)[0]
    if isinstance(element, ix.Index):
        raise NotKnownError(f"{what} must be known at compile time", origin=node.origin)
    return float(element)


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


# -- numbers that a run decides --------------------------------------------------------------------------------------

#: Frequencies are less, in Hz, and have as many bits behind the point
_HIGHEST, _HERTZ = 1 << 30, 32
#: What counts as a row's own frequency is less by at most one part in 2 ** _CLOSE
_CLOSE = 48


def _scalars(builder: Builder, node: Node) -> list[Value]:
    """Return the five numbers as scalars: integers as int64, frequencies as float32."""
    types = (INT64, INT64, INT64, FLOAT32, FLOAT32)
    operands = (builder.op("Squeeze", node.operand(position)) for position in range(5))
    return [in_type(builder, value, dtype) for value, dtype in zip(operands, types, strict=True)]


def _frequency(builder: Builder, value: Value) -> Value:
    """Return a float32 frequency as uint64 with ``_HERTZ`` bits behind the point."""
    floor = builder.op("Floor", value)
    rest = builder.op("Mul", builder.op("Sub", value, floor), builder.scalar(float(1 << _HERTZ), value))
    return builder.op("Add", shifted(builder, _unsigned(builder, floor), _HERTZ, "LEFT"), _unsigned(builder, rest))


def _unsigned(builder: Builder, value: Value) -> Value:
    return builder.op("Cast", value, to=UINT64.onnx)


def _rows(builder: Builder, frequency: Value, length: Value, rate: Value) -> Value:
    """Return the last rows, uint64, of frequencies that are not above those that :func:`_frequency` gives."""
    points = builder.op("Add", length, whole(builder, 1))
    hertz = builder.op("Mul", shifted(builder, frequency, _HERTZ, "RIGHT"), points)
    rest = builder.op("BitwiseAnd", frequency, whole(builder, (1 << _HERTZ) - 1))
    rest = shifted(builder, builder.op("Mul", rest, points), _HERTZ, "RIGHT")
    return builder.op("Div", builder.op("Add", hertz, rest), rate)


def _expand_length(builder: Builder, node: Node) -> Sequence[Value]:
    """Compute the length of the transform; -1 where there is no matrix of such numbers."""
    bins, length, rate, low, high = _scalars(builder, node)
    one, most = (builder.constant(np.array(number, np.int64)) for number in (1, ix.UNBOUNDED - 1))
    size, samples = (builder.op("Min", builder.op("Max", value, one), most) for value in (length, rate))
    zero, highest = (builder.scalar(float(number), high) for number in (0, _HIGHEST))
    top = _frequency(builder, builder.op("Clip", high, zero, highest))
    row = _rows(builder, top, _unsigned(builder, size), _unsigned(builder, samples))
    last = builder.op("Div", size, builder.constant(np.array(2, np.int64)))
    fits = builder.op("LessOrEqual", in_type(builder, row, INT64), last)
    below = [(zero, high), (low, high), (high, highest)]
    for test, operands in (
        *(("Equal", each) for each in ((size, length), (samples, rate))),
        ("GreaterOrEqual", (bins, one)),
        ("GreaterOrEqual", (low, zero)),
        *(("Less", each) for each in below),
    ):
        fits = builder.op("And", fits, builder.op(test, *operands))
    return [builder.op("Where", fits, length, builder.constant(np.array(-1, np.int64)))]


register(
    name="MelLength",
    domain="loom",
    infer=lambda node: [(INT64, ())],
    expand=_expand_length,
    names_sizes=1,
)


def _infer_filters(node: Node) -> Inferred:
    (bins,), (length,) = (checks.static_dims(node, at, _MEL_NUMBERS[at]) for at in (0, 1))
    rows = ix.add(ix.floordiv(length, 2), 1)
    return [(dtypes.from_onnx(node.attributes.output_datatype), (rows, bins))]


def _corners(builder: Builder, node: Node) -> Value:
    """Return the rows, int32 [bins + 2], between which filters rise and fall: 700 Hz below them, a geometric series."""
    _, length, rate, low, high = _scalars(builder, node)
    base = whole(builder, 700 << _HERTZ)
    first, last = (builder.op("Add", _frequency(builder, edge), base) for edge in (low, high))
    start, end = (fixed_point.logarithm(builder, value) for value in (first, last))
    ratio = builder.op("Sub", end, start)
    count = ix.add(checks.static_dims(node, 0, _MEL_NUMBERS[0])[0], 2)
    steps = integer(builder, count, UINT64)
    step = builder.op("Div", ratio, steps)
    rest = builder.op("Sub", ratio, builder.op("Mul", step, steps))
    numbers = _unsigned(builder, builder.op("Range", *(integer(builder, number) for number in (0, count, 1))))
    part_of_rest = builder.op("Div", builder.op("Mul", rest, numbers), steps)
    exponents = builder.op("Add", builder.op("Mul", step, numbers), part_of_rest)
    fraction = builder.op("BitwiseAnd", exponents, whole(builder, (1 << FRACTION) - 1))
    missing = builder.op("Sub", whole(builder, POINT), fixed_point.highest_bit(builder, first))
    significands = fixed_point.product(
        builder, shifted(builder, first, missing, "LEFT"), fixed_point.power(builder, fraction)
    )
    # errors round down: a frequency that lies so closely below a row belongs to it
    significands = builder.op("Add", significands, shifted(builder, significands, _CLOSE, "RIGHT"))
    missing = builder.op("Sub", missing, shifted(builder, exponents, FRACTION, "RIGHT"))
    frequencies = builder.op("Sub", shifted(builder, significands, missing, "RIGHT"), base)
    return in_type(builder, _rows(builder, frequencies, _unsigned(builder, length), _unsigned(builder, rate)), INT32)


def _expand_filters(builder: Builder, node: Node) -> Sequence[Value]:
    rows, bins = node.output.shape
    corners = _corners(builder, node)
    left, centre, right = (part(builder, corners, 0, first, bins) for first in range(3))
    row = builder.op("Range", *(integer(builder, number) for number in (0, rows, 1)))
    row = builder.op("Unsqueeze", row, builder.constant(np.array([1], np.int64)))
    one = builder.constant(np.array(1, np.int32))

    def slope(height: Value, reach: Value) -> Value:
        height, reach = (in_type(builder, value, FLOAT32) for value in (height, builder.op("Max", reach, one)))
        return builder.op("Div", height, reach)

    rise = slope(builder.op("Sub", row, left), builder.op("Sub", centre, left))
    fall = slope(builder.op("Sub", right, row), builder.op("Sub", right, centre))
    filters = builder.op("Max", builder.op("Min", rise, fall), builder.scalar(0.0, rise))
    filters = builder.op("Where", builder.op("Equal", row, centre), builder.scalar(1.0, rise), filters)
    return [in_type(builder, filters, dtypes.from_onnx(node.attributes.output_datatype))]


register(
    name="MelFilters",
    domain="loom",
    attributes=MelWeightMatrixAttributes,
    infer=_infer_filters,
    expand=_expand_filters,
    static_inputs=(0, 1),
)


def _split_mel(builder: SplitBuilder, inputs: Sequence[str], outputs: Sequence[str], attributes: Any) -> None:
    bins, _, *others = inputs
    length = builder.apply("MelLength", *inputs, domain="loom")
    datatype = attributes.output_datatype
    builder.apply_to(outputs, "MelFilters", bins, length, *others, domain="loom", output_datatype=datatype)


register(
    name="MelWeightMatrix",
    infer=_infer_mel,
    attributes=MelWeightMatrixAttributes,
    expand=_expand_mel,
    static_inputs=(0, 1, 2, 3, 4),
    split_ahead=_split_mel,
    is_split_ahead=lambda operands, attributes: any(map(is_open, operands)),
)
