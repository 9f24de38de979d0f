"""Convolutions and pools with numpy: the reference of the families that slide windows over spatial axes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ..ir.coordinates import Sizes, shape_of
from ..ir.graph import Node
from ..ops.math.windows import WindowAttributes
from ..ops.onnx.convolution import ConvolutionAttributes, ConvolutionTransposeAttributes
from ..ops.onnx.pooling import PoolAttributes


def convolution(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    """Return the result of ``loom.Convolution``: sums of f32, or of i32 for integers."""
    attributes: ConvolutionAttributes = node.attributes
    compute = np.float32 if node.operand(0).dtype.is_float else np.int32
    value, weight = (operand.astype(compute) for operand in operands)
    result = slide_products(value, weight, attributes, attributes.group, shape_of(node.outputs[0], sizes))
    return result.astype(operands[0].dtype)


def slide_products(
    value: np.ndarray,
    weight: np.ndarray,
    attributes: WindowAttributes,
    group: int,
    shape: Sequence[int],
    padding: float = 0,
) -> np.ndarray:
    """Return sums of products of windows of ``value`` [N, C, spatial...] and ``weight`` [O, C / group, kernel...], in
    their element type and of ``shape``; the border consists of ``padding``."""
    padded = _padded(value, attributes.pads, (0,) * len(attributes.kernel), padding)
    result = np.zeros((shape[0], group, shape[1] // group, *shape[2:]), value.dtype)
    weights = _kernel_first(weight, group)
    for offsets, slices in _taps(attributes.kernel, attributes.strides, attributes.dilations, shape[2:]):
        seen = padded[(slice(None), slice(None), *slices)]
        seen = seen.reshape(seen.shape[0], group, seen.shape[1] // group, *seen.shape[2:])
        result += np.einsum("ngc...,goc->ngo...", seen, weights[offsets])
    return result.reshape(shape)


def convolution_transpose(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    """Return the result of ``loom.ConvolutionTranspose``, summed in f32."""
    attributes: ConvolutionTransposeAttributes = node.attributes
    value, weight = (operand.astype(np.float32) for operand in operands)
    shape = shape_of(node.outputs[0], sizes)
    group, count = attributes.group, len(attributes.kernel)
    # every element that some input reaches, then what the padding leaves of it
    reach = [
        max(
            (value.shape[2 + axis] - 1) * attributes.strides[axis]
            + (attributes.kernel[axis] - 1) * attributes.dilations[axis]
            + 1,
            attributes.pads[axis] + shape[2 + axis],
        )
        for axis in range(count)
    ]
    full = np.zeros((shape[0], group, shape[1] // group, *reach), np.float32)
    grouped = value.reshape(value.shape[0], group, value.shape[1] // group, *value.shape[2:])
    weights = _kernel_first(weight, group)
    for offsets, slices in _taps(attributes.kernel, attributes.strides, attributes.dilations, value.shape[2:]):
        part = np.einsum("ngc...,gco->ngo...", grouped, weights[offsets])
        full[(slice(None), slice(None), slice(None), *slices)] += part
    unpadded = tuple(slice(attributes.pads[axis], attributes.pads[axis] + shape[2 + axis]) for axis in range(count))
    return full[(slice(None), slice(None), slice(None), *unpadded)].reshape(shape).astype(operands[0].dtype)


def pool(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    """Return the result of ``loom.Pool``: the largest element, the mean or the p-norm of each window."""
    attributes: PoolAttributes = node.attributes
    value, dtype = operands[0], node.operand(0).dtype
    shape = shape_of(node.outputs[0], sizes)
    compute = value.astype(np.float32) if dtype.is_float else value
    lowest = -np.inf if dtype.is_float else np.iinfo(dtype.numpy).min
    count = len(attributes.kernel)
    least = [
        (shape[2 + axis] - 1) * attributes.strides[axis]
        + (attributes.kernel[axis] - 1) * attributes.dilations[axis]
        + 1
        for axis in range(count)
    ]
    taps = _taps(attributes.kernel, attributes.strides, attributes.dilations, shape[2:])

    def windows(array: np.ndarray, fill: float) -> np.ndarray:
        padded = _padded(array, attributes.pads, least, fill)
        return np.stack([padded[(slice(None), slice(None), *slices)] for _, slices in taps])

    if attributes.kind == "max":
        return windows(compute, lowest).max(axis=0).astype(value.dtype)
    if attributes.kind == "lp":
        powers = windows(np.abs(compute) ** np.float32(attributes.p), 0.0).sum(axis=0, dtype=np.float32)
        return (powers ** np.float32(1.0 / attributes.p)).astype(value.dtype)
    present = np.ones((1, 1, *value.shape[2:]), np.float32)
    if attributes.count_include_pad:
        present = _padded(present, attributes.pads, (0,) * count, 1.0)
        grown = [(0, 0), (0, 0), *((0, max(least[axis] - present.shape[2 + axis], 0)) for axis in range(count))]
        present = np.pad(present, grown)
        numbers = np.stack([present[(slice(None), slice(None), *slices)] for _, slices in taps]).sum(axis=0)
    else:
        numbers = windows(present, 0.0).sum(axis=0)
    # a window of padding alone has the average 0
    return (windows(compute, 0.0).sum(axis=0, dtype=np.float32) / np.maximum(numbers, 1)).astype(value.dtype)


def _taps(
    kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], windows: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Return each kernel element's offsets, and the slices of padded input positions that it reads, one a window."""
    result = []
    for offsets in itertools.product(*map(range, kernel)):
        slices = tuple(
            slice(offset * dilation, offset * dilation + (count - 1) * stride + 1, stride)
            for offset, dilation, count, stride in zip(offsets, dilations, windows, strides)
        )
        result.append((offsets, slices))
    return result


def _padded(array: np.ndarray, pads: Sequence[int], least: Sequence[int], fill: float) -> np.ndarray:
    """Pad the spatial axes of ``array`` to at least the lengths ``least``; negative padding crops."""
    count = len(pads) // 2
    for axis in range(count):
        begin, end = pads[axis], pads[count + axis]
        end = max(end, least[axis] - array.shape[2 + axis] - begin)
        crop = [slice(None)] * array.ndim
        crop[2 + axis] = slice(max(-begin, 0), array.shape[2 + axis] - max(-end, 0))
        widths = [(0, 0)] * array.ndim
        widths[2 + axis] = (max(begin, 0), max(end, 0))
        array = np.pad(array[tuple(crop)], widths, constant_values=np.asarray(fill).astype(array.dtype))
    return array


def _kernel_first(weight: np.ndarray, group: int) -> np.ndarray:
    """Rearrange [G * A, B, kernel...] to [kernel..., G, A, B]."""
    grouped = weight.reshape(group, weight.shape[0] // group, *weight.shape[1:])
    return np.moveaxis(grouped, (0, 1, 2), (-3, -2, -1))
