"""Operands of mixtures of experts: a router without ties, and matrices for each expert."""

from __future__ import annotations

from typing import Any

import numpy as np

from .node import NodeDraw, rule

Found = dict[str, Any]
MICROSOFT = "com.microsoft"


def _network(d: NodeDraw, hidden: int) -> Found:
    """Attributes, input and router; activations are those that onnxruntime has."""
    count, kind = d.integer(1, 5), d.choose("relu", "gelu", "silu", "identity", "swiglu")
    outer = d.shape(1, 2)
    values = d.growth.generator.permuted(np.tile(np.linspace(-2, 2, count), (int(np.prod(outer)), 1)), axis=1)
    return {
        "input": d.leaf("input", (*outer, hidden)),
        "router_probs": d.given("router_probs", values),
        "k": d.integer(1, count),
        "activation_type": kind,
        "activation_alpha": d.choose(1.0, 1.5),
        "activation_beta": d.choose(0.0, 1.0),
        "swiglu_fusion": int(kind == "swiglu"),
        "swiglu_limit": d.choose(None, 0.75),
        "swiglu_limit_after_activation": None,
        "use_sparse_mixer": None,
    }


@rule("MoE", domain=MICROSOFT)
def experts(d: NodeDraw) -> Found:
    hidden, inner = d.choose(1, 4, 7), d.choose(1, 3, 8)
    found = _network(d, hidden)
    count, rows = found["router_probs"].shape[1], inner * (1 + found["swiglu_fusion"])
    for name, outer, columns in (("fc1", rows, hidden), ("fc2", hidden, inner)):
        weights = f"{name}_experts_weights"
        found[weights] = d.leaf(weights, (count, outer, columns), -0.5, 0.5)
        found[f"{name}_experts_bias"] = d.leaf(f"{name}_experts_bias", (count, outer)) if d.flip() else None
    found.update(fc3_experts_weights=None, fc3_experts_bias=None)
    return found


@rule("QMoE", domain=MICROSOFT)
def packed_experts(d: NodeDraw) -> Found:
    """Rows of one scale or of blocks, 4 bits; onnxruntime normalises the weights in any case."""
    block = d.choose(None, 16)
    hidden, inner = (16 * d.integer(1, 2) for _ in range(2))
    found = _network(d, hidden)
    count, zeros = found["router_probs"].shape[1], d.flip()
    d.bind("fc1_scales", found["input"].dtype)
    for name, outer, columns in (("fc1", inner * (1 + found["swiglu_fusion"]), hidden), ("fc2", hidden, inner)):
        blocks = (columns // block,) if block else ()
        codes = d.growth.generator.integers(0, 256, (count, outer, columns // 2)).astype(np.uint8)
        found[f"{name}_experts_weights"] = d.given(f"{name}_experts_weights", codes, constant=True)
        found[f"{name}_scales"] = d.leaf(f"{name}_scales", (count, outer, *blocks), 0.125, 1)
        found[f"{name}_experts_bias"] = d.leaf(f"{name}_experts_bias", (count, outer)) if d.flip() else None
        if zeros:
            shape = (count, outer, (blocks[0] + 1) // 2) if blocks else (count, outer // 2)
            packed = d.growth.generator.integers(0, 256, shape).astype(np.uint8)
            found[f"{name}_zero_points"] = d.given(f"{name}_zero_points", packed, constant=True)
    found.update(
        block_size=block,
        normalize_routing_weights=1,
        weights_prepacked=0,
        **dict.fromkeys(("accuracy_level", "expert_weight_bits", "quant_type", "router_weights")),
        **{f"fc{number}_expert_weight_bits": None for number in (1, 2, 3)},
        **{
            f"fc{number}_{what}": None for number in (1, 2) for what in ("global_scale", "act_scale", "act_block_scale")
        },
        **{f"fc3_{what}": None for what in ("experts_weights", "scales", "experts_bias", "zero_points")},
    )
    return found
