"""Products by Winograd's filtering, transformed to pixels: four channels of a tile a thread, with a fused epilogue."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...codegen.spec import Hook
from ...ir.coordinates import Sizes
from ...ir.graph import Node, Shape, Value
from ...ir.layout import Layout, channels_last
from ...ops.internal.winograd import WinogradOutputAttributes, output_array
from ...ops.math.winograd import transform
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.lanes import LANES
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..family import KernelFamily, register_family
from ..geometry import lanes_of, linear_grid
from ..groups import Region
from .winograd_input import WinogradConfig, tile_hooks


def _build(context: GroupContext) -> BuiltKernel:
    """Build the kernel: bias, residual and activation are parts of its stores."""
    node = context.anchor
    attributes: WinogradOutputAttributes = node.attributes
    value, result = node.operand(0), node.output
    matrices = transform(attributes.outputs)
    channels, count = ix.floordiv(result.shape[1], LANES), value.shape[1]
    vector, tile = ix.coordinate("vector", channels), ix.coordinate("tile", count)
    load = context.operands.read(value, (ix.coordinate("point", value.shape[0]), tile, lanes_of(vector)))
    stores = context.results.stores(_stored(node), ex.register("value", "f32"))
    parameters = ("image", "vector", "row", "column")
    hooks = [
        *tile_hooks(attributes, attributes.images, count),
        Hook("load", ("point", "tile", "vector"), LANES, (), load),
        Hook("store", parameters, LANES, (("value", "vec4<f32>"),), None, stores),
    ]
    config = WinogradConfig(attributes.outputs)
    threads = ix.multiply(count, channels)
    height, width = result.shape[2:]
    return context.built(
        Draft(
            "winograd_output",
            config,
            hooks,
            dims={"threads": threads, "vectors": channels, "height": height, "width": width},
            threads=config.workgroup,
            grid=linear_grid(threads, config.workgroup, context.target),
            rounds=64,
            flops=ix.product([threads, LANES, 2, matrices.outputs, matrices.size, matrices.size + matrices.outputs]),
            parameters={"matrix": matrices.result, "size": matrices.size},
        )
    )


def _stored(anchor: Node) -> Shape:
    """Return the coordinates of four channels of a pixel."""
    images, channels, *sizes = anchor.output.shape
    coordinates = (ix.coordinate(name, size) for name, size in zip(("row", "column"), sizes, strict=True))
    vector = ix.coordinate("vector", ix.floordiv(channels, LANES))
    return ix.coordinate("image", images), lanes_of(vector), *coordinates


class WinogradOutput(KernelFamily):
    """``loom.WinogradOutput``."""

    name = "winograd_output"

    def preferred_axes(self, region: Region) -> list[tuple[Value, int]]:
        """Return the channels of the input as the axis to store innermost."""
        return [(region.anchor.operand(0), 2)]

    def output_layout(self, node: Node) -> Layout:
        return channels_last(node.output.rank)

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return output_array(operands[0], node.attributes)

    def stored_run(self, context: GroupContext) -> Shape | None:
        return _stored(context.anchor)

    def build(self, context: GroupContext) -> BuiltKernel:
        return _build(context)


register_family(WinogradOutput())
