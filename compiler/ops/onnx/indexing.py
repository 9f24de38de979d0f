"""Reading at indices that are known only at run time: Gather, GatherElements, GatherND; and OneHot, Trilu.

An index of the model counts from the end when it is negative.  One that is out of range is an error of the model that
no kernel can report; it is clamped, so that no kernel reads outside of its operand (:mod:`.index_rule`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import INT64
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..math.positions import run_time_index
from ..registry import Indices, Inferred, Read, SplitBuilder, register


def _read_index(node: Node, read: Read, coordinates: Sequence[Dim], size: Dim) -> Dim:
    """Return the index at ``coordinates`` of input 1; a single index known at compile time needs no read."""
    indices = node.operand(1).static_value
    if indices is not None and indices.size == 1:
        element = indices.reshape(-1)[0]
        if isinstance(element, ix.Index):
            element = ix.add(element, size) if ix.less(element, 0) else element
            return ix.minimum(element, ix.add(size, -1))
        number = int(element)
        number_or_wrapped = ix.add(size, number) if number < 0 else number
        return ix.maximum(ix.minimum(number_or_wrapped, ix.add(size, -1)), 0)
    return run_time_index(read(1, coordinates), size)


def _check_indices(node: Node) -> Value:
    indices = node.operand(1)
    checks.require(indices.dtype.name in checks.INDICES, node, f"indices of type {indices.dtype}")
    return indices


# -- Gather ----------------------------------------------------------------------------------------------------------


@record
class GatherAttributes:
    axis: int = 0


def gather_axis(node: Node) -> int:
    return checks.normalise_axis(node, node.attributes.axis, node.operand(0).rank)


def _gathered_sizes(node: Node) -> Sequence[Dim]:
    return [node.operand(0).shape[gather_axis(node)]]


def _infer_gather(node: Node) -> Inferred:
    data, indices = node.operand(0), _check_indices(node)
    axis = gather_axis(node)
    return [(data.dtype, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))]


def _read_gathered(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    data, axis = node.operand(0), gather_axis(node)
    after = axis + node.operand(1).rank
    index = _read_index(node, read, coordinates[axis:after], data.shape[axis])
    return read(0, [*coordinates[:axis], index, *coordinates[after:]])


def _plain_indices(indices: np.ndarray) -> np.ndarray:
    if any(isinstance(element, ix.Index) for element in indices.flat):
        raise ix.Undecidable("elements at symbolic indices")
    return indices.astype(np.int64)


def _fold_gather(node: Node, data: np.ndarray, indices: np.ndarray) -> np.ndarray:
    size = data.shape[gather_axis(node)]
    plain = _plain_indices(indices)
    checks.require(bool(((plain >= -size) & (plain < size)).all()), node, f"an index is out of range for size {size}")
    return data.take(plain, gather_axis(node))


register(
    name="Gather",
    attributes=GatherAttributes,
    infer=_infer_gather,
    gather=_read_gathered,
    indices=(Indices(1, _gathered_sizes),),
    fold=_fold_gather,
    types=(checks.MOVED, checks.INDICES),
    reads=2,
)


# -- GatherElements --------------------------------------------------------------------------------------------------


def _infer_gather_elements(node: Node) -> Inferred:
    data, indices = node.operand(0), _check_indices(node)
    checks.require(data.rank == indices.rank, node, f"data of rank {data.rank}, indices of rank {indices.rank}")
    return [(data.dtype, indices.shape)]


def _read_gathered_elements(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    data, axis = node.operand(0), gather_axis(node)
    index = _read_index(node, read, coordinates, data.shape[axis])
    return read(0, [*coordinates[:axis], index, *coordinates[axis + 1 :]])


def _fold_gather_elements(node: Node, data: np.ndarray, indices: np.ndarray) -> np.ndarray:
    axis = gather_axis(node)
    plain = _plain_indices(indices)
    window = tuple(slice(None) if at == axis else slice(size) for at, size in enumerate(indices.shape))
    return np.take_along_axis(data[window], plain, axis)


register(
    name="GatherElements",
    attributes=GatherAttributes,
    infer=_infer_gather_elements,
    gather=_read_gathered_elements,
    indices=(Indices(1, _gathered_sizes),),
    fold=_fold_gather_elements,
    types=(checks.MOVED, checks.INDICES),
    reads=2,
)


# -- GatherND --------------------------------------------------------------------------------------------------------


@record
class GatherNDAttributes:
    batch_dims: int = 0


def _tuple_size(node: Node) -> int:
    """Return the number of axes of the data that one index tuple addresses."""
    return checks.concrete(node, node.operand(1).shape[-1], "the last dimension of indices")


def _addressed_sizes(node: Node) -> Sequence[Dim]:
    batch = node.attributes.batch_dims
    return node.operand(0).shape[batch : batch + _tuple_size(node)]


def _infer_gather_nd(node: Node) -> Inferred:
    data, indices = node.operand(0), _check_indices(node)
    batch = node.attributes.batch_dims
    checks.require(indices.rank >= 1 and data.rank >= 1, node, "GatherND needs operands of rank 1 or more")
    checks.require(0 <= batch < min(data.rank, indices.rank), node, f"{batch} batch axes are too many")
    for left, right in zip(data.shape[:batch], indices.shape[:batch]):
        checks.require(ix.equal(left, right), node, "batch axes of data and indices differ")
    addressed = _tuple_size(node)
    checks.require(batch + addressed <= data.rank, node, f"tuples of {addressed} for data of rank {data.rank}")
    return [(data.dtype, (*indices.shape[:-1], *data.shape[batch + addressed :]))]


def _read_gathered_nd(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    data, indices = node.operand(0), node.operand(1)
    batch, addressed = node.attributes.batch_dims, _tuple_size(node)
    tuple_at, rest = coordinates[: indices.rank - 1], coordinates[indices.rank - 1 :]
    index = [run_time_index(read(1, [*tuple_at, place]), data.shape[batch + place]) for place in range(addressed)]
    return read(0, [*coordinates[:batch], *index, *rest])


register(
    name="GatherND",
    attributes=GatherNDAttributes,
    infer=_infer_gather_nd,
    gather=_read_gathered_nd,
    indices=(Indices(1, _addressed_sizes),),
    types=(checks.MOVED, checks.INDICES),
    reads=2,
)


# -- OneHot ----------------------------------------------------------------------------------------------------------


@record
class OneHotAttributes:
    axis: int = -1


def _one_hot_axis(node: Node) -> int:
    return checks.normalise_axis(node, node.attributes.axis, node.operand(0).rank + 1)


def _places(node: Node) -> Sequence[Dim]:
    return checks.static_dims(node, 1, "the depth of OneHot")


def _infer_one_hot(node: Node) -> Inferred:
    indices, values = node.operand(0), node.operand(2)
    depth = checks.static_dims(node, 1, "the depth of OneHot")
    checks.require(len(depth) == 1, node, "the depth of OneHot is one number")
    pair = values.rank == 1 and not ix.less(values.elements, 2)
    checks.require(pair, node, "the values of OneHot are two numbers, off and on")
    axis = _one_hot_axis(node)
    return [(values.dtype, (*indices.shape[:axis], depth[0], *indices.shape[axis:]))]


def _read_one_hot(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    """Compare the index with the coordinate.

    Indices outside of ``[-depth, depth)`` are no error: they match no position and give ``off`` throughout.
    """
    axis = _one_hot_axis(node)
    index = read(0, [*coordinates[:axis], *coordinates[axis + 1 :]])
    if index.dtype == "f32":
        index = ex.cast(index, "i32")
    depth = ex.cast(ex.coordinate(node.output.shape[axis]), index.dtype)
    if index.dtype in ("i32", "i64"):
        index = ex.select(ex.compare("lt", index, ex.const(0, index.dtype)), index + depth, index)
    here = ex.compare("eq", ex.cast(ex.coordinate(coordinates[axis]), index.dtype), index)
    return ex.select(here, read(2, [1]), read(2, [0]))


def _split_one_hot(
    builder: SplitBuilder, inputs: Sequence[str], outputs: Sequence[str], attributes: OneHotAttributes
) -> None:
    indices, depth, values = inputs
    whole = builder.apply("Cast", depth, to=INT64.onnx)
    builder.apply_to(outputs, "OneHot", indices, whole, values, axis=attributes.axis)


register(
    name="OneHot",
    attributes=OneHotAttributes,
    infer=_infer_one_hot,
    gather=_read_one_hot,
    indices=(Indices(0, _places, is_error=False, outside="it matches no place"),),
    types=(checks.NUMERIC, checks.NUMERIC, checks.ANY),
    static_inputs=(1,),
    split_ahead=_split_one_hot,
    reads=3,
)


# -- Trilu -----------------------------------------------------------------------------------------------------------


@record
class TriluAttributes:
    upper: int = 1


def _diagonal(node: Node) -> Dim:
    return checks.static_dims(node, 1, "k of Trilu")[0] if node.optional(1) is not None else 0


def _infer_trilu(node: Node) -> Inferred:
    value = node.operand(0)
    checks.require(value.rank >= 2, node, f"Trilu needs matrices, not rank {value.rank}")
    _diagonal(node)
    return [(value.dtype, value.shape)]


def _read_trilu(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    row, column = coordinates[-2:]
    above = ex.compare(
        "ge" if node.attributes.upper else "le",
        ex.coordinate(column),
        ex.coordinate(ix.add(row, checks.within_matrix(_diagonal(node), node.operand(0).shape))),
    )
    return ex.guard(above, read(0, coordinates), checks.literal(0, node.output.dtype))


def _fold_trilu(node: Node, data: np.ndarray, *_: np.ndarray) -> np.ndarray:
    row, column = np.indices(data.shape[-2:])
    k = checks.concrete(node, _diagonal(node), "k of Trilu")
    in_triangle = column >= row + k if node.attributes.upper else column <= row + k
    return np.where(in_triangle, data, data.dtype.type(0) if data.dtype != object else 0)


register(
    name="Trilu",
    attributes=TriluAttributes,
    infer=_infer_trilu,
    gather=_read_trilu,
    fold=_fold_trilu,
    static_inputs=(1,),
    negative_inputs=(1,),
    bounded_inputs=(1,),
)
