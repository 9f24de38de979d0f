"""Where constants beyond the range of float16 can carry values, from the graph alone."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.passes.expand import expand
from shaderloom.compiler.precision.overflow_analysis import IN_RANGE, overflowing_values

from ...support.passes import run_rewrites

LOW, HIGH, BOTH = (True, False), (False, True), (True, True)

#: the last node's result for x [3, 4], m [3, 4] (bool) and the constants beside -> where it may lie
CASES = {
    "y = Add (x, low)": LOW,
    "y = Sub (x, low)": HIGH,
    "y = Mul (x, low)": BOTH,
    "y = Div (x, low)": IN_RANGE,
    "y = Add (x, one)": IN_RANGE,
    "y = Where (m, low, x)": LOW,
    "y = Where (m, infinite, x)": IN_RANGE,
    "y = Max (x, low)": IN_RANGE,
    "y = Min (x, low)": LOW,
    "y = Clip (x, low, high)": IN_RANGE,
    "a = Where (m, low, x)  y = Relu (a)": IN_RANGE,
    "a = Where (m, low, x)  y = Sigmoid (a)": IN_RANGE,
    "a = Where (m, low, x)  y = Exp (a)": IN_RANGE,
    "a = Where (m, high, x)  y = Exp (a)": HIGH,
    "a = Where (m, low, x)  y = Tanh (a)": IN_RANGE,
    "a = Where (m, low, x)  y = Softmax <axis = -1> (a)": IN_RANGE,
    "a = Where (m, low, x)  y = Transpose (a)": LOW,
    "a = Where (m, low, x)  y = Neg (a)": HIGH,
    "a = Where (m, low, x)  y = Abs (a)": HIGH,
    "a = Where (m, low, x)  y = ReduceMax <axes = [1]> (a)": IN_RANGE,
    "a = Where (m, low, x)  y = ReduceMin <axes = [1]> (a)": LOW,
    "a = Where (m, low, x)  y = MatMul (a, w)": BOTH,
    "a = Where (m, low, x)  b = Cast <to = 7> (a)  y = Cast <to = 1> (b)": IN_RANGE,
}


@pytest.mark.parametrize("body", CASES)
def test_reach(body: str) -> None:
    text = "\n".join(part.strip() for part in body.split("  "))
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        far (float[3, 4] x, bool[3, 4] m) => (float[a, b] y) {{
        {text}
        }}"""
    )
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    constants = {
        "low": np.float32(-3.4e38),
        "high": np.float32(3.4e38),
        "one": np.float32(1),
        "infinite": np.float32(-np.inf),
        "w": np.ones((4, 5), np.float32),
    }
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items() if name in used
    )
    imported = load_model(model.SerializeToString())
    graph = specialise(imported, bind_shapes(imported, {"x": (3, 4), "m": (3, 4)}).shapes)
    expand(graph)
    run_rewrites(graph)
    assert overflowing_values(graph, 65504.0).get(graph.outputs[0], IN_RANGE) == CASES[body]
