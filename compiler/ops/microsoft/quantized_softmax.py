"""QLinearSoftmax (domain com.microsoft)."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from .. import checks
from ..math.softmax import softmax
from ..onnx.quantize import BYTES
from ..registry import Builder, Inferred, register
from .quantized_elementwise import quantised_operand, quantised_result

_FLOAT32 = frozenset({"float32"})
_TYPES = (BYTES, _FLOAT32, BYTES, _FLOAT32, BYTES)


@record
class QLinearSoftmaxAttributes:
    """``opset`` is that of the Softmax it was: before 13 all axes from ``axis`` on are one."""

    opset: int
    axis: int = -1


def _axes(node: Node) -> tuple[int, ...]:
    rank = node.operand(0).rank
    axis = checks.normalise_axis(node, node.attributes.axis, rank)
    return tuple(range(axis, rank)) if node.attributes.opset < 13 else (axis,)


def _infer_softmax(node: Node) -> Inferred:
    _axes(node)
    return [(node.operand(0).dtype, node.operand(0).shape)]


def _expand_softmax(builder: Builder, node: Node) -> Sequence[Value]:
    weights = softmax(builder, quantised_operand(builder, node, 0), _axes(node))
    return [quantised_result(builder, node, weights, 3)]


register(
    name="QLinearSoftmax",
    domain="com.microsoft",
    infer=_infer_softmax,
    attributes=QLinearSoftmaxAttributes,
    expand=_expand_softmax,
    types=_TYPES,
)
