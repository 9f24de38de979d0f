"""ScatterElements, ScatterND and Scatter: the kernel family ``scatter``.

The kernel writes elements of four or eight bytes; narrower types are computed in 32 bits and converted.  An index out
of range is an error of the model that no kernel can report; it is clamped, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32, INT32, DType
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..math.nodes import in_type
from ..registry import Builder, Indices, Inferred, register

_WIDE = frozenset({"float32", "int32", "uint32", "int64", "uint64"})
_REDUCTIONS = ("none", "add", "mul", "max", "min")


@record
class ScatterKernelAttributes:
    """``axis``: indices address that axis (ScatterElements); None: tuples address the leading axes (ScatterND)."""

    axis: int | None
    reduction: str


register(
    name="Scatter",
    domain="loom",
    infer=checks.same_as_input(),
    attributes=ScatterKernelAttributes,
    family="scatter",
    types=(_WIDE, checks.INDICES, _WIDE),
)

_NUMPY: dict[str, Callable[..., None]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


def scatter_array(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, attributes: ScatterKernelAttributes
) -> np.ndarray:
    """Evaluate ``loom.Scatter`` with numpy."""
    result = data.copy()
    coordinates: tuple[np.ndarray, ...]
    if attributes.axis is None:
        coordinates = tuple(np.moveaxis(indices, -1, 0).astype(np.int64))
    else:
        places: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
        places[attributes.axis] = indices.astype(np.int64)
        coordinates = tuple(places)
    if attributes.reduction == "none":
        result[coordinates] = updates
    else:
        _NUMPY[attributes.reduction](result, coordinates, updates)
    return result


def computed_type(dtype: DType) -> DType:
    """Return the type in which a tensor of ``dtype`` is scattered."""
    if dtype.name in _WIDE:
        return dtype
    return FLOAT32 if dtype.is_float else INT32


def scatter(
    builder: Builder, data: Value, indices: Value, updates: Value, axis: int | None, reduction: str = "none"
) -> Value:
    """Scatter ``updates`` into ``data``; :class:`ScatterKernelAttributes` describes ``axis`` and ``reduction``."""
    wide = computed_type(data.dtype)
    result = builder.op(
        "Scatter",
        in_type(builder, data, wide),
        indices,
        in_type(builder, updates, wide),
        domain="loom",
        axis=axis,
        reduction=reduction,
    )
    return in_type(builder, result, data.dtype)


def _check_reduction(node: Node) -> str:
    reduction: str = node.attributes.reduction
    checks.require_choice(node, "reduction", ("none",) if node.operand(0).dtype.name == "bool" else _REDUCTIONS)
    return reduction


# -- ScatterElements -------------------------------------------------------------------------------------------------


@record
class ScatterElementsAttributes:
    axis: int = 0
    reduction: str = "none"


def _scattered_sizes(node: Node) -> Sequence[Dim]:
    data = node.operand(0)
    return [data.shape[checks.normalise_axis(node, node.attributes.axis, data.rank)]]


def _infer_elements(node: Node) -> Inferred:
    data, indices, updates = node.operand(0), node.operand(1), node.operand(2)
    checks.require_same_type(node, [data, updates])
    checks.require(indices.shape == updates.shape, node, "indices and updates differ in shape")
    checks.require(data.rank == indices.rank, node, f"data of rank {data.rank}, indices of rank {indices.rank}")
    axis = checks.normalise_axis(node, node.attributes.axis, data.rank)
    for other, (size, outer) in enumerate(zip(indices.shape, data.shape)):
        checks.require(other == axis or not ix.less(outer, size), node, f"the updates are longer along axis {other}")
    _check_reduction(node)
    return [(data.dtype, data.shape)]


def _expand_elements(builder: Builder, node: Node) -> Sequence[Value]:
    data, attributes = node.operand(0), node.attributes
    axis = checks.normalise_axis(node, attributes.axis, data.rank)
    return [scatter(builder, data, node.operand(1), node.operand(2), axis, attributes.reduction)]


register(
    name="ScatterElements",
    infer=_infer_elements,
    attributes=ScatterElementsAttributes,
    indices=(Indices(1, _scattered_sizes),),
    expand=_expand_elements,
    types=(checks.ANY, checks.INDICES, checks.ANY),
)


@record
class ScatterAttributes:
    axis: int = 0


def _expand_old(builder: Builder, node: Node) -> Sequence[Value]:
    axis = node.attributes.axis
    return [builder.op("ScatterElements", node.operand(0), node.operand(1), node.operand(2), axis=axis)]


def _infer_old(node: Node) -> Inferred:
    attributes = ScatterElementsAttributes(node.attributes.axis)
    return _infer_elements(Node(0, node.op, node.domain, list(node.inputs), attributes, node.origins))


register(
    name="Scatter",
    infer=_infer_old,
    attributes=ScatterAttributes,
    indices=(Indices(1, _scattered_sizes),),
    expand=_expand_old,
    types=(checks.ANY, checks.INDICES, checks.ANY),
)


# -- ScatterND -------------------------------------------------------------------------------------------------------


@record
class ScatterNDAttributes:
    reduction: str = "none"


def _tuple_sizes(node: Node) -> Sequence[Dim]:
    addressed = checks.concrete(node, node.operand(1).shape[-1], "the last dimension of indices")
    return node.operand(0).shape[:addressed]


def _infer_nd(node: Node) -> Inferred:
    data, indices, updates = node.operand(0), node.operand(1), node.operand(2)
    checks.require_same_type(node, [data, updates])
    checks.require(indices.rank >= 1 and data.rank >= 1, node, "ScatterND needs operands of rank 1 or more")
    addressed = checks.concrete(node, indices.shape[-1], "the last dimension of indices")
    checks.require(addressed <= data.rank, node, f"tuples of {addressed} for data of rank {data.rank}")
    wanted: tuple[Dim, ...] = (*indices.shape[:-1], *data.shape[addressed:])
    text = f"updates of shape {checks.describe_shape(updates.shape)}, not {checks.describe_shape(wanted)}"
    checks.require(updates.rank == len(wanted), node, text)
    for size, other in zip(updates.shape, wanted):
        checks.require_equal(node, size, other, text)
    _check_reduction(node)
    return [(data.dtype, data.shape)]


def _expand_nd(builder: Builder, node: Node) -> Sequence[Value]:
    operands = (node.operand(0), node.operand(1), node.operand(2))
    return [scatter(builder, *operands, None, node.attributes.reduction)]


register(
    name="ScatterND",
    infer=_infer_nd,
    attributes=ScatterNDAttributes,
    indices=(Indices(1, _tuple_sizes),),
    expand=_expand_nd,
    types=(checks.ANY, checks.INDICES, checks.ANY),
)
