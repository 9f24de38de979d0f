"""Convolutions with one input channel a group: four output channels and several neighbouring columns a thread."""

from __future__ import annotations

import math

from ...codegen.spec import Hook
from ...ir.graph import Node, Shape
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.lanes import LANES
from ...symbolic.polynomial import Dim
from ...tuning.config_choice import problem_key
from ...tuning.depthwise_tiles import DepthwiseProblem, DepthwiseTile, Extent, ThreadTile, depthwise_tiles
from ..config_key import extent, window_of
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..geometry import lanes_of, unflatten
from ..padded import read_padded
from .product import column, divides

#: Taps along the last axis that a kernel writes out.  A window longer than this (a Fourier transform or a filter bank
#: exported as a convolution has 500 to 2,000) would be a shader on which drivers compile for minutes.
MOST_TAPS = 32


def suits(anchor: Node) -> bool:
    """Return whether every group has one input channel of floats, and windows are short."""
    weight, output = anchor.operand(1), anchor.output
    if output.dtype.compute != "f32" or weight.shape[1] != 1 or not ix.always_less(1, output.shape[1]):
        return False
    return bool(anchor.attributes.kernel[-1] <= MOST_TAPS)


def applies(context: GroupContext) -> bool:
    """Return whether the kernel suits the group's convolution, and packed results fill words of their own."""
    if not suits(context.anchor):
        return False
    if context.group.output.dtype.packing == 1:
        return True
    run = stored_run(context.anchor)
    return run is not None and context.results.is_run(run)


def stored_run(anchor: Node) -> Shape | None:
    """Return the coordinates of four neighbouring channels of the result; None where some vectors are not whole."""
    return _stored(anchor) if divides(LANES, anchor.output.shape[1]) else None


def _stored(anchor: Node) -> Shape:
    images, channels, *sizes = anchor.output.shape
    outputs = (ix.coordinate(f"output_{axis}", size) for axis, size in enumerate(sizes))
    return ix.coordinate("image", images), lanes_of(ix.coordinate("channel", ix.ceildiv(channels, LANES))), *outputs


def build(context: GroupContext) -> BuiltKernel:
    """Return the kernel of a convolution to which it :func:`applies`."""
    attributes, result = context.anchor.attributes, context.anchor.output
    kernel, strides, dilations = attributes.kernel, attributes.strides, attributes.dilations
    channels, width = result.shape[1], result.shape[-1]
    vectors = ix.ceildiv(channels, LANES)
    tile = _choose(context, vectors)
    tiles = ix.ceildiv(width, tile.columns)
    line_sizes = _line_sizes(result.shape, tile.rows)
    lines = ix.product(list(line_sizes))
    written_out = tile.rows > 1 or context.target.prefers_written_out_loops
    return context.built(
        Draft(
            "depthwise" if tile.rows == 1 else "depthwise_rows",
            ThreadTile(tile.rows, tile.columns),
            [*_line_hooks(line_sizes, lines), *_element_hooks(context, tile)],
            dims={
                "vectors": vectors,
                "lines": lines,
                "tiles": tiles,
                "width": width,
                "height": result.shape[-2],
                "shift": tile.across.bit_length() - 1,
                "down": tile.down,
            },
            threads=tile.threads,
            grid=(ix.ceildiv(vectors, tile.across), ix.ceildiv(ix.multiply(lines, tiles), tile.down), 1),
            rounds=2 * math.prod(kernel),
            flops=ix.product([2, *kernel, channels, result.shape[0], *result.shape[2:]]),
            parameters={
                "type": "vec4<f32>",
                "axes": len(kernel),
                "kernel": kernel,
                "strides": strides,
                "dilations": dilations,
                "begins": attributes.pads[: len(kernel)],
                "needed": _needed(tile.columns, kernel[-1], strides[-1], dilations[-1]),
                "written_out": written_out,
                "hides_bounds": context.target.inlines_uniforms,
                "whole_tiles": tile.rows > 1 and divides(tile.columns, width),
                "needed_rows": _needed(tile.rows, *(sizes[len(kernel) - 2] for sizes in (kernel, strides, dilations))),
                "whole_rows": divides(tile.rows, result.shape[-2]),
            },
        )
    )


