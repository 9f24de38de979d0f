"""LSTM, GRU and RNN: the inputs' products with their weights for all steps at once, then the kernel family
``recurrent``.

Everything is computed in f32.  Gates are in ONNX's order: input, output, forget, cell (LSTM); update, reset, hidden
(GRU).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.dtypes import FLOAT32
from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...ir.graph import Node, Shape, Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.evaluate import evaluate_expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import FLOATS
from ..math.activation_functions import DEFAULTS, activation
from ..math.nodes import in_type
from ..registry import Builder, Inferred, register

_DIRECTIONS = ("forward", "reverse", "bidirectional")
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
_STANDARD = {"rnn": ("Tanh",), "gru": ("Sigmoid", "Tanh"), "lstm": ("Sigmoid", "Tanh", "Tanh")}

Function = tuple[str, float, float]  #: name in lower case, alpha, beta


# -- the kernel's operator -------------------------------------------------------------------------------------------


@record
class RecurrentAttributes:
    """``activations`` are the functions f, g, h of each direction in turn.

    ``clip`` bounds what f and g see, not the cell state under h, as in onnxruntime.  ``quantised`` rounds the state to
    8 bits of its own range before every product.
    """

    kind: str
    direction: str
    activations: tuple[Function, ...]
    clip: float | None = None
    linear_before_reset: bool = False
    input_forget: bool = False
    quantised: bool = False


def _infer_recurrent(node: Node) -> Inferred:
    """Infer [steps + 1, directions, batch, units] in f32, the last row being the final state; an LSTM adds its cell."""
    directions, steps, batch, _ = node.operand(0).shape
    units = node.operand(1).shape[2]
    rows = ix.add(steps, 2 if node.attributes.kind == "lstm" else 1)
    return [(FLOAT32, (rows, directions, batch, units))]


register(
    name="Recurrent",
    domain="loom",
    infer=_infer_recurrent,
    attributes=RecurrentAttributes,
    family="recurrent",
)


def recurrent_array(attributes: RecurrentAttributes, operands: Sequence[np.ndarray | None]) -> np.ndarray:
    """Evaluate ``loom.Recurrent`` with numpy; operands by position, None for omitted ones."""
    padded: list[np.ndarray | None] = [*operands, *[None] * (8 - len(operands))]
    gates, weights, lengths, hidden, cell, peepholes, reset_bias, scale = padded
    assert gates is not None and weights is not None
    directions, steps, batch, _ = gates.shape
    units = weights.shape[2]
    lstm = attributes.kind == "lstm"
    result = np.zeros((steps + (2 if lstm else 1), directions, batch, units), np.float32)
    count = len(attributes.activations) // directions
    for direction in range(directions):
        functions = attributes.activations[direction * count : (direction + 1) * count]

        def activate(number: int, values: np.ndarray, functions: tuple[Function, ...] = functions) -> np.ndarray:
            if attributes.clip is not None and number < 2:
                values = np.clip(values, -attributes.clip, attributes.clip)
            expression = activation(*functions[number], ex.register("x", "f32"))
            return np.asarray(evaluate_expr(expression, registers={"x": values.astype(np.float32)}))

        backwards = attributes.direction == "reverse" or direction == 1
        for row in range(batch):
            length = steps if lengths is None else min(int(lengths[row]), steps)
            h = np.zeros(units, np.float32) if hidden is None else hidden[direction, row]
            c = np.zeros(units, np.float32) if cell is None else cell[direction, row]
            p = np.zeros((3, units), np.float32) if peepholes is None else peepholes[direction].reshape(3, units)
            factors = weights[direction] if scale is None else weights[direction] * scale[direction, :, None]
            matrix = factors.reshape(-1, units, units)
            for step in range(length):
                time = length - 1 - step if backwards else step
                x = gates[direction, time, row].reshape(-1, units)
                state = _rounded(h) if attributes.quantised else h
                if lstm:
                    i, o, f, g = (x[gate] + matrix[gate] @ state for gate in range(4))
                    i = activate(0, i + p[0] * c)
                    f = 1 - i if attributes.input_forget else activate(0, f + p[2] * c)
                    c = f * c + i * activate(1, g)
                    h = activate(0, o + p[1] * c) * activate(2, c)
                elif attributes.kind == "gru":
                    z, r = (activate(0, x[gate] + matrix[gate] @ state) for gate in range(2))
                    if attributes.linear_before_reset:
                        bias = 0 if reset_bias is None else reset_bias[direction]
                        candidate = activate(1, x[2] + r * (matrix[2] @ state + bias))
                    else:
                        candidate = activate(1, x[2] + matrix[2] @ (r * state))
                    h = (1 - z) * candidate + z * h
                else:
                    h = activate(0, x[0] + matrix[0] @ state)
                result[time, direction, row] = h
            result[steps, direction, row] = h
            if lstm:
                result[steps + 1, direction, row] = c
    return result


def _rounded(state: np.ndarray) -> np.ndarray:
    """Quantise the state to 8 bits by its own range, and return the dequantised numbers."""
    low, high = min(float(state.min(initial=0)), 0.0), max(float(state.max(initial=0)), 0.0)
    scale = np.float32((high - low) / 255.0 if high > low else 1.0)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return ((np.clip(np.rint(state / scale) + zero, 0, 255) - zero) * scale).astype(np.float32)


# -- the operators ---------------------------------------------------------------------------------------------------


@record
class RecurrentLayerAttributes:
    activation_alpha: tuple[float, ...] | None = None
    activation_beta: tuple[float, ...] | None = None
    activations: tuple[str, ...] | None = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    layout: int = 0


@record
class GRUAttributes(RecurrentLayerAttributes):
    linear_before_reset: int = 0


@record
class LSTMAttributes(RecurrentLayerAttributes):
    input_forget: int = 0


@record
class Layer:
    """Sizes of a layer, checked against its operands."""

    kind: str
    directions: int
    steps: Dim
    batch: Dim
    inputs: Dim
    units: Dim


def functions_of(node: Node, kind: str, directions: int) -> tuple[Function, ...]:
    """Return the activation functions of all directions.

    Parameters are assigned in order to the functions that take them.
    """
    attributes = node.attributes
    names = attributes.activations or _STANDARD[kind] * directions
    wanted = len(_STANDARD[kind]) * directions
    checks.require(len(names) == wanted, node, f"{len(names)} activations, not {wanted}")
    alphas, betas = list(attributes.activation_alpha or ()), list(attributes.activation_beta or ())
    functions = []
    for name in names:
        defaults = DEFAULTS.get(name.lower())
        if defaults is None:
            raise UnsupportedError.of_attribute(node.op, "activations", name, DEFAULTS, origin=node.origin)
        alpha, beta = defaults
        if alpha is not None and alphas:
            alpha = alphas.pop(0)
        if beta is not None and betas:
            beta = betas.pop(0)
        functions.append((name.lower(), float(alpha or 0.0), float(beta or 0.0)))
    return tuple(functions)


def layer_of(node: Node, kind: str, weight_axis: int = 2) -> Layer:
    """Check the operands and return the sizes of the layer; ``weight_axis`` is that of W's inputs."""
    attributes = node.attributes
    checks.require_choice(node, "direction", _DIRECTIONS)
    checks.require_choice(node, "layout", (0, 1))
    value, weight, recurrence = node.operand(0), node.operand(1), node.operand(2)
    shapes = [value.rank, weight.rank, recurrence.rank]
    checks.require(shapes == [3, 3, 3], node, f"X, W and R of ranks {shapes}, not 3")
    directions = 2 if attributes.direction == "bidirectional" else 1
    first, second, inputs = value.shape
    steps, batch = (second, first) if attributes.layout else (first, second)
    units = recurrence.shape[weight_axis]
    rows = ix.multiply(units, GATES[kind])
    expected = {1: (directions, rows, inputs), 2: (directions, rows, units)}
    for position, wanted in expected.items():
        shape = node.operand(position).shape
        seen = shape if weight_axis == 2 else (shape[0], shape[2], shape[1])
        text = f"input {position} of shape {checks.describe_shape(shape)} does not fit {directions} directions"
        checks.require(seen == wanted, node, text)
    declared = attributes.hidden_size
    checks.require(declared is None or checks.is_size(units, declared), node, f"hidden_size is {declared}")
    state = (batch, directions, units) if attributes.layout else (directions, batch, units)
    optional: dict[int, Shape] = {3: (directions, ix.multiply(rows, 2)), 4: (batch,), 5: state}
    if kind == "lstm":
        optional |= {6: state, 7: (directions, ix.multiply(units, 3))}
    for position, fitting in optional.items():
        operand = node.optional(position)
        if operand is not None:
            actual, needed = checks.describe_shape(operand.shape), checks.describe_shape(fitting)
            checks.require(operand.shape == fitting, node, f"input {position} of shape {actual}, not {needed}")
    return Layer(kind, directions, steps, batch, inputs, units)


