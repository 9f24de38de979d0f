"""QAttention (domain com.microsoft): Attention with quantised input and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....runtime.plan.dtypes import FLOAT32
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from .. import checks
from ..onnx.quantize import BYTES
from ..onnx.quantized_products import scaled_product
from ..registry import Builder, Case, Inferred, Tensor, register
from .attention import attend_projections

_FLOAT32 = frozenset({"float32"})


@dataclass(frozen=True, slots=True)
class QAttentionAttributes:
    num_heads: int
    do_rotary: int = 0
    mask_filter_value: float = -10000.0
    past_present_share_buffer: int = 0
    scale: float = 0.0
    unidirectional: int = 0


def _infer(node: Node) -> Inferred:
    checks.require_choice(node, "do_rotary", (0,))
    checks.require_choice(node, "past_present_share_buffer", (0,))
    value, weight, past = node.operand(0), node.operand(1), node.optional(8)
    checks.require(value.rank == 3 and weight.rank == 2, node, "input or weight of a wrong rank")
    batch, queries, inputs = value.shape
    checks.require(ix.equal(inputs, weight.shape[0]), node, "input and weight do not fit")
    for position, columns in ((3, 1), (6, 1), (4, weight.shape[1]), (7, weight.shape[1])):
        given = node.optional(position)
        fits = given is None or ix.product(given.shape) in (1, columns)
        checks.require(fits, node, f"input {position} has neither one number nor one for each column")
    heads, hidden = node.attributes.num_heads, ix.floordiv(weight.shape[1], 3)
    checks.require(heads > 0, node, f"num_heads must be positive, not {heads}")
    keys = queries if past is None else ix.add(queries, past.shape[3])
    present = (2, batch, heads, keys, ix.floordiv(hidden, heads))
    return [(FLOAT32, (batch, queries, hidden)), (FLOAT32, present)]


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    value, weight = node.operand(0), node.operand(1)

    def parameter(position: int) -> Value | None:
        given = node.optional(position)
        single = given is not None and given.rank == 1 and ix.product(given.shape) == 1
        return builder.op("Squeeze", given) if single else given

    scale, weight_scale = parameter(3), parameter(4)
    assert scale is not None and weight_scale is not None
    left, right = (value, scale, parameter(6)), (weight, weight_scale, parameter(7))
    product = scaled_product(builder, left, right, node.operand(2))
    third = ix.floordiv(weight.shape[1], 3)
    return attend_projections(builder, node, product, (third,) * 3, node.optional(5), node.optional(8))


def _case(
    mask: Tensor | None = None,
    past: Tensor | None = None,
    *,
    weight: str = "int8",
    columns: bool = False,
    outputs: int = 1,
    **attributes: object,
) -> Case:
    """Weights of 6 bits: onnxruntime's sums of pairs saturate at 16 bits on some processors."""
    parameters = (72,) if columns else ()
    low, high = (0, 63) if weight == "uint8" else (-32, 31)
    operands = (
        Tensor((2, 4, 12), "uint8", 0, 255),
        Tensor((12, 72), weight, low, high, constant=True),
        Tensor((72,), constant=True),
        Tensor((), data=0.01, constant=True),
        Tensor(parameters, low=0.01, high=0.02, constant=True),
        mask,
        Tensor((), "uint8", data=120, constant=True),
        Tensor(parameters, weight, 3, 3, constant=True),
        past,
    )
    return Case(operands, {"num_heads": 3, **attributes}, outputs)


register(
    name="QAttention",
    domain="com.microsoft",
    infer=_infer,
    cases=(
        _case(),
        _case(Tensor((2, 4), "int32", data=[[1, 1, 1, 0], [1, 1, 1, 1]]), weight="uint8"),
        _case(Tensor((2,), "int32", data=[2, 4]), columns=True, scale=0.4),
        _case(past=Tensor((2, 2, 3, 5, 8)), unidirectional=1, outputs=2),
        Case(
            (Tensor((1, 3, 6), "uint8", 0, 255), Tensor((6, 12), "int8", -32, 31, constant=True), Tensor((12,)))
            + (Tensor((1,), data=[0.01], constant=True), Tensor((1,), data=[0.02], constant=True)),
            {"num_heads": 2},
        ),
    ),
    attributes=QAttentionAttributes,
    expand=_expand,
    types=(BYTES, BYTES, *(_FLOAT32,) * 3, frozenset({"int32"}), BYTES, BYTES, _FLOAT32),
)
