"""DynamicQuantizeLSTM: an LSTM with 8-bit weights; inputs and state are quantised by their own range as they come."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ...ir.graph import Node, Value
from .. import checks
from ..math.nodes import view
from ..onnx.quantize import BYTES, centred, dynamic_parameters, quantize
from ..onnx.recurrent import Layer, LSTMAttributes, infer_layer, input_rows, layer_of, run_layer
from ..registry import Builder, Inferred, register

_FLOAT32 = frozenset({"float32"})


def _infer(node: Node) -> Inferred:
    inferred = infer_layer(node, "lstm", weight_axis=1)
    for scale, zero, weight in ((8, 9, 1), (10, 11, 2)):
        directions, _, columns = node.operand(weight).shape
        for position in (scale, zero):
            shape = node.operand(position).shape
            fits = shape in ((directions,), (directions, columns))
            checks.require(
                fits, node, f"input {position} has neither one number for each direction nor for each column"
            )
    return inferred


def _of_columns(builder: Builder, parameter: Value) -> Value:
    """Unsqueeze a scale or zero point, one per direction or per column, to broadcast to [directions, rows, columns]."""
    axes = [1, 2] if parameter.rank == 1 else [1]
    return builder.op("Unsqueeze", parameter, builder.constant(np.array(axes, np.int64)))


def _without_padding(builder: Builder, node: Node, layer: Layer, rows: Value) -> Value:
    """Replace ``rows`` beyond the longest sequence by zeros.

    Padding must not widen the range, which includes 0 anyway.
    """
    lengths = node.optional(4)
    if lengths is None:
        return rows
    one = builder.constant(np.asarray(1, np.int32))
    ones = builder.op("Broadcast", one, domain="loom", shape=(layer.steps, 1, 1))
    number = builder.op("CumSum", ones, builder.constant(np.asarray(0, np.int64)))
    longest = builder.op("ReduceMax", lengths, keepdims=0)
    steps = view(builder, rows, layer.steps, layer.batch, layer.inputs)
    masked = builder.op("Where", builder.op("LessOrEqual", number, longest), steps, builder.scalar(0.0, rows))
    return view(builder, masked, *rows.shape)


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    layer = layer_of(node, "lstm", weight_axis=1)
    rows = _without_padding(builder, node, layer, input_rows(builder, node, layer))
    scale, zero = dynamic_parameters(builder, rows)
    integers = centred(builder, quantize(builder, rows, scale, zero, zero.dtype), zero)
    weight_scale, weight_zero, state_scale, state_zero = (
        _of_columns(builder, node.operand(position)) for position in range(8, 12)
    )
    total = builder.op("MatMul", integers, centred(builder, node.operand(1), weight_zero))
    gates = builder.op("Mul", builder.op("Cast", total, to=FLOAT32.onnx), builder.op("Mul", scale, weight_scale))
    recurrence = builder.op("Cast", centred(builder, node.operand(2), state_zero), to=FLOAT32.onnx)
    recurrence = builder.op("Transpose", recurrence, perm=(0, 2, 1))
    directions, columns = recurrence.shape[:2]
    state_scale = builder.op("Broadcast", state_scale, domain="loom", shape=(directions, 1, columns))
    return run_layer(builder, node, layer, gates, recurrence, view(builder, state_scale, directions, columns))


register(
    name="DynamicQuantizeLSTM",
    domain="com.microsoft",
    infer=_infer,
    attributes=LSTMAttributes,
    expand=_expand,
    types=(
        *(_FLOAT32, BYTES, BYTES, _FLOAT32, frozenset({"int32"}), _FLOAT32, _FLOAT32, _FLOAT32),
        *(_FLOAT32, BYTES, _FLOAT32, BYTES),
    ),
)
