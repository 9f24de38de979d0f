"""The two transforms around the products of a convolution by Winograd's filtering; see :mod:`.winograd`.

The pass ``winograd`` creates them.  Tiles are numbered row-major over images, rows and columns of tiles.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....runtime.plan.record import record
from ...ir.graph import Node
from ..checks import FLOATS
from ..math.winograd import Transform, tiles, transform
from ..registry import Inferred, register


@record
class WinogradInputAttributes:
    """Tiles of ``outputs`` results along each axis cover ``spatial`` results; ``begins`` zeros precede the input."""

    outputs: int
    begins: tuple[int, int]
    spatial: tuple[int, int]


@record
class WinogradOutputAttributes:
    """``spatial`` results of each of ``images`` images."""

    outputs: int
    images: int
    spatial: tuple[int, int]


def grid(attributes: WinogradInputAttributes | WinogradOutputAttributes) -> tuple[int, int]:
    """Return the numbers of rows and columns of tiles of one image."""
    height, width = attributes.spatial
    return tiles(height, attributes.outputs), tiles(width, attributes.outputs)


def _infer_input(node: Node) -> Inferred:
    """Infer [N, C, H, W] -> [points, tiles, C]."""
    attributes: WinogradInputAttributes = node.attributes
    value = node.operand(0)
    rows, columns = grid(attributes)
    points = transform(attributes.outputs).size ** 2
    assert isinstance(value.shape[0], int)
    return [(value.dtype, (points, value.shape[0] * rows * columns, value.shape[1]))]


def _infer_output(node: Node) -> Inferred:
    """Infer [points, tiles, C] -> [N, C, H, W]."""
    attributes: WinogradOutputAttributes = node.attributes
    value = node.operand(0)
    return [(value.dtype, (attributes.images, value.shape[2], *attributes.spatial))]


register(
    name="WinogradInput",
    domain="loom",
    infer=_infer_input,
    attributes=WinogradInputAttributes,
    family="winograd_input",
    types=(FLOATS,),
)
register(
    name="WinogradOutput",
    domain="loom",
    infer=_infer_output,
    attributes=WinogradOutputAttributes,
    family="winograd_output",
    types=(FLOATS,),
)


# -- on the host -----------------------------------------------------------------------------------------------------


def input_array(value: np.ndarray, attributes: WinogradInputAttributes) -> np.ndarray:
    """Evaluate ``loom.WinogradInput`` with numpy."""
    matrices = transform(attributes.outputs)
    rows, columns = grid(attributes)
    size, step = matrices.size, attributes.outputs
    images, channels = value.shape[:2]
    top, left = attributes.begins
    padded = np.zeros((images, channels, (rows - 1) * step + size, (columns - 1) * step + size), value.dtype)
    shown = value[:, :, : padded.shape[2] - top, : padded.shape[3] - left]
    padded[:, :, top : top + shown.shape[2], left : left + shown.shape[3]] = shown
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))[:, :, ::step, ::step]
    points = _both_axes(matrices, lambda each: each.data, windows)
    return np.ascontiguousarray(points.transpose(4, 5, 0, 2, 3, 1).reshape(size * size, -1, channels))


def output_array(value: np.ndarray, attributes: WinogradOutputAttributes) -> np.ndarray:
    """Evaluate ``loom.WinogradOutput`` with numpy."""
    matrices = transform(attributes.outputs)
    rows, columns = grid(attributes)
    size, step, channels = matrices.size, attributes.outputs, value.shape[2]
    points = value.reshape(size, size, attributes.images, rows, columns, channels).transpose(2, 5, 3, 4, 0, 1)
    results = _both_axes(matrices, lambda each: each.result, points).transpose(0, 1, 2, 4, 3, 5)
    height, width = attributes.spatial
    covered = results.reshape(attributes.images, channels, rows * step, columns * step)
    return np.ascontiguousarray(covered[:, :, :height, :width])


def _both_axes(
    matrices: Transform, choose: Callable[[Transform], tuple[tuple[float, ...], ...]], array: np.ndarray
) -> np.ndarray:
    matrix = np.asarray(choose(matrices), array.dtype)
    return np.einsum("ia,...ab,jb->...ij", matrix, array, matrix)
