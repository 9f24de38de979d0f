"""CausalConvWithState (domain com.microsoft): a depthwise convolution over what came before, as linear attention needs.

Taps of the kernel see the present and earlier positions.  The state holds the last ``(k - 1) * dilation`` positions
before the present call; the first call starts from zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.nodes import part, transposed, view
from ..registry import Builder, Inferred, register

#: Taps up to which a result is one expression of its operands, which neighbours in the graph join
MOST_TAPS = 16


@record
class CausalConvAttributes:
    """Windows of states, captured updates and slices of channels are for other runtimes' speculative decoding."""

    activation: str = "none"
    channels_last: int = 0
    dilation: int = 1
    input_channel_offset: int = 0
    input_channels: int = 0
    ndim: int = 1
    state_channels_last: int = -1
    state_length: int = 0
    state_update_capacity: int = 0
    state_window: int = 0


_ONLY = {
    "channels_last": (0, 1),
    "activation": ("none", "silu", "swish"),
    "ndim": (1,),
    "input_channel_offset": (0,),
    "input_channels": (0,),
    "state_channels_last": (-1,),
    "state_length": (0,),
    "state_update_capacity": (0,),
    "state_window": (0,),
}


@record
class _Sizes:
    batch: Dim
    length: Dim
    channels: int
    taps: int
    state: int  #: positions


def _sizes(node: Node) -> _Sizes:
    attributes: CausalConvAttributes = node.attributes
    value, weight = node.operand(0), node.operand(1)
    for name, supported in _ONLY.items():
        checks.require_choice(node, name, supported)
    checks.require(attributes.dilation >= 1, node, f"dilation is {attributes.dilation}")
    last = bool(attributes.channels_last)
    shape = checks.describe_shape(value.shape)
    fits = value.rank >= 3 if last else value.rank == 3
    checks.require(fits, node, f"an input of shape {shape} for one spatial axis")
    channels = ix.product(list(value.shape[2:])) if last else value.shape[1]
    count = checks.concrete(node, channels, "the number of channels")
    fits = weight.rank == 3 and weight.shape[:2] == (count, 1)
    checks.require(fits, node, f"a weight of shape {checks.describe_shape(weight.shape)} for {count} channels")
    taps = checks.concrete(node, weight.shape[2], "the size of the kernel")
    checks.require(taps >= 1, node, "a kernel without taps")
    state = (taps - 1) * attributes.dilation
    return _Sizes(value.shape[0], value.shape[1 if last else 2], count, taps, state)


def _state_shape(node: Node, sizes: _Sizes) -> tuple[Dim, ...]:
    if node.attributes.channels_last:
        return (sizes.batch, sizes.state, *node.operand(0).shape[2:])
    return (sizes.batch, sizes.channels, sizes.state)


def _infer(node: Node) -> Inferred:
    sizes, value = _sizes(node), node.operand(0)
    state = _state_shape(node, sizes)
    for position, what, wanted in ((2, "bias", (sizes.channels,)), (3, "past_state", state)):
        operand = node.optional(position)
        if operand is not None:
            reason = f"{what} of shape {checks.describe_shape(operand.shape)}, not {checks.describe_shape(wanted)}"
            checks.require(operand.shape == wanted, node, reason)
    checks.require_same_type(node, [each for each in node.inputs if each is not None])
    return [(value.dtype, value.shape), (value.dtype, state)]


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    sizes, last, value = _sizes(node), bool(node.attributes.channels_last), node.operand(0)
    axis, past = 1 if last else 2, node.optional(3)
    flat = (sizes.batch, sizes.length, sizes.channels) if last else value.shape
    seen = _after_the_past(builder, view(builder, value, *flat), past, axis, sizes)
    state = part(builder, seen, axis, sizes.length, sizes.state)
    convolve = _taps if sizes.taps <= MOST_TAPS else _convolution
    result, bias = convolve(builder, node, seen, sizes), node.optional(2)
    if bias is not None:
        result = builder.op("Add", result, _of_channels(builder, bias, last))
    if node.attributes.activation != "none":
        result = builder.op("Mul", result, builder.op("Sigmoid", result))
    return [view(builder, result, *value.shape), view(builder, state, *_state_shape(node, sizes))]


def _after_the_past(builder: Builder, value: Value, past: Value | None, axis: int, sizes: _Sizes) -> Value:
    """Build the positions of the state, zeros without one, with those of ``value`` behind them."""
    if sizes.state == 0:
        return value
    if past is None:
        pads = np.zeros((2, 3), np.int64)
        pads[0, axis] = sizes.state
        return builder.op("Pad", value, builder.constant(pads.reshape(-1)))
    before = list(value.shape)
    before[axis] = sizes.state
    return builder.op("Concat", view(builder, past, *before), value, axis=axis)


def _of_channels(builder: Builder, value: Value, last: bool) -> Value:
    """Build a vector of the channels that broadcasts to the input."""
    return value if last else view(builder, value, *value.shape, 1)


def _taps(builder: Builder, node: Node, seen: Value, sizes: _Sizes) -> Value:
    """Build the sum of the taps, each of which sees the positions from its own on."""
    last, weight = bool(node.attributes.channels_last), node.operand(1)
    total: Value | None = None
    for tap in range(sizes.taps):
        factors = view(builder, part(builder, weight, 2, tap, 1), sizes.channels)
        positions = part(builder, seen, 1 if last else 2, tap * node.attributes.dilation, sizes.length)
        term = builder.op("Mul", positions, _of_channels(builder, factors, last))
        total = term if total is None else builder.op("Add", total, term)
    assert total is not None
    return total


def _convolution(builder: Builder, node: Node, seen: Value, sizes: _Sizes) -> Value:
    last = bool(node.attributes.channels_last)
    first = transposed(builder, seen, 0, 2, 1) if last else seen
    result = builder.op("Conv", first, node.operand(1), group=sizes.channels, dilations=(node.attributes.dilation,))
    return transposed(builder, result, 0, 2, 1) if last else result


register(
    name="CausalConvWithState",
    domain="com.microsoft",
    infer=_infer,
    attributes=CausalConvAttributes,
    expand=_expand,
    types=(FLOATS,),
)
