"""CumSum and CumProd: the kernel family ``scan``.  Half-precision floats accumulate in f32."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..math.nodes import in_type
from ..registry import Axes, Builder, Inferred, register

_WIDE = frozenset({"float32", "int32", "uint32", "int64", "uint64"})
_TYPES = _WIDE | {"float16", "bfloat16"}


@record
class CumulateAttributes:
    """``kind`` is sum or prod; ``axis`` counts from the front; ``exclusive`` leaves out the element itself."""

    kind: str
    axis: int
    exclusive: bool
    reverse: bool


def cumulate_array(array: np.ndarray, attributes: CumulateAttributes) -> np.ndarray:
    """Evaluate ``loom.Cumulate`` with numpy."""
    operation = np.cumsum if attributes.kind == "sum" else np.cumprod
    axis = attributes.axis
    if attributes.reverse:
        array = np.flip(array, axis)
    result = operation(array, axis=axis, dtype=array.dtype)
    if attributes.exclusive and array.shape[axis]:
        first = np.full_like(np.take(result, [0], axis), int(attributes.kind == "prod"))
        result = np.concatenate([first, np.delete(result, -1, axis)], axis)
    return np.flip(result, axis) if attributes.reverse else result


def _fold(node: Node, operand: np.ndarray) -> np.ndarray:
    if checks.is_symbolic(operand):
        raise ix.Undecidable("running sums of symbolic integers")
    return cumulate_array(operand, node.attributes)


register(
    name="Cumulate",
    domain="loom",
    infer=checks.same_as_input(),
    attributes=CumulateAttributes,
    family="scan",
    types=(_WIDE,),
    fold=_fold,
)


@record
class CumulativeAttributes:
    exclusive: int = 0
    reverse: int = 0


def _axis(node: Node) -> int:
    axes = checks.static_integers(node, 1, f"the axis of {node.op}")
    checks.require(len(axes) == 1, node, f"{node.op} runs along one axis")
    return checks.normalise_axis(node, axes[0], node.operand(0).rank)


def _infer(node: Node) -> Inferred:
    _axis(node)
    return checks.same_as_input()(node)


def _expand(kind: str) -> Callable[[Builder, Node], Sequence[Value]]:
    def expand(builder: Builder, node: Node) -> Sequence[Value]:
        value, attributes = node.operand(0), node.attributes
        wide = value if value.dtype.name in _WIDE else in_type(builder, value, FLOAT32)
        result = builder.op(
            "Cumulate",
            wide,
            domain="loom",
            kind=kind,
            axis=_axis(node),
            exclusive=bool(attributes.exclusive),
            reverse=bool(attributes.reverse),
        )
        return [in_type(builder, result, value.dtype)]

    return expand


for _name, _kind in (("CumSum", "sum"), ("CumProd", "prod")):
    register(
        name=_name,
        infer=_infer,
        attributes=CumulativeAttributes,
        expand=_expand(_kind),
        types=(_TYPES, checks.INDICES),
        static_inputs=(1,),
        axes=Axes(1),
    )
