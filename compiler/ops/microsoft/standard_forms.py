"""Operators that onnxruntime had before the standard, or has under another name, and that older exporters wrote.

Each is an operator of the standard; ``CDist`` is a few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ...ir.graph import Node, Value
from .. import checks
from ..checks import FLOATS
from ..internal.reduction import reduce
from ..onnx.grid_sample import modern_modes
from ..registry import Builder, Case, Inferred, Tensor, register, registry

_INT64 = "int64"


def _number(value: int, dtype: str = _INT64) -> Tensor:
    return Tensor((), dtype, data=value, constant=True)


def _attributes(node: Node) -> dict[str, Any]:
    return {item.name: getattr(node.attributes, item.name) for item in fields(node.attributes)}


def _rename(name: str, standard: str, cases: Sequence[Case], domain: str = "", **more: Any) -> None:
    """Register ``name`` as the operator ``standard`` of ``domain``, with its attributes."""
    known = registry.get(standard, domain)

    def expand(builder: Builder, node: Node) -> Sequence[Value]:
        return [builder.op(standard, *node.inputs, domain=domain, **_attributes(node))]

    register(
        name=name,
        domain="com.microsoft",
        infer=known.infer,
        cases=tuple(cases),
        attributes=known.attributes,
        expand=expand,
        fold=known.fold,
        indices=known.indices,
        types=known.types,
        static_inputs=known.static_inputs,
        **more,
    )


_rename("Trilu", "Trilu", [Case((Tensor((4, 5)),)), Case((Tensor((2, 3, 4)), _number(-1)), {"upper": 0})])
_rename(
    "Pad",
    "Pad",
    [
        Case((Tensor((3, 4)), Tensor((4,), _INT64, data=[1, 0, 2, 3], constant=True), Tensor((1,), data=[0.5]))),
        Case((Tensor((3, 4)), Tensor((4,), _INT64, data=[1, 0, 2, 3], constant=True)), {"mode": "edge"}),
    ],
)
_rename("GatherND", "GatherND", [Case((Tensor((3, 4)), Tensor((2, 2), _INT64, data=[[0, 3], [1, 2]])))])
_rename(
    "GridSample",
    "GridSample",
    [
        Case((Tensor((2, 3, 4, 5)), Tensor((2, 3, 2, 2), low=-1.2, high=1.2)), {"mode": "bilinear"}),
        Case((Tensor((1, 2, 4, 5)), Tensor((1, 3, 2, 2), low=-1.2, high=1.2)), {"padding_mode": "border"}),
        Case((Tensor((1, 2, 4, 5)), Tensor((1, 3, 2, 2), low=-1.0, high=1.0)), {"mode": "bicubic", "align_corners": 1}),
    ],
    adapters=((1, modern_modes),),
)
_rename(
    "TransposeMatMul",
    "FusedMatMul",
    [
        Case((Tensor((2, 7, 3)), Tensor((2, 5, 7))), {"transA": 1, "transB": 1}),
        Case((Tensor((3, 7)), Tensor((7, 5))), {"alpha": 0.5}),
    ],
    "com.microsoft",
)


# -- ExpandDims ------------------------------------------------------------------------------------------------------


def _new_axis(node: Node) -> int:
    given = checks.known(node, node.operand(1), "axis").reshape(-1)
    checks.require(given.size == 1, node, f"the axis is one number, not {given.size}")
    axis = int(given[0])
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
    cases=(
        Case((Tensor((3, 5)), _number(1, "int32"))),
        Case((Tensor((3, 5)), _number(-1, "int32"))),
        Case((Tensor((2,), "float32"), _number(0, "int32"))),
    ),
    expand=_expand_expand_dims,
    static_inputs=(1,),
)


# -- CDist -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
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
    """The distance of each row of A from each row of B."""
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
    cases=(
        Case((Tensor((3, 7)), Tensor((5, 7))), {"metric": "euclidean"}),
        Case((Tensor((17, 3)), Tensor((1, 3))), {"metric": "sqeuclidean"}),
    ),
    attributes=CDistAttributes,
    expand=_expand_distances,
    types=(FLOATS,),
)
