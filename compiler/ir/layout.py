"""Physical layout of a tensor: the order of its logical axes in memory, with padding and blocking.

A :class:`Layout` never changes what an axis *means*: shapes and ``axis`` attributes stay in ONNX order everywhere.
NHWC is the layout ``order=(0, 2, 3, 1)`` of a tensor whose logical shape is still N, C, H, W.

Memory holds the axes of ``order`` from outermost to innermost.  ``padding`` rounds the stored size of an axis up to a
multiple; the extra elements are zero.  ``blocks`` splits an axis into inner blocks: ``((1, 4),)`` stores axis 1 as C/4
at its place in ``order`` and 4 innermost (a blocked axis is padded to a multiple of its block).
"""

from __future__ import annotations

from collections.abc import Mapping

from ...runtime.plan.record import record
from ..symbolic import polynomial as ix
from ..symbolic.polynomial import Dim

Shape = tuple[Dim, ...]


@record
class Layout:
    order: tuple[int, ...]
    padding: tuple[tuple[int, int], ...] = ()  #: (axis, multiple), sorted by axis
    blocks: tuple[tuple[int, int], ...] = ()  #: (axis, size) of the inner blocks, outermost first

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.order))):
            raise ValueError(f"not a permutation of the axes: {self.order}")

    @property
    def rank(self) -> int:
        return len(self.order)

    @property
    def is_contiguous(self) -> bool:
        """Whether this is ONNX's own order without padding: the layout of model inputs and outputs."""
        return not self.padding and not self.blocks and self.order == tuple(range(self.rank))

    @property
    def is_dense(self) -> bool:
        """Whether memory holds exactly the tensor's elements, in some order."""
        return not self.padding and not self.blocks

    @property
    def innermost(self) -> int:
        """The axis whose neighbours are neighbours in memory (-1 for a scalar)."""
        if self.blocks:
            return self.blocks[-1][0]
        return self.order[-1] if self.order else -1

    def stored_size(self, shape: Shape, axis: int) -> Dim:
        """Return the size of an axis in memory, padding included."""
        size = shape[axis]
        if self.is_dense:
            return size
        for table in (self.padding, self.blocks):
            for padded_axis, multiple in table:
                if padded_axis == axis:
                    size = ix.round_up(size, multiple)
        return size

    def stored_elements(self, shape: Shape) -> Dim:
        if self.is_dense:
            return ix.product(shape)
        return ix.product([self.stored_size(shape, axis) for axis in range(self.rank)])

    def position(self, shape: Shape, coordinates: Shape) -> Dim:
        """Return the offset of an element in memory: its distance from the first element, counted in elements."""
        block_sizes = dict(self.blocks)
        position: Dim = 0
        for axis in self.order:
            size = self.stored_size(shape, axis)
            coordinate = coordinates[axis]
            if axis in block_sizes:
                size, coordinate = ix.floordiv(size, block_sizes[axis]), ix.floordiv(coordinate, block_sizes[axis])
            position = ix.add(ix.multiply(position, size), coordinate)
        for axis, size_of_block in self.blocks:
            position = ix.add(ix.multiply(position, size_of_block), ix.modulo(coordinates[axis], size_of_block))
        return position

    def physical_axes(self, shape: Shape) -> list[tuple[int, Dim]]:
        """Return (axis, stored size) from outermost to innermost; only for layouts without inner blocks."""
        if self.blocks:
            raise ValueError("a blocked layout has no single list of axes")
        return [(axis, self.stored_size(shape, axis)) for axis in self.order]

    def __str__(self) -> str:
        names = "".join("NCHW"[axis] for axis in self.order) if self.rank == 4 else ",".join(map(str, self.order))
        extra = "".join(f" pad{axis}:{multiple}" for axis, multiple in self.padding)
        return names + extra + "".join(f" block{axis}:{size}" for axis, size in self.blocks)


def ordered_by(coordinates: Shape, place: Mapping[str, int]) -> Layout:
    """Return the layout of a tensor at ``coordinates`` whose variables are placed from the outermost to the innermost
    as ``place`` says; others come first."""

    def key(axis: int) -> tuple[int, int]:
        places = [place[name] for name in ix.variables(coordinates[axis]) if name in place]
        return (max(places) if places else -1, axis)

    return Layout(tuple(sorted(range(len(coordinates)), key=key)))


def contiguous(rank: int) -> Layout:
    """Return the contiguous row-major layout, which is ONNX's own order."""
    return Layout(tuple(range(rank)))


def channels_last(rank: int) -> Layout:
    """Return the layout of convolutions and pools: N, spatial axes, C."""
    return Layout((0, *range(2, rank), 1))
