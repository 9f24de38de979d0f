"""Map kernels: each thread computes a few neighbouring elements of the result on their own.

Elementwise chains, views, indexing, padding, resizing and weight relayouts are all this kernel; what differs is the
expression.  Threads follow the physical order of the output, so stores are contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.plan.dtypes import DType
from ...runtime.plan.record import record
from ..codegen.spec import Hook
from ..ir.coordinates import Sizes
from ..ir.graph import Node
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.polynomial import Dim
from . import row_update, transpose
from .context import GroupContext
from .draft import BuiltKernel, Draft
from .family import KernelFamily, by_position, register_family
from .geometry import lanes_of, linear_grid, logical_coordinates
from .map_reference import compute_map

#: Threads of a workgroup: few, or many where ``Target.wide_map_threads`` says so
WORKGROUP, LARGE_WORKGROUP = 64, 256


@record
class MapConfig:
    """``lanes`` neighbouring elements a thread, ``workgroup`` threads a group."""

    lanes: int
    workgroup: int

    def __post_init__(self) -> None:
        if self.lanes not in (1, 4):
            raise ValueError(f"lanes must be 1 or 4, not {self.lanes}")
        if not 1 <= self.workgroup <= 256:
            raise ValueError(f"workgroup must be 1 to 256, not {self.workgroup}")


def _build(context: GroupContext) -> BuiltKernel:
    """Build the kernel of a map group."""
    output = context.group.output
    layout, shape = output.layout, output.shape
    axes = layout.physical_axes(shape)
    elements = ix.product([size for _, size in axes])
    lanes = 4 if output.dtype.itemsize <= 4 else 1
    threads = ix.ceildiv(elements, lanes)
    wide = context.target.wide_map_threads
    # what runs once is as fast with either, and kernels of one size are shared
    is_wide = wide is not None and (context.group.constant or ix.bounds(threads)[1] >= wide)
    config = MapConfig(lanes, min(LARGE_WORKGROUP if is_wide else WORKGROUP, context.target.max_workgroup_threads))
    thread = ix.coordinate("q", threads)
    flat: Dim = lanes_of(thread) if lanes == 4 else thread
    coordinates = logical_coordinates(axes, flat)
    stores = []
    for each in context.group.outputs:
        value = (
            context.operands.evaluate(each.producer, coordinates)
            if each.producer
            else context.operands.load(each, coordinates)
        )
        value = _zero_padding(value, coordinates, shape, axes)
        # The position is `flat` itself: arithmetic cannot always put it together again from symbolic coordinates.
        # The last thread may compute up to three elements past the end: buffers are padded to 16 bytes.
        stores.append(context.results.store_at(flat, value, each))
    hook = Hook("store", ("q",), lanes, (), None, tuple(stores))
    work = sum(1 for store in stores for node in ex.walk(store.value) if node.args)
    return context.built(
        Draft(
            "map",
            config,
            [hook],
            dims={"threads": threads},
            threads=config.workgroup,
            grid=linear_grid(threads, config.workgroup, context.target),
            rounds=0,
            flops=ix.multiply(elements, work),
        )
    )


def _zero_padding(
    value: Expr, coordinates: tuple[Dim, ...], shape: tuple[Dim, ...], axes: list[tuple[int, Dim]]
) -> Expr:
    """Return ``value`` guarded to be zero in the padding of a weight."""
    inside = ex.const(True, "bool")
    for axis, stored in axes:
        if stored != shape[axis]:
            condition = ex.in_range(coordinates[axis], 0, shape[axis])
            inside = ex.binary("and", condition, inside)
    return ex.guard(inside, value, ex.const(0, value.dtype))


class Map(KernelFamily):
    """Elementwise operators and views, and what goes through tiles because it reads along one axis and writes along
    another."""

    name = "map"
    stores_halves = True
    stores_once = True

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return compute_map(node, by_position(node, operands), sizes)

    def build(self, context: GroupContext) -> BuiltKernel:
        if context.group.updates:
            return row_update.build(context)
        transposed = transpose.find_transposed_load(context)
        return _build(context) if transposed is None else transpose.build(context, transposed)

    def can_store(self, context: GroupContext, dtype: DType) -> bool:
        """Return whether the kernel can store ``dtype``: only transposing tiles cannot, unless they store a weight."""
        return context.group.constant or transpose.find_transposed_load(context) is None


MAP = register_family(Map())
