"""Tiles of an image, transformed for products by Winograd's filtering: four channels of a tile a thread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.record import record
from ...codegen.spec import Hook
from ...ir.coordinates import Sizes
from ...ir.graph import Node, Shape, Value
from ...ops.internal.winograd import WinogradInputAttributes, WinogradOutputAttributes, grid, input_array
from ...ops.math.winograd import transform
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.lanes import LANES
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..family import KernelFamily, Reuse, register_family
from ..geometry import lanes_of, linear_grid, unflatten
from ..groups import Region
from ..padded import read_padded


@record
class WinogradConfig:
    """``outputs`` results of a tile along each axis."""

    outputs: int
    workgroup: int = 64

    def __post_init__(self) -> None:
        if not 1 <= self.workgroup <= 256:
            raise ValueError(f"workgroup must be 1 to 256, not {self.workgroup}")


def _build(context: GroupContext) -> BuiltKernel:
    """Build the kernel: elementwise producers are parts of its loads, and it stores through its epilogue."""
    node = context.anchor
    attributes: WinogradInputAttributes = node.attributes
    value, result = node.operand(0), node.output
    matrices = transform(attributes.outputs)
    channels, count = ix.floordiv(value.shape[1], LANES), result.shape[1]
    vector = ix.coordinate("vector", channels)
    positions = [
        ix.variable(name, -begin, number * attributes.outputs - begin + matrices.size - attributes.outputs - 1)
        for name, begin, number in zip(("row", "column"), attributes.begins, grid(attributes), strict=True)
    ]
    load = read_padded(context, value, ix.coordinate("image", value.shape[0]), lanes_of(vector), positions)
    stores = context.results.stores(_stored(node), ex.register("value", "f32"))
    hooks = [
        *tile_hooks(attributes, value.shape[0], count),
        Hook("load", ("image", "vector", "row", "column"), LANES, (), load),
        Hook("store", ("point", "tile", "vector"), LANES, (("value", "vec4<f32>"),), None, stores),
    ]
    config = WinogradConfig(attributes.outputs)
    threads = ix.multiply(count, channels)
    return context.built(
        Draft(
            "winograd_input",
            config,
            hooks,
            dims={"threads": threads, "vectors": channels},
            threads=config.workgroup,
            grid=linear_grid(threads, config.workgroup, context.target),
            rounds=64,
            flops=ix.product([threads, LANES, 4, matrices.size**3]),
            parameters={"matrix": matrices.data, "size": matrices.size, "begins": attributes.begins},
        )
    )


def _stored(anchor: Node) -> Shape:
    """Return the coordinates of four channels of a point of a tile."""
    points, tiles, channels = anchor.output.shape
    vector = ix.coordinate("vector", ix.floordiv(channels, LANES))
    return ix.coordinate("point", points), ix.coordinate("tile", tiles), lanes_of(vector)


def tile_hooks(
    attributes: WinogradInputAttributes | WinogradOutputAttributes, images: ix.Dim, count: ix.Dim
) -> list[Hook]:
    """Return the hooks that compute image, row and column of a tile from its index."""
    coordinates = unflatten(ix.coordinate("tile", count), (images, *grid(attributes)))
    return [
        Hook(f"tile_{name}", ("tile",), 1, (), ex.coordinate(coordinate))
        for name, coordinate in zip(("image", "row", "column"), coordinates, strict=True)
    ]


class WinogradInput(KernelFamily):
    """``loom.WinogradInput``."""

    name = "winograd_input"

    def reuse(self, region: Region, user: Node, operand: Value) -> Reuse:
        """Return ``FEW``: tiles overlap."""
        return Reuse.FEW

    def preferred_axes(self, region: Region) -> list[tuple[Value, int]]:
        """Return the channels of the input as the axis to store innermost."""
        return [(region.anchor.operand(0), 1)]

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return input_array(operands[0], node.attributes)

    def stored_run(self, context: GroupContext) -> Shape | None:
        return _stored(context.anchor)

    def build(self, context: GroupContext) -> BuiltKernel:
        return _build(context)


register_family(WinogradInput())
