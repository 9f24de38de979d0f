"""Parts of tensors and tensors made of parts: Slice, Split, Concat, Tile.

Slice and Split expand to the internal ``StridedSlice``, whose bounds are resolved: one first coordinate, one step and
one size for each axis.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.errors import NotKnownError, ShapeError
from ....runtime.plan.record import record
from ...ir.graph import Node, Shape, Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..registry import Axes, Builder, Inferred, RawNode, Read, register
from .integers_ahead import is_open, split_slice

# -- slices ----------------------------------------------------------------------------------------------------------


@record
class StridedSliceAttributes:
    """Output coordinate ``c`` of an axis reads input coordinate ``start + c * step``; all of them are in range."""

    starts: tuple[Dim, ...]
    steps: tuple[int, ...]
    sizes: tuple[Dim, ...]


def _read_strided(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    attributes: StridedSliceAttributes = node.attributes
    return read(
        0,
        [
            ix.add(start, ix.multiply(coordinate, step))
            for start, step, coordinate in zip(attributes.starts, attributes.steps, coordinates)
        ],
    )


def _fold_strided(node: Node, data: np.ndarray) -> np.ndarray:
    attributes: StridedSliceAttributes = node.attributes
    for axis, (start, step, size) in enumerate(zip(attributes.starts, attributes.steps, attributes.sizes)):
        data = data.take(ix.number(start) + step * np.arange(ix.number(size)), axis)
    return data


register(
    name="StridedSlice",
    domain="loom",
    attributes=StridedSliceAttributes,
    infer=lambda node: [(node.operand(0).dtype, node.attributes.sizes)],
    gather=_read_strided,
    fold=_fold_strided,
)


def _from_the_front(bound: Dim, size: Dim) -> Dim:
    """Return a bound of an axis of ``size``, of which a negative one counts from the end."""
    is_negative = ix.multiply(ix.maximum(ix.minimum(bound, 0), -1), -1)
    return ix.add(bound, ix.multiply(size, is_negative))


def resolve_slice(size: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """Return first coordinate and number of elements of ``[start:end:step]`` of an axis, clamped by ONNX's rules."""
    start, end = (_from_the_front(bound, size) for bound in (start, end))
    if step > 0:
        end = ix.minimum(ix.maximum(end, 0), size)
        # end - clamp(start), the clamp drawn out of the difference: [-2:] is min(2, size) elements long
        beyond = ix.add(end, ix.multiply(size, -1))
        distance = ix.maximum(ix.minimum(ix.add(end, ix.multiply(start, -1)), end), beyond)
        start = ix.minimum(ix.maximum(start, 0), size)
        length = ix.ceildiv(distance, step)
    else:
        last = ix.add(size, -1)
        start = ix.minimum(ix.maximum(start, 0), last)
        end = ix.minimum(ix.maximum(end, -1), last)
        length = ix.ceildiv(ix.add(start, ix.multiply(end, -1)), -step)
    return start, ix.maximum(length, 0)


def _slice_axes(node: Node) -> StridedSliceAttributes:
    shape = node.operand(0).shape
    begins, ends = (checks.static_dims(node, position, "bounds of Slice") for position in (1, 2))
    axes: Sequence[int] = range(len(begins))
    if node.optional(3) is not None:
        axes = checks.static_integers(node, 3, "axes of Slice")
    axes = checks.normalise_axes(node, axes, len(shape))
    strides = [1] * len(axes)
    if node.optional(4) is not None:
        if any(isinstance(step, ix.Index) for step in checks.static_dims(node, 4, "steps of Slice")):
            raise NotKnownError("steps of Slice must be known at compile time", origin=node.origin)
        strides = checks.static_integers(node, 4, "steps of Slice")
    lengths = {len(begins), len(ends), len(axes), len(strides)}
    checks.require(len(lengths) == 1, node, "starts, ends, axes and steps of Slice differ in number")
    starts: list[Dim] = [0] * len(shape)
    steps = [1] * len(shape)
    sizes = list(shape)
    for axis, start, end, step in zip(axes, begins, ends, strides):
        checks.require(step != 0, node, "a step of Slice is 0")
        # No axis on the device is longer, and steps enter 32-bit arithmetic.
        step = max(min(step, ix.UNBOUNDED - 1), -ix.UNBOUNDED + 1)
        starts[axis], sizes[axis] = resolve_slice(shape[axis], start, end, step)
        steps[axis] = 1 if checks.is_size(sizes[axis], 1) else step
    return StridedSliceAttributes(tuple(starts), tuple(steps), tuple(sizes))


