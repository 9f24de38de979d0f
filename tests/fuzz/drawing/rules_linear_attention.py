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
