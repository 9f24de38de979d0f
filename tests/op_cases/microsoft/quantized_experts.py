"""Cases of the operator in ``compiler/ops/microsoft/quantized_experts.py``."""

from __future__ import annotations

from typing import Any

from ..case import Case, Cases, Tensor

COUNT = 4


def _case(
    rows: tuple[int, ...],
    hidden: int,
    inner: int,
    *,
    zeros: bool = False,
    bias: bool = False,
    weights: bool = False,
    dtype: str = "float32",
    tolerance: float = 1e-5,
    **attributes: Any,
) -> Case:
    """``rows``: the axes of the tokens; ``weights``: the router's weights differ from its choice."""
    tokens = 1
    for size in rows:
        tokens *= size
    fused, block = attributes.get("swiglu_fusion", 0), attributes.get("block_size", 0)
    sizes = [(inner * 2 if fused else inner, hidden), (hidden, inner)]
    if attributes.get("activation_type") == "swiglu" and not fused:
        sizes.append((inner, hidden))
    inputs: list[Tensor | None] = [None] * 15
    inputs[0], inputs[1] = Tensor((*rows, hidden), dtype), Tensor((tokens, COUNT), dtype)
    for number, (outer, columns) in enumerate(sizes):
        bits = attributes.get(f"fc{number + 1}_expert_weight_bits", attributes.get("expert_weight_bits", 4))
        scale, blocks = 0.5 / (1 << bits), (columns // block,) if block else ()
        first = 2 + 3 * number
        inputs[first] = Tensor((COUNT, outer, columns * bits // 8), "uint8", 0, 255, constant=True)
        inputs[first + 1] = Tensor((COUNT, outer, *blocks), dtype, scale, 2 * scale, constant=True)
        inputs[first + 2] = Tensor((COUNT, outer), dtype, constant=True) if bias else None
        if zeros:
            shape = (outer, -(-blocks[0] * bits // 8)) if blocks else (-(-outer * bits // 8),)
            inputs[11 + number] = Tensor((COUNT, *shape), "uint8", 0, 255, constant=True)
    inputs[14] = Tensor((tokens, COUNT), dtype, 0.125, 1.0) if weights else None
    while inputs[-1] is None:
        inputs.pop()
    return Case(tuple(inputs), {"normalize_routing_weights": 1, **attributes}, tolerance=tolerance)


GATED = {"activation_type": "swiglu", "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.75}
#: Numbers that end in another byte than they begin in, in the one form that onnxruntime has, for halves
THREE_BITS = {"expert_weight_bits": 3, "block_size": 32, "weights_prepacked": 0, "swiglu_fusion": 1}

CASES: Cases = {
    "QMoE": (
        _case((3,), 16, 24, bias=True),
        _case((2, 3), 32, 16, k=2, block_size=16, activation_type="silu"),
        _case((5,), 64, 32, k=2, block_size=32, zeros=True, bias=True, swiglu_fusion=1, **GATED),
        _case((5,), 10, 6, k=3, zeros=True, activation_type="gelu"),
        _case((3,), 12, 8, k=2, expert_weight_bits=8, zeros=True, activation_type="silu"),
        # of two widths: onnxruntime quantises the activations beside blocks of 8 bits
        _case((3,), 32, 16, k=2, fc1_expert_weight_bits=8, block_size=16, zeros=True, activation_type="identity"),
        _case((3,), 32, 16, k=2, expert_weight_bits=2, block_size=16, zeros=True, activation_type="silu"),
        _case((3,), 64, 32, k=2, bias=True, dtype="float16", tolerance=2e-3, **THREE_BITS, **GATED),
        _case((3,), 48, 32, k=2, expert_weight_bits=3, block_size=16, zeros=True, activation_type="silu"),
        _case((3,), 16, 40, k=2, expert_weight_bits=3, zeros=True, activation_type="gelu"),
        _case((4,), 16, 16, k=2, block_size=16, weights=True, activation_type="silu"),
        _case((4,), 16, 16, k=2, block_size=16, weights=True, normalize_routing_weights=0),
        _case((4,), 16, 32, k=2, block_size=16, zeros=True, bias=True, **GATED),
        # not normalised and not of one gate in turns: onnxruntime normalises the weights of QMoE in any case
        _case((4,), 16, 32, k=2, block_size=16, normalize_routing_weights=0, **GATED),
        _case((4,), 16, 32, k=2, fc1_expert_weight_bits=4, fc2_expert_weight_bits=8, block_size=16),
        _case((4,), 32, 32, k=2, block_size=32, dtype="float16", activation_type="silu", tolerance=2e-3),
        _case((0,), 16, 16, block_size=16),
    ),
}