def infer_layer(node: Node, kind: str, weight_axis: int = 2) -> Inferred:
    layer = layer_of(node, kind, weight_axis)
    functions_of(node, kind, layer.directions)
    dtype = node.operand(0).dtype
    all_steps: Shape
    last: Shape
    if node.attributes.layout:
        all_steps = (layer.batch, layer.steps, layer.directions, layer.units)
        last = (layer.batch, layer.directions, layer.units)
    else:
        all_steps = (layer.steps, layer.directions, layer.batch, layer.units)
        last = (layer.directions, layer.batch, layer.units)
    return [(dtype, all_steps), (dtype, last), *([(dtype, last)] if kind == "lstm" else [])]


def _transposed(builder: Builder, value: Value, *perm: int) -> Value:
    return builder.op("Transpose", value, perm=perm)


def _view(builder: Builder, value: Value, *shape: Dim) -> Value:
    return builder.op("View", value, domain="loom", shape=shape)


def _slice(builder: Builder, value: Value, axis: int, start: Dim, size: Dim) -> Value:
    starts = [start if at == axis else 0 for at in range(value.rank)]
    sizes = [size if at == axis else each for at, each in enumerate(value.shape)]
    return builder.op(
        "StridedSlice",
        value,
        domain="loom",
        starts=tuple(starts),
        steps=(1,) * value.rank,
        sizes=tuple(sizes),
    )


