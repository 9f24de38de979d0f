"""Forms of contributed operators that onnxruntime's CPU provider lacks, against the same in another form.

Covers: compiler/ops/microsoft.
"""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.passes.expand import expand
from shaderloom.compiler.reference.interpreter import run_graph
from shaderloom.runtime.plan.errors import ShapeError

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


_HIDDEN = {"q": (2, 1, 8), "k": (2, 1, 8), "v": (2, 1, 8)}
_PAST = {"pk": (2, 2, 3, 4), "pv": (2, 2, 3, 4)}

MISFITS = {
    "length of past values": ({"pv": (2, 2, 2, 4)}, "a past of shape (2, 2, 2, 4) for values, not (2, 2, 3, 4)"),
    "length of past keys": ({"pk": (2, 2, 2, 4)}, "a past of shape (2, 2, 3, 4) for values, not (2, 2, 2, 4)"),
    "sequences of the past": ({"pk": (0, 2, 3, 4)}, "a past of shape (0, 2, 3, 4) for keys, not (2, 2, 3, 4)"),
    "heads of the past": ({"pv": (2, 1, 3, 4)}, "a past of shape (2, 1, 3, 4) for values, not (2, 2, 3, 4)"),
    "rank of the past": ({"pk": (2, 3, 8)}, "past keys are not of rank 4"),
    "no past values": ({"pv": None}, "past keys and past values come together"),
    "number of values": ({"v": (2, 3, 8)}, "(2, 1, 8) and (2, 3, 8) are no keys and values of 2 sequences"),
    "no sequence of queries": ({"q": (0, 1, 8)}, "(2, 1, 8) and (2, 1, 8) are no keys and values of 0 sequences"),
}


@pytest.mark.parametrize("misfit", MISFITS)
@pytest.mark.parametrize("operator", ["MultiHeadAttention", "with a buffer", "GroupQueryAttention"])
def test_keys_and_values_that_do_not_fit_are_refused(operator: str, misfit: str) -> None:
    """Also by GroupQueryAttention and with ``past_sequence_length``, which copy a past into a buffer."""
    changes, reason = MISFITS[misfit]
    feeds = {name: random(*shape) for name, shape in {**_HIDDEN, **_PAST, **changes}.items() if shape is not None}
    past = [name if name in feeds else "" for name in ("pk", "pv")]
    constants: Arrays = {}
    if operator == "GroupQueryAttention":
        constants = {"lengths": np.full(2, 3, np.int32), "total": np.array([4], np.int32)}
        names, attributes = ["q", "k", "v", *past, *constants], {"num_heads": 2, "kv_num_heads": 2}
    else:
        names, attributes = ["q", "k", "v", "", "", "", *past], {"num_heads": 2}
        if operator == "with a buffer":
            constants = {"valid": np.array([1], np.int32)}
            names += constants
    name = operator if operator.endswith("Attention") else "MultiHeadAttention"
    node = helper.make_node(name, names, ["y", "a", "b"], "at", domain=MICROSOFT, **attributes)
    with pytest.raises(ShapeError, match=re.escape(reason)) as caught:
        run([node], feeds, ["y"], constants)
    assert f"at {name} 'at'" in str(caught.value)
