"""Forms of contributed operators that onnxruntime's CPU provider lacks, against the same in another form.

Covers: compiler/ops/microsoft.
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

Arrays = dict[str, np.ndarray]
MICROSOFT = "com.microsoft"


def run(nodes: list[onnx.NodeProto], feeds: Arrays, outputs: list[str], constants: Arrays | None = None) -> list:
    """Results of the interpreter for a model of ``nodes``."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "forms", inputs, results, initializers)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    imported = load_model(model)
    lowered = specialise(imported, bind_shapes(imported, {name: array.shape for name, array in feeds.items()}).shapes)
    expand(lowered)
    return run_graph(lowered, feeds)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def compare(found: list, expected: list) -> None:
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("together", ["query, key and value", "key and value"])
def test_packed_projections(together: str, biased: bool) -> None:
    """MultiHeadAttention of one tensor [batch, sequence, heads, parts, size] is that of its parts."""
    heads, size = 3, 8
    count = 3 if together.startswith("query") else 2
    packed = random(2, 5, heads, count, size)
    parts = [packed[:, :, :, number].reshape(2, 5, heads * size) for number in range(count)]
    query = [] if count == 3 else [random(2, 4, heads * size)]
    bias = {"bias": random(3 * heads * size)} if biased else {}
    outputs = ["y", "key", "value"]

    def attention(operands: list[str]) -> onnx.NodeProto:
        names = [*operands, *[""] * (3 - len(operands)), *bias]
        return helper.make_node("MultiHeadAttention", names, outputs, domain=MICROSOFT, num_heads=heads)

    joined = {f"p{place}": array for place, array in enumerate([*query, packed])}
    separate = {f"s{place}": array for place, array in enumerate([*query, *parts])}
    found = run([attention(list(joined))], joined | bias, outputs)
    compare(found, run([attention(list(separate))], separate | bias, outputs))


def test_normalised_queries_and_keys() -> None:
    """GroupQueryAttention with weights of norms is that of heads which were normalised before."""
    heads, shared, size = 4, 2, 8
    feeds = {"q": random(1, 3, heads * size), "k": random(1, 3, shared * size), "v": random(1, 3, shared * size)}
    feeds |= {"lengths": np.array([2], np.int32)}
    weights = {"qw": random(size), "kw": random(size) + 1}
    constants = {"total": np.array(3, np.int32), "split": np.array([1, 3, -1, size]), "join": np.array([1, 3, -1])}
    attributes = {"num_heads": heads, "kv_num_heads": shared, "domain": MICROSOFT}
    outputs = ["y", "key", "value"]
    names = ["q", "k", "v", "", "", "lengths", "total"]
    inside = helper.make_node(
        "GroupQueryAttention", [*names, *[""] * 7, "qw", "kw"], outputs, qk_norm_epsilon=0.25, **attributes
    )
    before = []
    for name in ("q", "k"):
        before += [
            helper.make_node("Reshape", [name, "split"], [f"{name}1"]),
            helper.make_node("RMSNormalization", [f"{name}1", f"{name}w"], [f"{name}2"], axis=-1, epsilon=0.25),
            helper.make_node("Reshape", [f"{name}2", "join"], [f"{name}3"]),
        ]
    before.append(helper.make_node("GroupQueryAttention", ["q3", "k3", *names[2:]], outputs, **attributes))
    found = run([inside], feeds | weights, outputs, {"total": constants["total"]})
    compare(found, run(before, feeds | weights, outputs, constants))
