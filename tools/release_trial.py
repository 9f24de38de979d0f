"""Use an installed package: load every public name, and run a model of two nodes on the default device."""

import numpy as np
from onnx import TensorProto, helper

import shaderloom

for name in shaderloom.__all__:
    getattr(shaderloom, name)

graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
    "trial",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 2])],
    [helper.make_tensor("w", TensorProto.FLOAT, [3, 2], [1, -1, 2, -2, 3, -3])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
x = np.array([[1, 2, 3], [-1, -2, -3]], np.float32)
with shaderloom.InferenceSession(model, cache=False) as session:
    (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, [[14, 0], [0, 14]])
    print(f"{shaderloom.__version__} runs on {session.device.name}")
