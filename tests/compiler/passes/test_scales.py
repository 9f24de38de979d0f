"""Factors behind convolutions and products: which move into the weights, and why others stay."""

from __future__ import annotations

import numpy as np
import pytest

from ...support.graphs import Example, weights
from ...support.passes import run_rewrites


def test_a_shared_result_is_not_scaled():
    example = Example(
        """g (float[1, 3, 5, 5] x) => (float[1, 4, 5, 5] y, float[1, 4, 5, 5] c) {
            c = Conv (x, w)
            y = Mul (c, s)
        }""",
        {"x": (1, 3, 5, 5)},
        {"w": weights(4, 3, 1, 1), "s": weights(4, 1, 1)},
    )
    remarks = []
    graph = example.graph()
    run_rewrites(graph, remarks=remarks)
    assert [node.op for node in graph.nodes] == ["Convolution", "Mul"]
    assert "the unscaled result is needed too" in {entry.refused for entry in remarks}


@pytest.mark.parametrize(
    ("factor", "reason"),
    [
        (np.float32(np.inf), "the factor is not finite"),
        (np.float32(1e-38), "the factor is near the ends of the range of floats"),
        (weights(5), "the factor changes along other axes than that of output channels"),
    ],
)
def test_refused_factors(factor: np.ndarray, reason: str):
    example = Example(
        "g (float[1, 3, 5, 5] x) => (float[1, 4, 5, 5] y) { c = Conv (x, w) y = Mul (c, s) }",
        {"x": (1, 3, 5, 5)},
        {"w": weights(4, 3, 1, 1), "s": factor},
    )
    remarks = []
    graph = example.graph()
    run_rewrites(graph, remarks=remarks)
    assert [node.op for node in graph.nodes] == ["Convolution", "Mul"]
    assert reason in {entry.refused for entry in remarks}


LARGE_WEIGHT = """g (float[1, 200] x) => (float[1, 200] y) {
    BEFORE
    c = MatMul (a, w)
    AFTER
}"""


@pytest.mark.parametrize(
    ("before", "after", "factor", "reason"),
    [
        ("a = Mul (x, s)", "y = Neg (c)", weights(200), "scaling the large weight costs more than scaling the operand"),
        (
            "a = Neg (x)",
            "y = Mul (c, s)",
            np.float32(0.3),
            "scaling the large weight costs more than multiplying by one number",
        ),
        ("a = Neg (x)", "y = Mul (c, s)", weights(200), None),
    ],
)
def test_large_weights_are_scaled_for_vectors_of_outputs_alone(before, after, factor, reason):
    text = LARGE_WEIGHT.replace("BEFORE", before).replace("AFTER", after)
    example = Example(text, {"x": (1, 200)}, {"w": weights(200, 200), "s": factor})
    remarks = []
    graph = example.graph()
    run_rewrites(graph, remarks=remarks)
    multiplied = next(node for node in graph.nodes if node.op == "Mul")
    assert (multiplied.output.shape == (200, 200)) == (reason is None)
    assert reason is None or reason in {entry.refused for entry in remarks}
