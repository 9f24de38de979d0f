"""Operands of linear attention and of the convolution before it."""

from __future__ import annotations

from typing import Any

from .node import NodeDraw, rule

Found = dict[str, Any]
MICROSOFT = "com.microsoft"


@rule("CausalConvWithState", domain=MICROSOFT)
def causal_convolution(d: NodeDraw) -> Found:
    batch, channels, length, taps = d.integer(1, 2), d.choose(1, 3, 4), d.integer(1, 5), d.integer(1, 4)
    last, dilation = d.integer(0, 1), d.integer(1, 2)
    state = (taps - 1) * dilation
    found: Found = {
        "input": d.leaf("input", (batch, length, channels) if last else (batch, channels, length)),
        "weight": d.leaf("weight", (channels, 1, taps)),
        "bias": d.leaf("bias", (channels,)) if d.flip() else None,
        "past_state": None,
        "activation": d.choose("none", "silu", "swish"),
        "channels_last": last,
        "dilation": dilation,
        "_outputs": 2,
        **dict.fromkeys(("ndim", "state_update_capacity", "state_channels_last", "state_window", "state_length")),
        **dict.fromkeys(("input_channel_offset", "input_channels")),
    }
    if d.flip():
        found["past_state"] = d.leaf("past_state", (batch, state, channels) if last else (batch, channels, state))
    return found


@rule("LinearAttention", domain=MICROSOFT)
def linear_attention(d: NodeDraw) -> Found:
    batch, steps, keys, values = d.integer(1, 2), d.integer(1, 5), d.choose(1, 3, 4), d.choose(1, 2, 5)
    asking, holding = d.choose((2, 2), (4, 2), (1, 3), (2, 4))
    kind = d.choose("linear", "gated", "delta", "gated_delta")
    decay, rate = "gated" in kind, "delta" in kind
    found: Found = {
        "query": d.leaf("query", (batch, steps, asking * keys)),
        "key": d.leaf("key", (batch, steps, holding * keys), -0.5, 0.5),
        "value": d.leaf("value", (batch, steps, holding * values)),
        "past_state": None,
        "decay": d.leaf("decay", (batch, steps, holding * d.choose(1, keys)), -1, 0) if decay else None,
        "beta": d.leaf("beta", (batch, steps, d.choose(1, holding)), 0, 1) if rate else None,
        "q_num_heads": asking,
        "kv_num_heads": holding,
        "update_rule": kind,
        "scale": d.choose(None, 0.5),
        "_outputs": 2,
        **dict.fromkeys(("chunk_size", "state_window")),
    }
    d.bind("past_state", found["query"].dtype)
    if d.flip():
        found["past_state"] = d.leaf("past_state", (batch, holding, keys, values))
    return found


@rule("GatedDeltaNet", domain=MICROSOFT)
def gated_delta_net(d: NodeDraw) -> Found:
    batch, steps, keys, values = d.integer(1, 2), d.integer(1, 4), d.choose(1, 3, 4), d.choose(1, 2, 5)
    having, holding = d.choose((2, 2), (1, 3), (2, 4))
    tokens = (batch, steps) if d.flip() else (batch * steps,)
    kind, gate = d.choose("linear", "gated", "delta", "gated_delta"), d.choose("none", "softplus", "sigmoid")
    decay, rate = "gated" in kind, "delta" in kind
    own = d.choose((), (keys,))
    omitted = ("cu_seqlens", "capture_count", "state_update_active", "state_update_capacity", "chunk_size")
    return {
        "query": d.leaf("query", (*tokens, having, keys)),
        "key": d.leaf("key", (*tokens, having, keys), -0.5, 0.5),
        "value": d.leaf("value", (*tokens, holding, values)),
        "decay": d.leaf("decay", (*tokens, holding, *own), -1, 0) if decay else None,
        "beta": d.leaf("beta", (*tokens, holding), 0, 1) if rate else None,
        "initial_state": d.leaf("initial_state", (batch, holding, values, keys)),
        "a_log": d.leaf("a_log", (holding,), -1, 1) if gate != "none" else None,
        "dt_bias": d.leaf("dt_bias", (holding,)) if gate != "none" else None,
        "gate_activation": gate,
        "beta_activation": d.choose("none", "sigmoid"),
        "gate_lower_bound": d.choose(None, -2.0),
        "qk_l2_norm": 0,
        "scale": d.choose(None, 0.5),
        "update_rule": kind,
        "_outputs": 2,
        **dict.fromkeys(omitted),
    }
