"""DFT and STFT.

A transform of a short signal is a product with two constant matrices.  A longer one is cut into transforms of its
factors, with a twist in between (Cooley and Tukey), as long as there are factors.  One of a length that a run decides
is a product with two matrices that the device computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....runtime.plan.dtypes import FLOAT32, INT32, INT64
from ....runtime.plan.errors import NotKnownError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.nodes import in_type, integer, part, view
from ..registry import Axes, Builder, Inferred, RawNode, Read, SplitBuilder, register
from .integers_ahead import is_open
from .padding import padded_to

#: Longest signal that one matrix transforms
DIRECT = 256


@record(slots=False)
class Complex:
    """Real and imaginary parts, f32 tensors of one shape; None is zero."""

    real: Value
    imaginary: Value | None = None


# -- transforms along the last axis ----------------------------------------------------------------------------------


def _matrices(length: int, count: int, sign: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cosine and sine of ``sign * 2 pi n k / length`` for all n below ``length`` and k below ``count``."""
    turns = np.outer(np.arange(length), np.arange(count)) % length
    angles = sign * 2.0 * np.pi * turns / length
    return np.cos(angles), np.sin(angles)


def _rotations(builder: Builder, length: Dim, rows: Dim, columns: Dim, sign: int) -> tuple[Value, Value]:
    """Build cosine and sine of ``sign * 2 pi n k / length`` for all n below ``rows`` and k below ``columns``."""
    at = _counted(builder, length)
    cosine, sine = (builder.op("Rotations", at, domain="loom", length=length, function=each) for each in ("cos", "sin"))
    cosines, sines = (
        builder.op("RotationMatrix", table, domain="loom", rows=rows, columns=columns)
        for table in (cosine, sine if sign > 0 else builder.op("Neg", sine))
    )
    return cosines, sines


def _times(builder: Builder, signal: Complex, c: Value, s: Value, operation: str) -> Complex:
    """Multiply by a complex matrix (MatMul) or by complex factors (Mul): ``c`` + i ``s``."""
    real, imaginary = builder.op(operation, signal.real, c), builder.op(operation, signal.real, s)
    if signal.imaginary is not None:
        real = builder.op("Sub", real, builder.op(operation, signal.imaginary, s))
        imaginary = builder.op("Add", imaginary, builder.op(operation, signal.imaginary, c))
    return Complex(real, imaginary)


def _constants(builder: Builder, arrays: Sequence[np.ndarray]) -> tuple[Value, Value]:
    cosines, sines = (builder.constant(array.astype(np.float32)) for array in arrays)
    return cosines, sines


def _each(signal: Complex, change: Callable[[Value], Value]) -> Complex:
    """Apply ``change`` to the real and the imaginary part."""
    return Complex(change(signal.real), None if signal.imaginary is None else change(signal.imaginary))


def _factor(length: int) -> int:
    """Return the largest factor of ``length`` up to its square root, other than 1; 1 where there is none."""
    return next((factor for factor in range(math.isqrt(length), 1, -1) if length % factor == 0), 1)


def transform(builder: Builder, signal: Complex, length: Dim, count: Dim, sign: int) -> Complex:
    """Build the first ``count`` sums over n of ``x[n] exp(sign 2 pi i n k / length)`` along the last axis.

    An axis that is shorter than ``length`` counts as padded with zeros, one that is longer as cut.
    """
    if isinstance(length, ix.Index):
        signal = _each(signal, lambda value: _cut(builder, value, length))
        return _times(builder, signal, *_rotations(builder, length, signal.real.shape[-1], count, sign), "MatMul")
    signal = _each(signal, lambda value: _resized(builder, value, ix.number(length)))
    return _fixed_transform(builder, signal, ix.number(length), ix.number(count), sign)


def _fixed_transform(builder: Builder, signal: Complex, length: int, count: int, sign: int) -> Complex:
    """Build what :func:`transform` does, of ``length`` elements."""
    outer = signal.real.shape[:-1]
    first = _factor(length)
    if length <= DIRECT or first == 1:
        return _times(builder, signal, *_constants(builder, _matrices(length, count, sign)), "MatMul")
    second = length // first
    # n = second * n1 + n2 and k = k1 + first * k2
    split = _each(signal, lambda value: view(builder, value, *outer, first, second))
    swap = (*range(len(outer)), len(outer) + 1, len(outer))
    pieces = _each(split, lambda value: builder.op("Transpose", value, perm=swap))
    columns = _fixed_transform(builder, pieces, first, first, sign)
    angles = sign * 2.0 * np.pi * np.outer(np.arange(second), np.arange(first)) / length  # [n2, k1]
    turned = _times(builder, columns, *_constants(builder, (np.cos(angles), np.sin(angles))), "Mul")
    turned = _each(turned, lambda value: builder.op("Transpose", value, perm=swap))
    rows = _fixed_transform(builder, turned, second, second, sign)
    # [k1, k2] to k1 + first * k2
    joined = _each(rows, lambda value: builder.op("Transpose", value, perm=swap))
    joined = _each(joined, lambda value: view(builder, value, *outer, length))
    return _each(joined, lambda value: part(builder, value, len(outer), 0, count)) if count < length else joined


