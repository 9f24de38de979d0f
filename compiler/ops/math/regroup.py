"""Index arithmetic of a change of shape: the coordinates of one element under two shapes of equal size.

Row-major order is the same under both shapes, so the general answer is to number the elements and to take the number
apart again.  That would mix all axes.  Where the leading sizes of both shapes have a common product, the shapes fall
into independent *groups* of axes there: ``(8, 12, 64) <-> (8, 768)`` is ``8 <-> 8`` and ``(12, 64) <-> (768,)``.  An
axis that is alone in its group on both sides keeps its plain coordinate, so symbolic sizes and vector loads survive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...ir.graph import Shape
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks

Axes = list[int]


def groups(source: Shape, target: Shape) -> Iterator[tuple[Axes, Axes]]:
    """Yield the axes of ``source`` and of ``target`` that hold the same elements, outermost group first.

    Axes of size one belong to no group. The shapes must have the same number of elements, and not zero: if that is
    known of their sizes in a run alone, all axes behind the last common product are a group.
    """
    source_axes = [axis for axis, size in enumerate(source) if size != 1]
    target_axes = [axis for axis, size in enumerate(target) if size != 1]
    ends = {product: position for position, product in enumerate(_leading_products(source, source_axes), 1)}
    source_start = target_start = 0
    for target_end, product in enumerate(_leading_products(target, target_axes), 1):
        source_end = ends.get(product)
        if source_end is not None and source_end > source_start:
            yield source_axes[source_start:source_end], target_axes[target_start:target_end]
            source_start, target_start = source_end, target_end
    if source_start < len(source_axes) or target_start < len(target_axes):
        assert checks.may_equal(ix.product(source), ix.product(target)), (source, target)
        yield source_axes[source_start:], target_axes[target_start:]


def _leading_products(shape: Shape, axes: Axes) -> Iterator[Dim]:
    product: Dim = 1
    for axis in axes:
        product = ix.multiply(product, shape[axis])
        yield product


def reindex(coordinates: Sequence[Dim], source: Shape, target: Shape) -> tuple[Dim, ...]:
    """Map coordinates under ``source`` to those under ``target`` of the same element (same row-major number)."""
    result: list[Dim] = [0] * len(target)
    if 0 in source:
        return tuple(result)  # there is no element to ask for
    for source_axes, target_axes in groups(source, target):
        number: Dim = 0
        for axis in source_axes:
            number = ix.add(ix.multiply(number, source[axis]), coordinates[axis])
        for axis in reversed(target_axes[1:]):
            result[axis] = ix.modulo(number, target[axis])
            number = ix.floordiv(number, target[axis])
        if target_axes:
            result[target_axes[0]] = number
    return tuple(result)


def broadcast_coordinates(shape: Shape, coordinates: Sequence[Dim]) -> list[Dim]:
    """Map coordinates in a broadcast tensor to coordinates in the tensor of ``shape`` that it was broadcast from."""
    trailing = coordinates[len(coordinates) - len(shape) :]
    return [0 if checks.is_size(size, 1) else coordinate for size, coordinate in zip(shape, trailing)]
