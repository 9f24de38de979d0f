"""What print and repr show of a graph.  Covers: compiler/ir/graph."""

from __future__ import annotations

import onnx

from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model

TEXT = """
<ir_version: 9, opset_import: ["" : 17]>
rows (float[n, 8] x) => (float[n, 8] y) { s = Softmax <axis = 1> (x)  y = Neg (s) }
"""


def test_a_graph_prints_a_line_for_each_node():
    model = load_model(onnx.parser.parse_model(TEXT).SerializeToString())
    graph = specialise(model, bind_shapes(model, {"x": (4, 8)}).shapes)
    assert str(graph).splitlines() == [
        "graph main(%1:float32[4x8] x)",
        "  %3:float32[4x8] = Softmax(%1:float32[4x8]) SoftmaxAttributes(axis=1, flatten=0) # onnx 0",
        "  %5:float32[4x8] = Neg(%3:float32[4x8]) # onnx 1",
        "  return %5:float32[4x8]",
    ]
    assert repr(graph) == "Graph('main', 2 nodes)"