def _real_inverse(builder: Builder, spectrum: Complex, length: Dim) -> Value:
    """Build the real signal of ``length`` whose spectrum starts with ``spectrum`` (length // 2 + 1 numbers)."""
    count = ix.add(ix.floordiv(length, 2), 1)
    if isinstance(length, ix.Index):
        return _open_real_inverse(builder, _each(spectrum, lambda value: _cut(builder, value, count)), length)
    spectrum = _each(spectrum, lambda value: _resized(builder, value, ix.number(count)))
    cosines, sines = _matrices(ix.number(length), ix.number(count), 1)
    weights = np.full((ix.number(count), 1), 2.0 / length)
    weights[0] = 1.0 / length
    if length % 2 == 0:
        weights[-1] = 1.0 / length
    c, s = _constants(builder, (cosines.T * weights, sines.T * weights))
    return _times(builder, spectrum, c, s, "MatMul").real


def _open_real_inverse(builder: Builder, spectrum: Complex, length: Dim) -> Value:
    """Build what :func:`_real_inverse` does, of a length that a run decides."""
    numbers = spectrum.real.shape[-1]
    zero, one, two = (builder.constant(np.array(number, np.int32)) for number in range(3))
    at = _counted(builder, numbers)
    is_last = builder.op("Equal", builder.op("Mul", at, two), integer(builder, length))
    is_single = builder.op("Or", builder.op("Equal", at, zero), is_last)
    weights = in_type(builder, builder.op("Where", is_single, one, two), FLOAT32)
    spectrum = _each(spectrum, lambda value: builder.op("Mul", value, weights))
    signal = _times(builder, spectrum, *_rotations(builder, length, numbers, length, 1), "MatMul").real
    return _divided(builder, signal, length)


def _divided(builder: Builder, value: Value, length: Dim) -> Value:
    if isinstance(length, ix.Index):
        return builder.op("Div", value, in_type(builder, integer(builder, length), FLOAT32))
    return builder.op("Mul", value, builder.scalar(1.0 / length, value))


def _counted(builder: Builder, size: Dim) -> Value:
    """Build the numbers from 0 up to ``size``."""
    return builder.op("Range", *(integer(builder, number) for number in (0, size, 1)))


def _cut(builder: Builder, value: Value, most: Dim) -> Value:
    """Take ``most`` elements of the last axis at most."""
    have = value.shape[-1]
    size = ix.minimum(have, most)
    return value if size == have else part(builder, value, value.rank - 1, 0, size)


def _resized(builder: Builder, value: Value, size: int) -> Value:
    """Truncate the last axis, or pad it with zeros."""
    value = _cut(builder, value, size)
    missing = ix.add(size, ix.multiply(value.shape[-1], -1))
    if missing == 0:
        return value
    pads = [0] * (2 * value.rank - 1)
    return padded_to(builder, value, [*pads, missing], (*value.shape[:-1], size))


def _parts(builder: Builder, value: Value) -> Complex:
    """Split [..., 1 or 2] into the parts of a complex tensor without that axis."""
    axis = builder.constant(np.array([-1], np.int64))
    pieces = [
        builder.op("Squeeze", part(builder, value, value.rank - 1, number, 1), axis)
        for number in range(ix.number(value.shape[-1]))
    ]
    return Complex(*pieces)


def _joined(builder: Builder, value: Complex) -> Value:
    """Join the parts of a complex tensor along a new last axis of size 1 or 2."""
    axis = builder.constant(np.array([-1], np.int64))
    pieces = [value.real] if value.imaginary is None else [value.real, value.imaginary]
    pieces = [builder.op("Unsqueeze", piece, axis) for piece in pieces]
    return pieces[0] if len(pieces) == 1 else builder.op("Concat", *pieces, axis=-1)


# -- DFT -------------------------------------------------------------------------------------------------------------


@record
class DFTAttributes:
    inverse: int = 0
    onesided: int = 0


def _axis_input(raw: RawNode) -> None:
    """Replace the attribute ``axis`` of versions before 20, 1 by default, by an input."""
    checks.set_input(raw, 2, raw.add_constant(np.asarray(raw.attributes.pop("axis", 1), np.int64)))


@record
class _Transform:
    axis: int
    length: Dim  #: of the signal
    count: Dim  #: elements of the result
    real: bool  #: whether the result is real


