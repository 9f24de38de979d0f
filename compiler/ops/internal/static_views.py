"""Views whose result shape is an attribute: targets of Reshape, Squeeze, Unsqueeze, Flatten, Expand, and of sizes that
are equal in every run.

The ONNX operators take the shape as a tensor.  Once it is known it need not be an operand: the node then has one input,
two equal views compare equal, and a shape over dynamic dimensions does not keep its ``Dimensions`` node alive.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.record import record
from ...ir.graph import Node, Shape
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..math.regroup import broadcast_coordinates, reindex
from ..registry import Inferred, Read, register


@record
class ViewAttributes:
    """The shape of the result; the elements keep their row-major order."""

    shape: Shape


@record
class BroadcastAttributes:
    """The shape of the result, to which the operand broadcasts."""

    shape: Shape


def _infer_view(node: Node) -> Inferred:
    value, shape = node.operand(0), node.attributes.shape
    checks.require_equal(
        node,
        ix.product(value.shape),
        ix.product(shape),
        f"{checks.describe_shape(value.shape)} has no view as {checks.describe_shape(shape)}",
    )
    return [(value.dtype, shape)]


def _infer_broadcast(node: Node) -> Inferred:
    value, shape = node.operand(0), node.attributes.shape
    checks.require(
        checks.broadcast_shapes(node, [value.shape, shape]) == shape,
        node,
        f"{checks.describe_shape(value.shape)} does not broadcast to {checks.describe_shape(shape)}",
    )
    return [(value.dtype, shape)]


def _concrete(node: Node, shape: Shape) -> list[int]:
    if any(isinstance(size, ix.Index) for size in shape):
        raise ix.Undecidable(f"the number of elements of {checks.describe_shape(shape)}")
    return [checks.concrete(node, size, "a size") for size in shape]


def _read_view(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    return read(0, reindex(coordinates, node.output.shape, node.operand(0).shape))


def _read_broadcast(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    return read(0, broadcast_coordinates(node.operand(0).shape, coordinates))


def _fold_view(node: Node, data: np.ndarray) -> np.ndarray:
    return data.reshape(_concrete(node, node.attributes.shape))


def _fold_broadcast(node: Node, data: np.ndarray) -> np.ndarray:
    return np.broadcast_to(data, _concrete(node, node.attributes.shape))


register(
    name="View",
    domain="loom",
    attributes=ViewAttributes,
    infer=_infer_view,
    gather=_read_view,
    store_map=lambda node, coordinates: reindex(coordinates, node.operand(0).shape, node.output.shape),
    fold=_fold_view,
)
register(
    name="Fit",  # the sizes of the result are those of the operand in every run, written in another way
    domain="loom",
    attributes=ViewAttributes,
    infer=lambda node: [(node.operand(0).dtype, node.attributes.shape)],
    gather=lambda node, coordinates, read: read(0, coordinates),
    store_map=lambda node, coordinates: coordinates,
)
register(
    name="Broadcast",
    domain="loom",
    attributes=BroadcastAttributes,
    infer=_infer_broadcast,
    gather=_read_broadcast,
    fold=_fold_broadcast,
)
