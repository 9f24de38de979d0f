"""Sessions of the cpu provider alone: no device, onnxruntime's options, and models that it cannot load as a whole."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import shaderloom
from shaderloom.api.real_onnxruntime import real_onnxruntime
from shaderloom.runtime.plan.errors import InputError, ModelError, UnsupportedError

pytestmark = pytest.mark.usefixtures("quiet_providers")

ADD = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n] x, float[1] b) => (float[n] y) <float[1] b = {1}> { y = Add(x, b) }"""


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def numbers(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


def test_a_cpu_session_has_no_device():
    with shaderloom.InferenceSession(parse(ADD), providers=["cpu"]) as session:
        for use in (lambda: session.device, session.report, session.prepare, session.recover):
            with pytest.raises(UnsupportedError, match=r"cpu alone \[open it with providers=\['wgpu', 'cpu'\]"):
                use()
        assert session.device_bytes == 0
        with pytest.raises(InputError, match="float64, expected float32"):
            session.run(None, {"x": np.zeros(3)})
        session.synchronize()
    with pytest.raises(shaderloom.ClosedError):
        session.run(None, {"x": np.zeros(3, np.float32)})
    with pytest.raises(InputError, match="cpu alone"):
        shaderloom.InferenceSession(parse(ADD), providers=["cpu"], preferred_output_location="gpu-buffer")


def test_options_of_the_session_reach_onnxruntime(monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    opened = []

    initialise = onnxruntime.InferenceSession.__init__

    def record(session, *arguments, **options):
        initialise(session, *arguments, **options)
        opened.append(session)

    monkeypatch.setattr(onnxruntime.InferenceSession, "__init__", record)
    settings = shaderloom.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.execution_mode = shaderloom.ExecutionMode.ORT_PARALLEL
    settings.graph_optimization_level = shaderloom.GraphOptimizationLevel.ORT_DISABLE_ALL
    with shaderloom.InferenceSession(parse(ADD), settings, providers=["cpu"]) as session:
        session.run(None, {"x": np.zeros(3, np.float32)})
    (theirs,) = (each.get_session_options() for each in opened)
    assert theirs.intra_op_num_threads == 1
    assert theirs.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL
    assert theirs.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def test_libraries_of_operators_reach_onnxruntime(device, monkeypatch, tmp_path):
    """Also for the nodes that a device leaves to the cpu; a program of tests/programs runs a real library."""
    pytest.importorskip("onnxruntime")
    path = tmp_path / "library.so"
    settings = shaderloom.SessionOptions()
    with pytest.raises(FileNotFoundError, match="there is no file"):
        settings.register_custom_ops_library(path)
    path.touch()
    with pytest.raises(ModelError, match="Failed to load library"):
        settings.register_custom_ops_library(path)
    loaded = []

    class Recorded(real_onnxruntime().C.SessionOptions):
        def register_custom_ops_library(self, path: str) -> None:
            loaded.append(path)

    monkeypatch.setattr(real_onnxruntime().C, "SessionOptions", Recorded)
    settings.register_custom_ops_library(path)
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (double[3] x) => (double[3] y) { y = Relu(x) }""")
    for providers in (["cpu"], ["wgpu", "cpu"]):
        loaded.clear()
        with shaderloom.InferenceSession(model, settings, providers, device=device, cache=False) as session:
            session.run(None, {"x": np.zeros(3)})
        assert loaded == [str(path)]


def test_models_that_onnxruntime_cannot_load_run_node_by_node(device):
    # onnxruntime has no operators of training
    adagrad = helper.make_node(
        "Adagrad",
        ["r", "t", "x2", "g", "h"],
        ["x_new", "h_new"],
        domain="ai.onnx.preview.training",
        norm_coefficient=0.001,
        epsilon=1e-5,
        decay_factor=0.1,
    )
    infos = [
        helper.make_tensor_value_info("r", TensorProto.FLOAT, []),
        helper.make_tensor_value_info("t", TensorProto.INT64, []),
        *(helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xgh"),
    ]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["x2"]), adagrad],
        "training",
        infos,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x_new", "h_new")],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.preview.training", 1)]
    )
    feeds = {"r": np.float32(0.1), "t": np.int64(0), **{name: numbers(2, seed=ord(name)) ** 2 for name in "xgh"}}
    expected = ReferenceEvaluator(model).run(None, feeds)
    for providers in (["wgpu", "cpu"], ["cpu"]):
        with shaderloom.InferenceSession(model, providers=providers, device=device, cache=False) as session:
            for actual, wanted in zip(session.run(None, feeds), expected, strict=True):
                np.testing.assert_allclose(actual, wanted, rtol=1e-6)
            first, second = session.placement()
    assert (first.provider, second.provider) == ("cpu", "cpu")
    assert first.reason.endswith("by onnxruntime")
    assert second.reason.endswith("by onnx.reference")
