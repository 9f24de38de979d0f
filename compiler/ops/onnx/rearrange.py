"""Fixed rearrangements of axes: DepthToSpace, SpaceToDepth, ReverseSequence."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.record import record
from ...ir.graph import Node
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..registry import Inferred, Read, register

# -- blocks of pixels as channels ------------------------------------------------------------------------------------


@record
class BlockAttributes:
    """``mode`` orders the channels of the deep tensor: DCR (block row, block column, channel), CRD (channel first)."""

    blocksize: int = 1
    mode: str = "DCR"


def _check_image(node: Node) -> None:
    value, attributes = node.operand(0), node.attributes
    checks.require(value.rank == 4, node, f"{node.op} needs rank 4, not {value.rank}")
    checks.require(attributes.blocksize > 0, node, f"a block of {attributes.blocksize} pixels")
    checks.require_choice(node, "mode", ("DCR", "CRD"))


def _exactly(node: Node, size: Dim, divisor: int) -> Dim:
    quotient = ix.divide(size, divisor)
    checks.require(quotient is not None, node, f"{ix.text(size)} is not a multiple of {divisor}")
    assert quotient is not None
    return quotient


def _to_deep(attributes: BlockAttributes, channels: Dim, coordinates: Sequence[Dim]) -> tuple[Dim, ...]:
    """Map coordinates of the wide tensor to those of the deep one; ``channels`` are those of the wide tensor."""
    block = attributes.blocksize
    image, channel, row, column = coordinates
    row_in_block, column_in_block = ix.modulo(row, block), ix.modulo(column, block)
    in_block = ix.add(ix.multiply(row_in_block, block), column_in_block)
    if attributes.mode == "DCR":
        deep = ix.add(ix.multiply(in_block, channels), channel)
    else:
        deep = ix.add(ix.multiply(channel, block * block), in_block)
    return image, deep, ix.floordiv(row, block), ix.floordiv(column, block)


def _to_wide(attributes: BlockAttributes, channels: Dim, coordinates: Sequence[Dim]) -> tuple[Dim, ...]:
    """Map coordinates of the deep tensor to those of the wide one, as the inverse of :func:`_to_deep`."""
    block = attributes.blocksize
    image, deep, row, column = coordinates
    if attributes.mode == "DCR":
        in_block, channel = ix.floordiv(deep, channels), ix.modulo(deep, channels)
    else:
        in_block, channel = ix.modulo(deep, block * block), ix.floordiv(deep, block * block)
    return (
        image,
        channel,
        ix.add(ix.multiply(row, block), ix.floordiv(in_block, block)),
        ix.add(ix.multiply(column, block), ix.modulo(in_block, block)),
    )


def _infer_depth_to_space(node: Node) -> Inferred:
    _check_image(node)
    value, block = node.operand(0), node.attributes.blocksize
    images, channels, height, width = value.shape
    wide = _exactly(node, channels, block * block)
    return [(value.dtype, (images, wide, ix.multiply(height, block), ix.multiply(width, block)))]


def _read_depth_to_space(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    return read(0, _to_deep(node.attributes, node.output.shape[1], coordinates))


def _store_depth_to_space(node: Node, coordinates: Sequence[Dim]) -> Sequence[Dim]:
    return _to_wide(node.attributes, node.output.shape[1], coordinates)


register(
    name="DepthToSpace",
    attributes=BlockAttributes,
    infer=_infer_depth_to_space,
    gather=_read_depth_to_space,
    store_map=_store_depth_to_space,
)


def _infer_space_to_depth(node: Node) -> Inferred:
    _check_image(node)
    value, block = node.operand(0), node.attributes.blocksize
    images, channels, height, width = value.shape
    deep = ix.multiply(channels, block * block)
    return [(value.dtype, (images, deep, _exactly(node, height, block), _exactly(node, width, block)))]


def _read_space_to_depth(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    return read(0, _to_wide(node.attributes, node.operand(0).shape[1], coordinates))


def _store_space_to_depth(node: Node, coordinates: Sequence[Dim]) -> Sequence[Dim]:
    return _to_deep(node.attributes, node.operand(0).shape[1], coordinates)


register(
    name="SpaceToDepth",
    attributes=BlockAttributes,
    infer=_infer_space_to_depth,
    gather=_read_space_to_depth,
    store_map=_store_space_to_depth,
)


# -- ReverseSequence -------------------------------------------------------------------------------------------------


@record
class ReverseSequenceAttributes:
    batch_axis: int = 1
    time_axis: int = 0


def _sequence_axes(node: Node) -> tuple[int, int]:
    rank = node.operand(0).rank
    attributes: ReverseSequenceAttributes = node.attributes
    batch, time = checks.normalise_axes(node, (attributes.batch_axis, attributes.time_axis), rank)
    return batch, time


def _infer_reverse_sequence(node: Node) -> Inferred:
    value, lengths = node.operand(0), node.operand(1)
    checks.require(value.rank >= 2, node, f"ReverseSequence needs rank 2 or more, not {value.rank}")
    batch, _ = _sequence_axes(node)
    fits = lengths.rank == 1 and ix.equal(lengths.shape[0], value.shape[batch])
    checks.require(fits, node, f"lengths of shape {checks.describe_shape(lengths.shape)} for batch axis {batch}")
    return [(value.dtype, value.shape)]


def _read_reversed(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    """Read a sequence backwards within its length; elements after it stay in place."""
    batch, time = _sequence_axes(node)
    length = ex.cast(read(1, [coordinates[batch]]), "i32")
    here = ex.coordinate(coordinates[time])
    mirrored = length - ex.coordinate(ix.add(coordinates[time], 1))
    source = ex.select(ex.compare("lt", here, length), mirrored, here)
    last = ix.add(node.operand(0).shape[time], -1)
    clamped = ex.binary("min", ex.binary("max", source, ex.const(0, "i32")), ex.coordinate(last))
    index = ex.as_index(clamped, 0, max(ix.bounds(last)[1], 0))
    return read(0, [index if axis == time else at for axis, at in enumerate(coordinates)])


register(
    name="ReverseSequence",
    attributes=ReverseSequenceAttributes,
    infer=_infer_reverse_sequence,
    gather=_read_reversed,
    types=(checks.MOVED, checks.INDICES),
    reads=2,
)
