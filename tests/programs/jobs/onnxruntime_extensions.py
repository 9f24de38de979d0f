"""onnxruntime-extensions: a model with operators of its library, which registers them, and others around them."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime_extensions import get_library_path


def run():
    nodes = [
        helper.make_node("StringUpper", ["text"], ["upper"], domain="ai.onnx.contrib"),
        helper.make_node("StringLength", ["text"], ["length"], domain="ai.onnx.contrib"),
        helper.make_node("Cast", ["length"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["number", "factor"], ["scaled"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("text", TensorProto.STRING, ["n"]),
            helper.make_tensor_value_info("factor", TensorProto.FLOAT, [1]),
        ],
        [
            helper.make_tensor_value_info("upper", TensorProto.STRING, ["n"]),
            helper.make_tensor_value_info("scaled", TensorProto.FLOAT, ["n"]),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.contrib", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(get_library_path())
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    upper, scaled = session.run(None, {"text": np.array(["graph", "compilers"]), "factor": np.array([0.5], np.float32)})
    return {"upper": upper.tolist(), "scaled": scaled.tolist()}
