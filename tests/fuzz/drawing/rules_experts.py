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
