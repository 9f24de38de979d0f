"""The backend as onnx and its tools use it."""

from __future__ import annotations

import unittest

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.backend.base import Backend, BackendRep

from shaderloom import backend
from shaderloom.backend import ShaderloomBackend, parse_device
from shaderloom.runtime.plan.errors import InputError, UnsupportedError


def model(op: str = "Add", dims: tuple[object, ...] = (3, 1), element_type: int = TensorProto.FLOAT) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(name, element_type, dims) for name in "ab"]
    node = helper.make_node(op, ["a", "b"], ["y"])
    graph = helper.make_graph([node], "g", ports, [helper.make_tensor_value_info("y", element_type, dims)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


LEFT, RIGHT = np.arange(3, dtype=np.float32).reshape(3, 1), np.full((3, 1), 0.5, np.float32)


def test_prepare_and_run(device):
    prepared = ShaderloomBackend.prepare(model(), providers=["wgpu"], device=device)
    assert isinstance(prepared, BackendRep) and issubclass(ShaderloomBackend, Backend)
    for inputs in ([LEFT, RIGHT], (LEFT, RIGHT), {"b": RIGHT, "a": LEFT}):
        result = prepared.run(inputs)
        np.testing.assert_array_equal(result[0], LEFT + RIGHT)
        np.testing.assert_array_equal(result.y, result["y"])
    with pytest.raises(InputError, match="2 inputs, 1 were given"):
        prepared.run([LEFT])
    prepared.close()


def test_run_model_on_the_host():
    np.testing.assert_array_equal(backend.run_model(model(), [LEFT, RIGHT], device="CPU")[0], LEFT + RIGHT)


def test_prepare_checks_the_model():
    wrong = model()
    wrong.graph.node[0].input[0] = "nothing"
    with pytest.raises(onnx.checker.ValidationError):
        backend.prepare(wrong, device="CPU")


def test_run_node(device):
    node = helper.make_node("Mul", ["a", "b"], ["y"])
    (result,) = backend.run_node(node, [LEFT, RIGHT], device="WGPU+CPU")
    np.testing.assert_array_equal(result, LEFT * RIGHT)
    outputs = [(np.dtype(np.float32), (3, 1))]
    (again,) = backend.run_node(node, {"a": LEFT, "b": RIGHT}, device="CPU", outputs_info=outputs, opset_version=13)
    np.testing.assert_array_equal(again, result)


def test_run_node_with_an_omitted_input_and_another_domain(device):
    clip = helper.make_node("Clip", ["x", "", "top"], ["y"])
    np.testing.assert_array_equal(backend.run_node(clip, [LEFT, np.float32(1)])[0], np.minimum(LEFT, 1))
    gelu = helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft", alpha=1.0)
    np.testing.assert_allclose(backend.run_node(gelu, LEFT)[0], LEFT / (1 + np.exp(-LEFT)), rtol=1e-6)


def test_is_compatible(device):
    options = {"providers": ["wgpu"]}
    assert backend.is_compatible(model(), **options)
    assert backend.is_compatible(model(dims=("n", 1)), **options)
    assert not backend.is_compatible(model("StringConcat", element_type=TensorProto.STRING), **options)
    assert backend.is_compatible(model("StringConcat", element_type=TensorProto.STRING), device="CPU")
    assert not backend.is_compatible(model(dims=(3, 1), element_type=TensorProto.DOUBLE), **options)


def test_what_a_device_refuses(device):
    with pytest.raises(UnsupportedError):
        backend.prepare(model("StringConcat", element_type=TensorProto.STRING))


def test_names_of_devices():
    assert parse_device("WGPU") == (["wgpu"], None)
    assert parse_device("gpu:2+cpu") == (["wgpu", "cpu"], 2)
    assert parse_device("WGPU:llvmpipe") == (["wgpu"], "llvmpipe")
    assert parse_device("CPU:0") == (["cpu"], None)
    with pytest.raises(InputError, match="TPU"):
        parse_device("TPU")
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA")


def test_the_suite_of_onnx_accepts_it(device, monkeypatch):
    """onnx's own runner, with a few of the cases that are files: those of single nodes are made by a minute of code."""
    import onnx.backend.test
    from onnx.backend.test import runner

    load = runner.load_model_tests
    monkeypatch.setattr(runner, "load_model_tests", lambda kind: [] if kind == "node" else load(kind=kind))
    suite = onnx.backend.test.BackendTest(ShaderloomBackend, __name__, test_kwargs={"providers": ["wgpu"]})
    suite.include(r"test_operator_(clip|conv|maxpool|reduced_sum_keepdim)_cpu$")
    result = unittest.TestResult()
    suite.test_suite.run(result)
    assert result.wasSuccessful(), [*result.errors, *result.failures]
    assert result.testsRun - len(result.skipped) >= 4
