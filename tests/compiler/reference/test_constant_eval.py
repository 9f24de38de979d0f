"""Constants in numpy: the numbers that kernels would give, rounded once; and what is no constant."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.ir.graph import Graph
from shaderloom.compiler.passes.expand import expand
from shaderloom.compiler.reference.constant_eval import evaluate_constant
from shaderloom.runtime.plan.errors import InternalError

LEFT, RIGHT = (np.random.default_rng(seed).standard_normal((40, 40)).astype(np.float32) for seed in (1, 2))
EXP = np.exp(RIGHT.astype(np.float64))


def graph_of(text: str) -> Graph:
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>' + text)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in (("l", LEFT), ("r", RIGHT))
    )
    imported = load_model(model.SerializeToString())
    graph = specialise(imported, bind_shapes(imported, {"x": (40, 40)}).shapes)
    expand(graph)
    return graph


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("w = Exp(l)", np.exp(LEFT.astype(np.float64))),
        ("p = MatMul(l, r)  w = Mul(p, l)", (LEFT.astype(np.float64) @ RIGHT) * LEFT),
        ("t = Transpose<perm = [1, 0]>(l)  d = Sub(t, r)  w = Tanh(d)", np.tanh(LEFT.astype(np.float64).T - RIGHT)),
        (
            "a = Softmax<axis = 0>(r)  w = Add(a, a)",
            2 * EXP / EXP.sum(0),
        ),
    ],
    ids=["a function", "a product and its factor", "a view", "a decomposition"],
)
def test_constants_are_those_of_float64(text, expected):
    graph = graph_of(f"g (float[40, 40] x) => (float[40, 40] y) {{ {text}  y = Add(x, w) }}")
    (weight,) = (value for value in graph.outputs[0].producer.inputs if value not in graph.inputs)
    found = evaluate_constant(weight)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


def test_what_depends_on_an_input_is_no_constant():
    graph = graph_of("g (float[40, 40] x) => (float[40, 40] y) { a = Add(x, l)  y = Exp(a) }")
    with pytest.raises(InternalError, match="is no constant"):
        evaluate_constant(graph.outputs[0])