def input_rows(builder: Builder, node: Node, layer: Layer) -> Value:
    """Reshape X to [1, steps * batch, inputs] in f32."""
    value = in_type(builder, node.operand(0), FLOAT32)
    if node.attributes.layout:
        value = _transposed(builder, value, 1, 0, 2)
    return _view(builder, value, 1, ix.multiply(layer.steps, layer.batch), layer.inputs)


def _biases(builder: Builder, node: Node, layer: Layer) -> tuple[Value | None, Value | None]:
    """Build the bias of all gates and the bias of a GRU's candidate that the reset gate multiplies.

    Their shapes are [directions, 1, gates * units] and [directions, units].
    """
    bias = node.optional(3)
    if bias is None:
        return None, None
    bias = in_type(builder, bias, FLOAT32)
    rows = ix.multiply(layer.units, GATES[layer.kind])
    of_input, of_state = (_slice(builder, bias, 1, ix.multiply(rows, half), rows) for half in (0, 1))
    axis = builder.constant(np.array([1], np.int64))
    if not (layer.kind == "gru" and node.attributes.linear_before_reset):
        return builder.op("Unsqueeze", builder.op("Add", of_input, of_state), axis), None
    split = ix.multiply(layer.units, 2)
    added = builder.op("Add", _slice(builder, of_input, 1, 0, split), _slice(builder, of_state, 1, 0, split))
    joined = builder.op("Concat", added, _slice(builder, of_input, 1, split, layer.units), axis=1)
    return builder.op("Unsqueeze", joined, axis), _slice(builder, of_state, 1, split, layer.units)


def run_layer(
    builder: Builder, node: Node, layer: Layer, gates: Value, recurrence: Value, scale: Value | None = None
) -> Sequence[Value]:
    """Build the outputs of the operator from the gates' input products and the recurrence weights.

    ``gates`` is [directions, steps * batch, gates * units], without biases; ``recurrence`` [directions, gates * units,
    units].  With a ``scale`` [directions, gates * units], which multiplies the products of ``recurrence``, the state is
    quantised.
    """
    attributes = node.attributes
    bias, reset_bias = _biases(builder, node, layer)
    if bias is not None:
        gates = builder.op("Add", gates, bias)
    gates = _view(builder, gates, layer.directions, layer.steps, layer.batch, gates.shape[2])
    hidden, cell = (
        _state(builder, node, node.optional(position)) if layer.kind == "lstm" or position == 5 else None
        for position in (5, 6)
    )
    peepholes = node.optional(7) if layer.kind == "lstm" else None
    if peepholes is not None:
        peepholes = in_type(builder, peepholes, FLOAT32)
    result = builder.op(
        "Recurrent",
        gates,
        recurrence,
        node.optional(4),
        hidden,
        cell,
        peepholes,
        reset_bias,
        scale,
        domain="loom",
        kind=layer.kind,
        direction=attributes.direction,
        activations=functions_of(node, layer.kind, layer.directions),
        clip=attributes.clip,
        linear_before_reset=bool(getattr(attributes, "linear_before_reset", 0)),
        input_forget=bool(getattr(attributes, "input_forget", 0)),
        quantised=scale is not None,
    )
    result = in_type(builder, result, node.operand(0).dtype)
    all_steps = _slice(builder, result, 0, 0, layer.steps)
    outputs = [_transposed(builder, all_steps, 2, 0, 1, 3) if attributes.layout else all_steps]
    for last in range(2 if layer.kind == "lstm" else 1):
        row = _slice(builder, result, 0, ix.add(layer.steps, last), 1)
        row = builder.op("Squeeze", row, builder.constant(np.array([0], np.int64)))
        outputs.append(_transposed(builder, row, 1, 0, 2) if attributes.layout else row)
    return outputs


def _state(builder: Builder, node: Node, value: Value | None) -> Value | None:
    if value is None:
        return None
    value = in_type(builder, value, FLOAT32)
    return _transposed(builder, value, 1, 0, 2) if node.attributes.layout else value


def _expand_layer(kind: str, builder: Builder, node: Node) -> Sequence[Value]:
    layer = layer_of(node, kind)
    weight = _transposed(builder, in_type(builder, node.operand(1), FLOAT32), 0, 2, 1)
    gates = builder.op("MatMul", input_rows(builder, node, layer), weight)
    return run_layer(builder, node, layer, gates, in_type(builder, node.operand(2), FLOAT32))


for _name, _kind, _attributes in (
    ("RNN", "rnn", RecurrentLayerAttributes),
    ("GRU", "gru", GRUAttributes),
    ("LSTM", "lstm", LSTMAttributes),
):
    register(
        name=_name,
        infer=(lambda kind: lambda node: infer_layer(node, kind))(_kind),
        attributes=_attributes,
        expand=(lambda kind: lambda builder, node: _expand_layer(kind, builder, node))(_kind),
        types=(FLOATS, FLOATS, FLOATS, FLOATS, frozenset({"int32"}), FLOATS, FLOATS, FLOATS),
    )
