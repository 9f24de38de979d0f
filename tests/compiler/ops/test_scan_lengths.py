"""Scan of opset 8 with lengths of sequences: against onnxruntime, with lengths known and computed.

Covers: compiler/binding/loop_unrolling.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.passes.expand import expand
from shaderloom.compiler.reference.interpreter import run_graph

from ...support.cases import run_onnxruntime


def _port(name: str, shape: list[int] | None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def _model(lengths: list[int] | None, directions: list[int]) -> onnx.ModelProto:
    """A running product of [3] rows of one sequence, plus rows of another."""
    nodes = [helper.make_node("Mul", ["state", "a"], ["scaled"]), helper.make_node("Add", ["scaled", "b"], ["next"])]
    nodes.append(helper.make_node("Neg", ["next"], ["row"]))
    ports = [_port(name, [3]) for name in ("state", "a", "b")]
    body = helper.make_graph(nodes, "body", ports, [_port("next", [3]), _port("row", [3])])
    scan = helper.make_node(
        "Scan", ["lengths", "start", "as", "bs"], ["y", "rows"], body=body, num_scan_inputs=2, directions=directions
    )
    inputs = [_port("start", [2, 3]), _port("as", [2, 5, 3]), _port("bs", [2, 5, 3])]
    constants = []
    if lengths is None:
        inputs.append(_port("lengths", [2], TensorProto.INT64))
    else:
        constants.append(helper.make_tensor("lengths", TensorProto.INT64, [2], lengths))
    results = [_port("y", [2, 3]), _port("rows", [2, 5, 3])]
    graph = helper.make_graph([scan], "scan", inputs, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=4)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("directions", [[0, 0], [1, 0], [1, 1]])
@pytest.mark.parametrize("lengths", [[5, 5], [3, 5], [1, 4]])
def test_lengths(lengths: list[int], directions: list[int], known: bool) -> None:
    generator = np.random.default_rng(7)
    shapes = {"start": (2, 3), "as": (2, 5, 3), "bs": (2, 5, 3)}
    feeds = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    if not known:
        feeds["lengths"] = np.array(lengths, np.int64)
    model = _model(lengths if known else None, directions)
    imported = load_model(model)
    graph = specialise(imported, bind_shapes(imported, {name: array.shape for name, array in feeds.items()}).shapes)
    expand(graph)
    for found, expected in zip(run_graph(graph, feeds), run_onnxruntime(model, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