def _line_sizes(shape: Shape, rows: int) -> tuple[Dim, ...]:
    """Return the sizes of the axes that lines of columns are counted along; a tile may cover ``rows`` image lines."""
    return (shape[0], *shape[2:-1]) if rows == 1 else (shape[0], ix.ceildiv(shape[2], rows))


def _choose(context: GroupContext, vectors: Dim) -> DepthwiseTile:
    """Choose the tile for the sizes of the convolution."""
    node, attributes = context.anchor, context.anchor.attributes
    result = node.output
    lines = ix.product(list(_line_sizes(result.shape, 1)))
    extents = [
        Extent(ix.bounds(size)[1], *window)
        for size, *window in zip(
            result.shape[2:], attributes.kernel, attributes.strides, attributes.dilations, strict=True
        )
    ]
    rows = extents[0] if len(extents) == 2 else None
    work = DepthwiseProblem(ix.bounds(vectors)[1], ix.bounds(lines)[1], extents[-1], rows)
    key = problem_key(
        "depthwise",
        vectors=extent(vectors),
        lines=extent(lines),
        width=extent(result.shape[-1]),
        window=window_of(attributes),
        multiplier=extent(ix.floordiv(result.shape[1], attributes.group)),
        a=node.operand(0).dtype.name,
        b=node.operand(1).dtype.name,
        y=context.group.output.dtype.name,
        epilogue=len(context.group.nodes) - 1,
    )
    return context.choose(key, depthwise_tiles(work, context.target))


def _element_hooks(context: GroupContext, tile: DepthwiseTile) -> list[Hook]:
    """Return the hooks for four channels of an input element, of a tap, and of a result."""
    node, attributes = context.anchor, context.anchor.attributes
    value, weight, result = node.operand(0), node.operand(1), node.output
    last, channels = len(attributes.kernel) - 1, result.shape[1]
    vector = column(ix.ceildiv(channels, LANES), channels, "channel")
    inputs = [
        ix.variable(f"input_{axis}", -attributes.pads[axis], ix.bounds(size)[1] + attributes.pads[last + 1 + axis] - 1)
        for axis, size in enumerate(value.shape[2:])
    ]
    for axis, results in ((last, tile.columns), (last - 1, tile.rows)):
        if results > 1 and not divides(results, result.shape[2 + axis]):
            # the last tile reaches beyond the padded input
            inputs[axis] = ix.variable(f"input_{axis}", -attributes.pads[axis], ix.UNBOUNDED // 2)
    taps = [ix.variable(f"tap_{axis}", 0, size - 1) for axis, size in enumerate(attributes.kernel)]
    channel = ix.floordiv(vector, ix.floordiv(channels, attributes.group))
    load_x = read_padded(context, value, ix.coordinate("image", result.shape[0]), channel, inputs)
    load_w = context.operands.read(weight, (vector, 0, *taps))
    stored = _stored(node)
    condition = None if divides(LANES, channels) else ex.in_range(stored[1], 0, channels)
    stores = context.results.stores(stored, ex.register("value", "f32"), condition)

    def names(side: str) -> tuple[str, ...]:
        return tuple(f"{side}_{axis}" for axis in range(last + 1))

    return [
        Hook("load_x", ("image", "channel", *names("input")), LANES, (), load_x),
        Hook("load_w", ("channel", *names("tap")), LANES, (), load_w),
        Hook("store", ("image", "channel", *names("output")), LANES, (("value", "vec4<f32>"),), None, stores),
    ]


def _needed(results: int, kernel: int, stride: int, dilation: int) -> tuple[int, ...]:
    """Return the distances from the first input of ``results`` neighbouring windows to every input of theirs."""
    return tuple(sorted({at * stride + tap * dilation for at in range(results) for tap in range(kernel)}))


def _line_hooks(sizes: tuple[Dim, ...], lines: Dim) -> list[Hook]:
    image, *positions = unflatten(ix.coordinate("line", lines), sizes)
    hooks = [Hook("line_image", ("line",), 1, (), ex.coordinate(image))]
    for axis, position in enumerate(positions):
        hooks.append(Hook(f"line_position_{axis}", ("line",), 1, (), ex.coordinate(position)))
    return hooks
