"""A table that is multiplied by and gathered from is held once, in the order of the product.

Covers: compiler/passes/packed_products, compiler/ops/internal/packed_weights.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from ...support.running import compile_for, run_plan

ROWS, SIZE, BLOCK = 50, 64, 32
MICROSOFT = "com.microsoft"


def tied_decoder(*, zero_points: bool) -> onnx.ModelProto:
    """A tied embedding as exporters of decoders write it: both ends read one tensor of codes."""
    draw = np.random.default_rng(0)
    weights = {
        "codes": draw.integers(0, 256, (ROWS, SIZE // BLOCK, BLOCK // 2)).astype(np.uint8),
        "scales": draw.uniform(0.5, 1, (ROWS, SIZE // BLOCK)).astype(np.float32),
        "shape": np.array([ROWS, SIZE // 2]),
    }
    operands, sizes = ["codes", "scales"], {"bits": 4, "block_size": BLOCK}
    table = ["table", "ids", "scales"]
    if zero_points:
        weights["zeros"] = draw.integers(0, 256, (ROWS, SIZE // BLOCK // 2)).astype(np.uint8)
        operands, table = [*operands, "zeros"], [*table, "zeros"]
    nodes = [
        helper.make_node("Reshape", ["codes", "shape"], ["table"]),
        helper.make_node(
            "GatherBlockQuantized", table, ["x"], domain=MICROSOFT, gather_axis=0, quantize_axis=1, **sizes
        ),
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("MatMulNBits", ["t", *operands], ["y"], domain=MICROSOFT, K=SIZE, N=ROWS, **sizes),
    ]
    return _model(nodes, weights, ["x", "y"])


def signed_table() -> onnx.ModelProto:
    """The same with the operators of ONNX, and signed codes."""
    draw = np.random.default_rng(1)
    codes = draw.integers(-8, 8, (ROWS, SIZE))
    table = helper.make_tensor("codes", TensorProto.INT4, codes.shape, codes.ravel())
    scales = draw.uniform(0.5, 1, (ROWS, SIZE // BLOCK)).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "scales"], ["table"], axis=1, block_size=BLOCK),
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("Transpose", ["table"], ["columns"], perm=[1, 0]),
        helper.make_node("MatMul", ["t", "columns"], ["y"]),
    ]
    model = _model(nodes, {"scales": scales}, ["x", "y"])
    model.graph.initializer.append(table)
    return model


def _model(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], outputs: list[str]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "tied",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 3])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(
        graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    )


MODELS = {
    "codes of a decoder": lambda: tied_decoder(zero_points=False),
    "zero points": lambda: tied_decoder(zero_points=True),
    "signed": signed_table,
}


@pytest.mark.parametrize("name", MODELS)
def test_codes_are_held_once(device, name: str):
    model, feeds = MODELS[name](), {"ids": np.array([[0, 49, 17]])}
    plan = compile_for(model, feeds, device.profile)
    packed = -(-ROWS // 4) * 4 * SIZE // 2
    assert [weight.bytes for weight in plan.weights if weight.bytes >= ROWS * SIZE // 2] == [packed]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for found, expected in zip(run_plan(device, plan, model, feeds), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