def _described(node: Node) -> _Transform:
    value, attributes = node.operand(0), node.attributes
    checks.require(value.rank >= 2 and value.shape[-1] in (1, 2), node, "the last axis has one number or two")
    axis = -2 if node.optional(2) is None else checks.static_integers(node, 2, "the axis of DFT")[0]
    axis = checks.normalise_axis(node, axis, value.rank)
    checks.require(axis < value.rank - 1, node, "the last axis holds real and imaginary parts")
    size = value.shape[axis]
    inverse, onesided = bool(attributes.inverse), bool(attributes.onesided)
    length = ix.multiply(ix.add(size, -1), 2) if inverse and onesided else size
    if node.optional(1) is not None:
        length = checks.static_dims(node, 1, "dft_length")[0]
    checks.require(ix.less(0, length), node, f"a transform of length {ix.text(length)}")
    if onesided and not inverse:
        checks.require(value.shape[-1] == 1, node, "a onesided transform is one of real numbers")
        return _Transform(axis, length, ix.add(ix.floordiv(length, 2), 1), False)
    return _Transform(axis, length, length, onesided)


def _infer_dft(node: Node) -> Inferred:
    value, described = node.operand(0), _described(node)
    shape = list(value.shape)
    shape[described.axis], shape[-1] = described.count, 1 if described.real else 2
    return [(value.dtype, tuple(shape))]


def _expand_dft(builder: Builder, node: Node) -> Sequence[Value]:
    described, value = _described(node), node.operand(0)
    signal = _parts(builder, in_type(builder, value, FLOAT32))
    rank = value.rank - 1
    perm = (*(axis for axis in range(rank) if axis != described.axis), described.axis)
    back = tuple(perm.index(axis) for axis in range(rank))
    signal = _each(signal, lambda piece: builder.op("Transpose", piece, perm=perm))
    if described.real:
        result = Complex(_real_inverse(builder, signal, described.length))
    else:
        sign = 1 if node.attributes.inverse else -1
        result = transform(builder, signal, described.length, described.count, sign)
        if node.attributes.inverse:
            result = _each(result, lambda piece: _divided(builder, piece, described.length))
    result = _each(result, lambda piece: builder.op("Transpose", piece, perm=back))
    return [in_type(builder, _joined(builder, result), value.dtype)]


register(
    name="DFT",
    infer=_infer_dft,
    attributes=DFTAttributes,
    adapters=((17, _axis_input),),
    expand=_expand_dft,
    types=(FLOATS, checks.INDICES, checks.INDICES),
    static_inputs=(1, 2),
    axes=Axes(2),
)


# -- STFT ------------------------------------------------------------------------------------------------------------


@record
class FramesAttributes:
    """[batch, samples] -> [batch, ``count``, ``length``]: frame ``i`` starts at sample ``i * step``."""

    count: Dim
    length: Dim
    step: int


def _infer_frames(node: Node) -> Inferred:
    value, attributes = node.operand(0), node.attributes
    return [(value.dtype, (value.shape[0], attributes.count, attributes.length))]