def _infer_slice(node: Node) -> Inferred:
    return [(node.operand(0).dtype, _slice_axes(node).sizes)]


def _expand_slice(builder: Builder, node: Node) -> Sequence[Value]:
    return [_strided(builder, node.operand(0), _slice_axes(node))]


def _strided(builder: Builder, value: Value, bounds: StridedSliceAttributes) -> Value:
    if bounds.sizes == value.shape and all(step == 1 for step in bounds.steps):
        return value
    return builder.op(
        "StridedSlice", value, domain="loom", starts=bounds.starts, steps=bounds.steps, sizes=bounds.sizes
    )


def _fold_slice(node: Node, data: np.ndarray, *_: np.ndarray) -> np.ndarray:
    bounds = _slice_axes(node)
    return _fold_strided(Node(0, "StridedSlice", "loom", [], bounds, ()), data)


def _slice_to_inputs(raw: RawNode) -> None:
    """Replace the bounds of version 1, which are attributes, by inputs."""
    for position, name in enumerate(("starts", "ends", "axes"), 1):
        checks.attribute_to_input(name, position)(raw)


register(
    name="Slice",
    infer=_infer_slice,
    expand=_expand_slice,
    fold=_fold_slice,
    static_inputs=(1, 2, 3, 4),
    negative_inputs=(1, 2),
    bounded_inputs=(1, 2),
    axes=Axes(3),
    split_ahead=split_slice,
    is_split_ahead=lambda operands, attributes: len(operands) > 4 and is_open(operands[4]),
    adapters=((1, _slice_to_inputs),),
)


@record
class SplitAttributes:
    axis: int = 0
    num_outputs: int | None = None


def _split_sizes(node: Node) -> tuple[int, list[Dim]]:
    """Return the axis, and the size of each part along it.

    With the attribute ``num_outputs`` only the last part may be smaller.
    """
    value = node.operand(0)
    axis = checks.normalise_axis(node, node.attributes.axis, value.rank)
    size = value.shape[axis]
    if node.optional(1) is not None:
        sizes = checks.static_dims(node, 1, "sizes of Split")
        total: Dim = 0
        for part in sizes:
            total = ix.add(total, part)
        parts = ", ".join(map(ix.text, sizes))
        checks.require_equal(node, total, size, f"parts of sizes {parts} do not make up {ix.text(size)}")
        return axis, sizes
    number = node.attributes.num_outputs
    checks.require(number is not None and number > 0, node, "Split has neither sizes nor a number of parts")
    exact = ix.divide(size, number)
    part = ix.ceildiv(size, number) if exact is None else exact
    last = ix.add(size, ix.multiply(part, 1 - number))
    checks.require(not ix.less(last, 0), node, f"{ix.text(size)} does not split into {number} parts")
    return axis, [part] * (number - 1) + [last]


def _infer_split(node: Node) -> Inferred:
    value = node.operand(0)
    axis, sizes = _split_sizes(node)
    return [(value.dtype, (*value.shape[:axis], size, *value.shape[axis + 1 :])) for size in sizes]


def _expand_split(builder: Builder, node: Node) -> Sequence[Value]:
    value = node.operand(0)
    axis, sizes = _split_sizes(node)
    results = []
    start: Dim = 0
    for size in sizes:
        starts = tuple(start if at == axis else 0 for at in range(value.rank))
        shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
        results.append(_strided(builder, value, StridedSliceAttributes(starts, (1,) * value.rank, shape)))
        start = ix.add(start, size)
    return results


