"""Recurrent layers one above another with seeded weights, as exporters write them."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

UNITS, LAYERS, STEPS = 768, 3, 80
#: Operators -> gates of a unit
GATES = {"LSTM": 4, "GRU": 3}


def recurrent(operator: str) -> ModelProto:
    """Return a model of ``LAYERS`` layers of ``UNITS`` units for one sequence of ``STEPS`` steps."""
    rng = np.random.default_rng(0)
    rows, bound = GATES[operator] * UNITS, UNITS**-0.5
    nodes, constants, value = [], [numpy_helper.from_array(np.array([1], np.int64), "axes")], "input"
    extra = {"linear_before_reset": 1} if operator == "GRU" else {}
    for layer in range(LAYERS):
        for name, shape in (("w", (1, rows, UNITS)), ("r", (1, rows, UNITS)), ("b", (1, 2 * rows))):
            array = rng.uniform(-bound, bound, shape).astype(np.float32)
            constants.append(numpy_helper.from_array(array, f"{name}{layer}"))
        inputs = [value, f"w{layer}", f"r{layer}", f"b{layer}"]
        nodes.append(helper.make_node(operator, inputs, [f"states{layer}"], hidden_size=UNITS, **extra))
        value = "output" if layer == LAYERS - 1 else f"value{layer}"
        nodes.append(helper.make_node("Squeeze", [f"states{layer}", "axes"], [value]))
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (STEPS, 1, UNITS)) for name in ("input", "output")]
    graph = helper.make_graph(nodes, operator, ports[:1], ports[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def sequence() -> dict[str, np.ndarray]:
    """Return the inputs of the model."""
    return {"input": np.random.default_rng(1).standard_normal((STEPS, 1, UNITS), dtype=np.float32)}