def _read_frames(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    batch, frame, sample = coordinates
    return read(0, [batch, ix.add(ix.multiply(frame, node.attributes.step), sample)])


register(
    name="Frames",
    domain="loom",
    infer=_infer_frames,
    attributes=FramesAttributes,
    gather=_read_frames,
)


@record
class STFTAttributes:
    onesided: int = 1


def _frame_length(node: Node) -> Dim:
    """Return the number of samples of a frame; the signal is checked, too."""
    value, window = node.operand(0), node.optional(2)
    is_signal = value.rank == 2 or (value.rank == 3 and value.shape[-1] in (1, 2))  # exporters leave the 1 out
    checks.require(is_signal, node, "a signal is [batch, samples] or [batch, samples, 1 or 2]")
    checks.require(window is None or window.rank == 1, node, "a window is a vector")
    if node.optional(3) is None:
        checks.require(window is not None, node, "neither window nor frame_length")
        assert window is not None
        return window.shape[0]
    length = checks.static_dims(node, 3, "frame_length")[0]
    if window is not None:
        checks.require_equal(node, window.shape[0], length, "the window differs from a frame in length")
    return length


def _frames(node: Node) -> FramesAttributes:
    step = checks.static_dims(node, 1, "frame_step")[0]
    if isinstance(step, ix.Index):
        raise NotKnownError("frame_step must be known at compile time", origin=node.origin)
    length, samples = _frame_length(node), node.operand(0).shape[1]
    fits = step > 0 and ix.less(0, length) and not ix.less(samples, length)
    text = f"frames of {ix.text(length)} samples in steps of {step} from {ix.text(samples)} samples"
    checks.require(fits, node, text)
    steps = ix.floordiv(ix.maximum(ix.add(samples, ix.multiply(length, -1)), 0), step)
    return FramesAttributes(ix.add(steps, 1), length, step)


def _frequencies(node: Node, length: Dim) -> Dim:
    return ix.add(ix.floordiv(length, 2), 1) if node.attributes.onesided else length


def _infer_stft(node: Node) -> Inferred:
    value, frames = node.operand(0), _frames(node)
    return [(value.dtype, (value.shape[0], frames.count, _frequencies(node, frames.length), 2))]


def _expand_stft(builder: Builder, node: Node) -> Sequence[Value]:
    frames = _frames(node)
    parameters = {"count": frames.count, "length": frames.length, "step": frames.step}
    return _spectra(
        builder, node, frames.length, lambda piece: builder.op("Frames", piece, domain="loom", **parameters)
    )


def _spectra(builder: Builder, node: Node, length: Dim, framed: Callable[[Value], Value]) -> Sequence[Value]:
    """Build the spectra of the frames that ``framed`` cuts a signal [batch, samples] into."""
    value, window = node.operand(0), node.optional(2)
    samples = in_type(builder, value, FLOAT32)
    signal = _each(Complex(samples) if value.rank == 2 else _parts(builder, samples), framed)
    if window is not None:
        weights = in_type(builder, window, FLOAT32)
        signal = _each(signal, lambda piece: builder.op("Mul", piece, weights))
    frequencies = transform(builder, signal, length, _frequencies(node, length), -1)
    return [in_type(builder, _joined(builder, frequencies), value.dtype)]


# -- STFT of steps that a run decides: the device counts the frames ---------------------------------------------------


def _expand_count(builder: Builder, node: Node) -> Sequence[Value]:
    """Compute the number of frames of a signal; -1 where step and length do not fit."""
    step, length = (
        None if value is None else in_type(builder, builder.op("Squeeze", value), INT64)
        for value in (node.operand(1), node.optional(3))
    )
    if length is None:
        length = integer(builder, _frame_length(node), INT64)
    zero, one, none = (builder.constant(np.array(number, np.int64)) for number in (0, 1, -1))
    rest = builder.op("Sub", integer(builder, node.operand(0).shape[1], INT64), length)
    has_frames = builder.op("GreaterOrEqual", rest, zero)
    for value in (step, length):
        has_frames = builder.op("And", has_frames, builder.op("Greater", value, zero))
    count = builder.op("Add", builder.op("Div", rest, builder.op("Max", step, one)), one)
    return [builder.op("Where", has_frames, count, none)]


register(
    name="FrameCount",
    domain="loom",
    infer=lambda node: [(INT64, ())],
    expand=_expand_count,
    types=(FLOATS, checks.INDICES, FLOATS, checks.INDICES),
)


def _infer_stepped(node: Node) -> Inferred:
    value, length = node.operand(0), _frame_length(node)
    (count,) = checks.static_dims(node, 4, "the number of frames")
    checks.require(not ix.less(value.shape[1], length), node, f"frames of {ix.text(length)} samples")
    return [(value.dtype, (value.shape[0], count, _frequencies(node, length), 2))]


def _expand_stepped(builder: Builder, node: Node) -> Sequence[Value]:
    length, (count,) = _frame_length(node), checks.static_dims(node, 4, "the number of frames")
    longest = builder.constant(np.array(ix.UNBOUNDED - 1, np.int64))
    step = builder.op("Min", in_type(builder, builder.op("Squeeze", node.operand(1)), INT64), longest)
    firsts = builder.op("Mul", _counted(builder, count), in_type(builder, step, INT32))
    firsts = builder.op("Unsqueeze", firsts, builder.constant(np.array([1], np.int64)))
    places = builder.op("Add", firsts, _counted(builder, length))
    return _spectra(builder, node, length, lambda piece: builder.op("Gather", piece, places, axis=1))


register(
    name="SteppedSTFT",
    domain="loom",
    infer=_infer_stepped,
    attributes=STFTAttributes,
    expand=_expand_stepped,
    types=(FLOATS, checks.INDICES, FLOATS, checks.INDICES, checks.INDICES),
    static_inputs=(3, 4),
)


def _split_stft(builder: SplitBuilder, inputs: Sequence[str], outputs: Sequence[str], attributes: Any) -> None:
    operands = [*inputs, *[""] * (4 - len(inputs))]
    count = builder.apply("FrameCount", *operands, domain="loom")
    builder.apply_to(outputs, "SteppedSTFT", *operands, count, domain="loom", onesided=attributes.onesided)


register(
    name="STFT",
    infer=_infer_stft,
    attributes=STFTAttributes,
    expand=_expand_stft,
    types=(FLOATS, checks.INDICES, FLOATS, checks.INDICES),
    static_inputs=(1, 3),
    split_ahead=_split_stft,
    is_split_ahead=lambda operands, attributes: is_open(operands[1]),
)