def _fold_split(node: Node, data: np.ndarray, *_: np.ndarray) -> list[np.ndarray]:
    axis, sizes = _split_sizes(node)
    ends = np.cumsum([checks.concrete(node, size, "a size") for size in sizes])
    return np.split(data, ends[:-1], axis)


def _number_of_outputs(raw: RawNode) -> None:
    """Set ``num_outputs`` to the number of outputs: equal parts, the rule before version 18.

    Version 18 requires the number or the sizes; models without either exist, and onnxruntime accepts them.
    """
    if "num_outputs" not in raw.attributes and (len(raw.inputs) < 2 or not raw.inputs[1]):
        raw.attributes["num_outputs"] = len(raw.outputs)


register(
    name="Split",
    attributes=SplitAttributes,
    infer=_infer_split,
    expand=_expand_split,
    fold=_fold_split,
    static_inputs=(1,),
    adapters=((11, checks.attribute_to_input("split", 1)), (18, _number_of_outputs)),
)


# -- concatenation and repetition ------------------------------------------------------------------------------------


@record
class ConcatAttributes:
    axis: int = 0


def _concat_axis(node: Node) -> int:
    return checks.normalise_axis(node, node.attributes.axis, node.operand(0).rank)


def _infer_concat(node: Node) -> Inferred:
    values = [node.operand(position) for position in range(len(node.inputs))]
    checks.require_same_type(node, values)
    first = values[0]
    axis = _concat_axis(node)
    total: Dim = 0
    for value in values:
        fits = value.rank == first.rank and all(
            ix.equal(size, other) for at, (size, other) in enumerate(zip(value.shape, first.shape)) if at != axis
        )
        if not fits:
            shapes = " and ".join(checks.describe_shape(value.shape) for value in values)
            raise ShapeError(f"shapes {shapes} do not join along axis {axis}", origin=node.origin)
        total = ix.add(total, value.shape[axis])
    return [(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :]))]


def _read_concatenated(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    """Read through a chain of guards, one per input: each input is read only where the coordinate falls into it."""
    axis = _concat_axis(node)
    coordinate = coordinates[axis]
    result = checks.literal(0, node.output.dtype)
    start: Dim = 0
    for position in range(len(node.inputs)):
        size = node.operand(position).shape[axis]
        end = ix.add(start, size)
        if not checks.is_size(size, 0):
            inner = ix.add(coordinate, ix.multiply(start, -1))
            element = read(position, [*coordinates[:axis], inner, *coordinates[axis + 1 :]])
            result = ex.guard(ex.in_range(coordinate, start, end), element, result)
        start = end
    return result


register(
    name="Concat",
    attributes=ConcatAttributes,
    infer=_infer_concat,
    gather=_read_concatenated,
    fold=lambda node, *parts: np.concatenate(parts, _concat_axis(node)),
)


def _infer_tile(node: Node) -> Inferred:
    value = node.operand(0)
    repeats = checks.static_dims(node, 1, "repeats of Tile")
    checks.require(len(repeats) == value.rank, node, f"{len(repeats)} repeats for rank {value.rank}")
    return [(value.dtype, tuple(ix.multiply(size, repeat) for size, repeat in zip(value.shape, repeats)))]


def _read_tiled(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    shape: Shape = node.operand(0).shape
    repeated = zip(coordinates, shape, node.output.shape)
    return read(0, [at if size == total else ix.modulo(at, size) for at, size, total in repeated])


def _fold_tile(node: Node, data: np.ndarray, repeats: np.ndarray) -> np.ndarray:
    return np.tile(data, [checks.concrete(node, repeat, "a repeat") for repeat in repeats.reshape(-1)])


register(
    name="Tile",
    infer=_infer_tile,
    gather=_read_tiled,
    fold=_fold_tile,
    static_inputs=(1,),
)
