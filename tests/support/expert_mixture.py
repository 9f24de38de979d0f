"""A mixture of experts token by token, from the description of MoE: plain numpy, in double precision."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def _swiglu(gate: np.ndarray, linear: np.ndarray, attributes: Mapping[str, Any]) -> np.ndarray:
    alpha, beta = attributes.get("activation_alpha", 1.0), attributes.get("activation_beta", 0.0)
    limit = attributes.get("swiglu_limit", np.inf)
    if attributes.get("swiglu_limit_after_activation", 0):
        gate = np.minimum(gate * sigmoid(alpha * gate), limit)
    else:
        gate = np.minimum(gate, limit)
        gate = gate * sigmoid(alpha * gate)
    return gate * (np.clip(linear, -limit, limit) + beta)


_PLAIN = {
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "gelu": _gelu,
    "silu": lambda x: x * sigmoid(x),
    "identity": lambda x: x,
}


def mixture(
    value: np.ndarray,
    router: np.ndarray,
    weights: Sequence[np.ndarray],
    biases: Sequence[np.ndarray | None],
    attributes: Mapping[str, Any],
    mixing: np.ndarray | None = None,
) -> np.ndarray:
    """``weights`` are [experts, rows, columns] of fc1, fc2 and, where there is one, fc3; ``biases`` belong to them."""
    kind = attributes.get("activation_type", "relu")
    fusion = attributes.get("swiglu_fusion", 0)
    tokens = value.reshape(-1, value.shape[-1])
    result = np.zeros_like(tokens, dtype=np.float64)
    for token, (x, logits) in enumerate(zip(tokens, router)):
        best = np.argsort(-logits, kind="stable")[: attributes.get("k", 1)]
        if mixing is None:
            powers = np.exp(logits - logits.max())
            share = powers[best] / powers.sum()
        else:
            share = mixing[token, best]
        if attributes.get("normalize_routing_weights", 0):
            share = share / share.sum()
        for expert, part in zip(best, share):
            outputs = [
                each[expert] @ x + (0 if bias is None else bias[expert])
                for each, bias in zip((weights[0], *weights[2:]), (biases[0], *biases[2:]))
            ]
            if fusion:
                first = outputs[0]
                outputs = [first[::2], first[1::2]] if fusion == 1 else np.split(first, 2)
            if kind == "geglu":
                inner = _gelu(outputs[0]) * outputs[1]
            elif kind == "swiglu":
                inner = _swiglu(outputs[0], outputs[1], attributes)
            else:
                inner = _PLAIN[kind](outputs[0])
            result[token] += part * (weights[1][expert] @ inner + (0 if biases[1] is None else biases[1][expert]))
    return result.reshape(value.shape)
