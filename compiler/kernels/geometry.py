"""Mapping of threads and workgroups to the elements of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from ..codegen.spec import Grid, Hook
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.lanes import LANES, lane_variable
from ..symbolic.polynomial import Dim
from ..target import Target


def lanes_of(base: Dim) -> Dim:
    """Return the coordinate of four neighbours: ``4 * base + lane``."""
    return ix.add(ix.multiply(base, LANES), lane_variable())


def linear_grid(threads: Dim, workgroup_size: int, target: Target) -> Grid:
    """Return the workgroups for a flat range of threads; in two dimensions where one would exceed the device's limit.

    Kernels compute their index as ``id.x + id.y * groups.x * workgroup_size`` and return if it is out of range.
    """
    groups = ix.ceildiv(threads, workgroup_size)
    limit = target.limit("max-compute-workgroups-per-dimension")
    if ix.bounds(groups)[1] <= limit:
        return groups, 1, 1
    return limit, ix.ceildiv(groups, limit), 1


def unflatten(flat: Dim, sizes: Sequence[Dim]) -> list[Dim]:
    """Return the coordinates of element ``flat`` in a row-major block of ``sizes``.

    The outermost axis that is not 1 is not reduced, so neighbours along the innermost axis stay neighbours for elements
    past the end too: their outermost coordinate is out of range.
    """
    coordinates: list[Dim] = [0] * len(sizes)
    wide = [axis for axis, size in enumerate(sizes) if size != 1]
    for axis in reversed(wide[1:]):
        if sizes[axis] == 0:  # the block has no elements: nothing will run
            continue
        coordinates[axis] = ix.modulo(flat, sizes[axis])
        flat = ix.floordiv(flat, sizes[axis])
    if wide:
        coordinates[wide[0]] = flat
    return coordinates


def logical_coordinates(axes: Sequence[tuple[int, Dim]], flat: Dim) -> tuple[Dim, ...]:
    """Return the coordinates, by logical axis, of element ``flat`` of memory with the physical ``axes``."""
    coordinates: list[Dim] = [0] * len(axes)
    for (axis, _), coordinate in zip(axes, unflatten(flat, [size for _, size in axes]), strict=True):
        coordinates[axis] = coordinate
    return tuple(coordinates)


def find_hooks(names: Sequence[str], arguments: tuple[str, ...], coordinates: Sequence[Dim]) -> list[Hook]:
    """Return the hooks ``find_NAME`` that compute each of ``coordinates`` from the variables ``arguments``."""
    return [
        Hook(f"find_{name}", arguments, 1, (), ex.coordinate(coordinate))
        for name, coordinate in zip(names, coordinates, strict=True)
    ]
