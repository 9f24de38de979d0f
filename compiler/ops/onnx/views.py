"""Views that move no element relative to its neighbours in the iteration: change of shape, transposition, broadcasting.

Every operator here is a ``gather`` of exactly one element.  Those that use each input element exactly once have a
``store_map`` too, the inverse of the gather, so that a producer can store straight into the view's result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.plan.errors import NotKnownError, ShapeError
from ....runtime.plan.record import record
from ...ir.graph import Node, Shape
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..math.regroup import broadcast_coordinates, reindex
from ..registry import Axes, Inferred, Read, register
from .integers_ahead import is_reshaped_ahead, split_reshape

# -- changes of shape ------------------------------------------------------------------------------------------------


def _read_reshaped(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    return read(0, reindex(coordinates, node.output.shape, node.operand(0).shape))


def _store_reshaped(node: Node, coordinates: Sequence[Dim]) -> Sequence[Dim]:
    return reindex(coordinates, node.operand(0).shape, node.output.shape)


def reshaped_dims(node: Node, shape: Shape, wanted: Sequence[Dim], allow_zero: bool) -> Shape:
    """Return the shape of a Reshape to ``wanted``.

    0 copies a size (unless ``allow_zero``), -1 takes the remaining elements.
    """
    dims = list(wanted)
    if not allow_zero:
        for axis, size in enumerate(dims):
            if checks.is_size(size, 0):
                checks.require(axis < len(shape), node, f"size 0 at axis {axis} copies an axis that is not there")
                dims[axis] = shape[axis]
    unknown = [axis for axis, size in enumerate(dims) if checks.is_size(size, -1)]
    checks.require(len(unknown) <= 1, node, "more than one size is -1")
    elements = ix.product(shape)
    if unknown:
        others = ix.product([size for axis, size in enumerate(dims) if axis != unknown[0]])
        checks.require(not checks.is_size(others, 0), node, "size -1 beside a size of 0 has no single answer")
        quotient = ix.divide(elements, others)
        if quotient is None:
            text = checks.describe_shape(shape)
            fault = NotKnownError if isinstance(others, ix.Index) else ShapeError
            raise fault(f"{text} does not divide into groups of {ix.text(others)} elements", origin=node.origin)
        dims[unknown[0]] = quotient
    checks.require_equal(
        node,
        ix.product(dims),
        elements,
        f"{checks.describe_shape(shape)} does not reshape to {checks.describe_shape(tuple(dims))}",
    )
    return tuple(dims)


@record
class ReshapeAttributes:
    allowzero: int = 0


def _infer_reshape(node: Node) -> Inferred:
    value = node.operand(0)
    wanted = checks.static_dims(node, 1, "the shape of Reshape")
    return [(value.dtype, reshaped_dims(node, value.shape, wanted, bool(node.attributes.allowzero)))]


def _fold_to_output_shape(node: Node, data: np.ndarray, *_: Any) -> np.ndarray:
    """Reshape the elements, in row-major order, to the inferred shape, which known data makes concrete."""
    return data.reshape([checks.concrete(node, size, "a size") for size in node.output.shape])


register(
    name="Reshape",
    attributes=ReshapeAttributes,
    infer=_infer_reshape,
    gather=_read_reshaped,
    store_map=_store_reshaped,
    fold=_fold_to_output_shape,
    static_inputs=(1,),
    split_ahead=split_reshape,
    is_split_ahead=is_reshaped_ahead,
)


@record
class FlattenAttributes:
    axis: int = 1


def _infer_flatten(node: Node) -> Inferred:
    value = node.operand(0)
    axis = node.attributes.axis
    checks.require(-value.rank <= axis <= value.rank, node, f"axis {axis} is out of range for rank {value.rank}")
    axis = axis + value.rank if axis < 0 else axis
    return [(value.dtype, (ix.product(value.shape[:axis]), ix.product(value.shape[axis:])))]


register(
    name="Flatten",
    attributes=FlattenAttributes,
    infer=_infer_flatten,
    gather=_read_reshaped,
    store_map=_store_reshaped,
    fold=_fold_to_output_shape,
)


_axes_to_input = checks.attribute_to_input("axes", 1)


def _infer_squeeze(node: Node) -> Inferred:
    value = node.operand(0)
    if node.optional(1) is None:
        for size in value.shape:
            low, high = ix.bounds(size)
            checks.require(low == high or not low <= 1 <= high, node, f"whether {ix.text(size)} is 1 must be known")
        dropped = {axis for axis, size in enumerate(value.shape) if checks.is_size(size, 1)}
    else:
        dropped = set(checks.normalise_axes(node, checks.static_integers(node, 1, "the axes"), value.rank))
        for axis in sorted(dropped):
            size = value.shape[axis]
            checks.require(checks.is_size(size, 1), node, f"axis {axis} of size {ix.text(size)} cannot be squeezed")
    return [(value.dtype, tuple(size for axis, size in enumerate(value.shape) if axis not in dropped))]


register(
    name="Squeeze",
    infer=_infer_squeeze,
    gather=_read_reshaped,
    store_map=_store_reshaped,
    fold=_fold_to_output_shape,
    static_inputs=(1,),
    axes=Axes(1),
    adapters=((11, _axes_to_input),),
)


def _infer_unsqueeze(node: Node) -> Inferred:
    value = node.operand(0)
    axes = checks.static_integers(node, 1, "the axes")
    rank = value.rank + len(axes)
    added = set(checks.normalise_axes(node, axes, rank))
    sizes = iter(value.shape)
    return [(value.dtype, tuple(1 if axis in added else next(sizes) for axis in range(rank)))]


register(
    name="Unsqueeze",
    infer=_infer_unsqueeze,
    gather=_read_reshaped,
    store_map=_store_reshaped,
    fold=_fold_to_output_shape,
    static_inputs=(1,),
    axes=Axes(1, added=True),
    adapters=((11, _axes_to_input),),
)


# -- transposition ---------------------------------------------------------------------------------------------------


@record
class TransposeAttributes:
    perm: tuple[int, ...] | None = None


def permutation(node: Node) -> tuple[int, ...]:
    """Return the input axis of each output axis of a Transpose; without the attribute the axes are reversed."""
    rank = node.operand(0).rank
    perm = node.attributes.perm
    if perm is None:
        return tuple(reversed(range(rank)))
    result = tuple(perm)
    checks.require(sorted(result) == list(range(rank)), node, f"{result} is not a permutation of {rank} axes")
    return result


def _infer_transpose(node: Node) -> Inferred:
    value = node.operand(0)
    return [(value.dtype, tuple(value.shape[axis] for axis in permutation(node)))]


def _read_transposed(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    source: list[Dim] = [0] * len(coordinates)
    for axis, coordinate in zip(permutation(node), coordinates):
        source[axis] = coordinate
    return read(0, source)


def _store_transposed(node: Node, coordinates: Sequence[Dim]) -> Sequence[Dim]:
    return tuple(coordinates[axis] for axis in permutation(node))


register(
    name="Transpose",
    attributes=TransposeAttributes,
    infer=_infer_transpose,
    gather=_read_transposed,
    store_map=_store_transposed,
    fold=lambda node, data: data.transpose(permutation(node)),
)


# -- broadcasting ----------------------------------------------------------------------------------------------------


def _infer_expand(node: Node) -> Inferred:
    value = node.operand(0)
    wanted = tuple(checks.static_dims(node, 1, "the shape of Expand"))
    return [(value.dtype, checks.broadcast_shapes(node, [value.shape, wanted]))]


def _read_expanded(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    return read(0, broadcast_coordinates(node.operand(0).shape, coordinates))


def _fold_expand(node: Node, data: np.ndarray, _: np.ndarray) -> np.ndarray:
    return np.broadcast_to(data, [ix.number(size) for size in node.output.shape])


register(
    name="Expand",
    infer=_infer_expand,
    gather=_read_expanded,
    fold=_fold_expand,
    static_inputs=(1,),
)


# -- operators that give their input back ----------------------------------------------------------------------------


def _read_same(_: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    return read(0, coordinates)


def _store_same(_: Node, coordinates: Sequence[Dim]) -> Sequence[Dim]:
    return tuple(coordinates)


register(
    name="Identity",
    infer=checks.same_as_input(),
    gather=_read_same,
    store_map=_store_same,
    fold=lambda node, data: data,
)
