"""Types of the values of a model, inferred without ending the process.

Covers: shaderloom/model/value_types.py.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import shaderloom
from shaderloom.model.value_types import value_types

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1])
TEXT = helper.make_tensor_value_info("y", TensorProto.STRING, ["n", 1])


def ml(op: str, read: str, result: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, [read], [result], domain="ai.onnx.ml", **attributes)


def make(nodes: list[onnx.NodeProto], outputs: list[onnx.ValueInfoProto], **fields: object) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("own", 1)]
    graph = helper.make_graph(nodes, "g", [X], outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, **fields)


def tensor_types(model: onnx.ModelProto) -> dict[str, str]:
    types = {name: kind.tensor_type.elem_type for name, kind in value_types(model).items()}
    return {name: TensorProto.DataType.Name(kind) for name, kind in types.items() if kind}


LABELS = {"keys_floats": [1.0, 2.0], "values_strings": ["one", "two"]}
UNKNOWN = helper.make_node("Own", ["x"], ["t"], domain="own")
MATCH = helper.make_node("RegexFullMatch", ["t"], ["m"], pattern="a.*")


def branches() -> onnx.NodeProto:
    """An If whose branches have such an operator behind an unknown one."""
    body = helper.make_graph([UNKNOWN, MATCH], "b", [], [helper.make_tensor_value_info("m", TensorProto.BOOL, None)])
    return helper.make_node("If", ["c"], ["i"], then_branch=body, else_branch=body)


@pytest.mark.parametrize(
    "nodes",
    [
        [UNKNOWN, MATCH],
        [UNKNOWN, ml("LabelEncoder", "t", "y", **LABELS)],
        [UNKNOWN, ml("DictVectorizer", "t", "y", string_vocabulary=["a"])],
        [helper.make_node("Own", ["x"], ["c"], domain="own"), branches()],
        [helper.make_node("Constant", [], ["c"], value=helper.make_tensor("v", TensorProto.BOOL, [], [1])), branches()],
    ],
)
def test_operands_of_unknown_types_do_not_end_the_process(nodes):
    known = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16)]
    types = tensor_types(make([*nodes, *known], []))
    assert (types["x"], types["s"], types["h"]) == ("FLOAT", "INT64", "FLOAT16")


def test_a_function_may_have_such_operators():
    inner = [helper.make_node("Own", ["t"], ["u"], domain="own"), helper.make_node("RegexFullMatch", ["u"], ["m"])]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Match", ["t"], ["m"], inner, opsets)
    nodes = [helper.make_node("Match", ["x"], ["m"], domain="own"), helper.make_node("Shape", ["x"], ["s"])]
    assert tensor_types(make(nodes, [], functions=[function]))["s"] == "INT64"


def test_operands_of_known_types_are_inferred():
    label = ml("LabelEncoder", "x", "y", **LABELS)
    size = helper.make_node("Identity", ["y"], ["z"])
    types = tensor_types(make([label, size], []))
    assert (types["y"], types["z"]) == ("STRING", "STRING")


@pytest.mark.usefixtures("quiet_providers")
@pytest.mark.parametrize("providers", [["wgpu", "cpu"], ["cpu"]])
def test_texts_behind_a_scaler(device, providers):
    """Inference gives no type for the result of a Scaler, which runs on the device."""
    onnxruntime = pytest.importorskip("onnxruntime")
    nodes = [
        ml("Scaler", "x", "t", offset=[0.0], scale=[2.0]),
        ml("LabelEncoder", "t", "y", **LABELS),
    ]
    model = make(nodes, [TEXT])
    feeds = {"x": np.array([[0.5], [1], [3]], np.float32)}
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, feeds
    )
    with shaderloom.InferenceSession(model, providers=providers, device=device, cache=False) as session:
        (actual,) = session.run(None, feeds)
    np.testing.assert_array_equal(actual, expected)
