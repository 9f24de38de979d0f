"""Operators that onnxruntime had before the standard, or has under another name, and that older exporters wrote.

Each is an operator of the standard; ``CDist`` is a few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from .. import checks
from ..checks import FLOATS
from ..math.reductions import reduce
from ..onnx.grid_sample import modern_modes
from ..registry import Builder, Inferred, register, registry


def _attributes(node: Node) -> dict[str, Any]:
    return {item.name: getattr(node.attributes, item.name) for item in fields(node.attributes)}


def _rename(name: str, standard: str, domain: str = "", **more: Any) -> None:
    """Register ``name`` as the operator ``standard`` of ``domain``, with its attributes."""
    definition = registry.get(standard, domain)

    def expand(builder: Builder, node: Node) -> Sequence[Value]:
        return [builder.op(standard, *node.inputs, domain=domain, **_attributes(node))]

    register(
        name=name,
        domain="com.microsoft",
        infer=definition.infer,
        attributes=definition.attributes,
        expand=expand,
        fold=definition.fold,
        indices=definition.indices,
        types=definition.types,
        static_inputs=definition.static_inputs,
        **more,
    )


_rename("Trilu", "Trilu")
_rename("Pad", "Pad")
_rename("GatherND", "GatherND")
_rename("GridSample", "GridSample", adapters=((1, modern_modes),))
_rename("TransposeMatMul", "FusedMatMul", "com.microsoft")


# -- ExpandDims ------------------------------------------------------------------------------------------------------


def _new_axis(node: Node) -> int:
    elements = checks.static_elements(node, node.operand(1), "axis").reshape(-1)
    checks.require(elements.size == 1, node, f"the axis is one number, not {elements.size}")
    axis = int(elements[0])
    return checks.normalise_axis(node, axis, node.operand(0).rank + 1)


def _infer_expand_dims(node: Node) -> Inferred:
    value, axis = node.operand(0), _new_axis(node)
    return [(value.dtype, (*value.shape[:axis], 1, *value.shape[axis:]))]


def _expand_expand_dims(builder: Builder, node: Node) -> Sequence[Value]:
    return [builder.op("Unsqueeze", node.operand(0), builder.constant(np.array([_new_axis(node)], np.int64)))]


register(
    name="ExpandDims",
    domain="com.microsoft",
    infer=_infer_expand_dims,
    expand=_expand_expand_dims,
    static_inputs=(1,),
)


# -- CDist -----------------------------------------------------------------------------------------------------------


@record
class CDistAttributes:
    metric: str = "sqeuclidean"


def _infer_distances(node: Node) -> Inferred:
    left, right = node.operand(0), node.operand(1)
    checks.require_choice(node, "metric", ("euclidean", "sqeuclidean"))
    checks.require_same_type(node, [left, right])
    checks.require(left.rank == 2 and right.rank == 2, node, "the operands are matrices of points")
    checks.require(left.shape[1] == right.shape[1], node, "the points differ in size")
    return [(left.dtype, (left.shape[0], right.shape[0]))]


def _expand_distances(builder: Builder, node: Node) -> Sequence[Value]:
    """Build the distance of each row of A from each row of B."""
    left, right = (
        builder.op("Unsqueeze", node.operand(position), builder.constant(np.array([1 - position], np.int64)))
        for position in (0, 1)
    )
    difference = builder.op("Sub", left, right)
    total = reduce(builder, builder.op("Mul", difference, difference), "sum", (2,), keepdims=False)
    return [builder.op("Sqrt", total) if node.attributes.metric == "euclidean" else total]


register(
    name="CDist",
    domain="com.microsoft",
    infer=_infer_distances,
    attributes=CDistAttributes,
    expand=_expand_distances,
    types=(FLOATS,),
)
