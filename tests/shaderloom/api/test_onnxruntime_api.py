"""Programs written for onnxruntime: the same calls on both, the same answers; and what is different on purpose.

Covers: shaderloom/api, shaderloom/session.
"""

from __future__ import annotations

import threading

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import shaderloom
from shaderloom.runtime.plan.errors import InputError

from ...support.patience import PATIENCE
from .conftest import MODEL

onnxruntime = pytest.importorskip("onnxruntime")


def both(device, model):
    """The same program's session in each library."""
    yield onnxruntime, onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    yield shaderloom, shaderloom.InferenceSession(model, device=device, cache=False, providers=["JsExecutionProvider"])


def test_one_program_for_both(device, model, x):
    """As little as an import and the provider's name differ."""
    answers = []
    for library, session in both(device, model):
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_output("y")
        binding.bind_output("z", "cpu")
        session.run_with_iobinding(binding)
        bound = binding.copy_outputs_to_cpu()
        value = library.OrtValue.ortvalue_from_numpy(x)
        empty = library.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
        binding.clear_binding_inputs()
        binding.clear_binding_outputs()
        binding.bind_ortvalue_input("x", value)
        binding.bind_ortvalue_output("y", empty)
        session.run_with_iobinding(binding, library.RunOptions())
        finished = threading.Event()
        called: list[object] = []

        def callback(results, user_data, error, called=called, finished=finished):
            called.extend([results, user_data, error])
            finished.set()

        session.run_async(["z"], {"x": x}, callback, "mine")
        assert finished.wait(PATIENCE)
        answers.append(
            {
                "run": session.run(None, {"x": x}),
                "named": session.run(["z"], {"x": x, "b": x[0]}),
                "bound": bound,
                "empty": empty.numpy(),
                "outputs": [output.numpy() for output in binding.get_outputs()],
                "values": [output.numpy() for output in session.run_with_ort_values(["z", "y"], {"x": value}, None)],
                "shape": value.shape(),
                "type": value.data_type(),
                "device": value.device_name(),
                "facts": (value.is_tensor(), value.has_value(), value.is_sparse_tensor(), value.element_type()),
                "inputs": [(port.name, port.type, port.shape) for port in session.get_inputs()],
                "overridable": [(port.name, port.type, port.shape) for port in session.get_overridable_initializers()],
                "async": called,
            }
        )
    theirs, ours = answers
    for name, answer in theirs.items():
        mine = ours[name]
        if name == "async":
            np.testing.assert_allclose(mine[0][0], answer[0][0])
            assert mine[1:] == answer[1:]
        elif isinstance(answer, np.ndarray) or (isinstance(answer, list) and isinstance(answer[0], np.ndarray)):
            np.testing.assert_allclose(np.asarray(mine), np.asarray(answer), err_msg=name)
        else:
            assert mine == answer, name


def test_session_and_binding_names_are_those_of_onnxruntime(session, model):
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    absent = {
        "disable_fallback",
        "enable_fallback",
        "set_providers",
        "get_tuning_results",
        "set_tuning_results",
        "set_ep_dynamic_options",
        "run_with_ortvaluevector",
        "get_input_epdevices",
        "get_input_memory_infos",
        "get_output_memory_infos",
        "get_output_epdevices",
        "get_provider_graph_assignment_info",
        "create_ortvalue_from_shape_and_type",
        "release_captured_graph",
    }
    names = {name for name in dir(theirs) if not name.startswith("_")}
    assert {name for name in names - absent if not hasattr(session, name)} == set()
    bindings = {name for name in dir(theirs.io_binding()) if not name.startswith("_")}
    assert {name for name in bindings if not hasattr(session.io_binding(), name)} == set()


def test_device_names_and_providers():
    assert shaderloom.get_device() in ("CPU", "GPU")
    assert set(shaderloom.get_available_providers()) <= {"wgpu", "cpu"}
    assert "cpu" in shaderloom.get_available_providers()


def test_errors_are_also_those_of_onnxruntime_by_name(device, session, x, tmp_path):
    """Each library's program fails with classes of the same name, as a module of onnxruntime has them."""
    parse = onnx.parser.parse_model
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y)'
    unknown = parse(head + "{ y = Unheard(x) }").SerializeToString()
    faults = {
        "missing": lambda library, opened: library.InferenceSession(tmp_path / "none.onnx"),
        "garbage": lambda library, opened: library.InferenceSession(b"garbage"),
        "operator": lambda library, opened: library.InferenceSession(unknown),
        "output": lambda library, opened: opened.run(["q"], {"x": x}),
        "type": lambda library, opened: opened.run(None, {"x": x.astype(np.float64)}),
        "rank": lambda library, opened: opened.run(None, {"x": x[0]}),
        "name": lambda library, opened: opened.run(None, {"x": x, "q": x}),
    }
    theirs = onnxruntime.InferenceSession(parse(MODEL).SerializeToString(), providers=["CPUExecutionProvider"])
    for fault, commit in faults.items():
        with pytest.raises(Exception) as expected:  # onnxruntime's errors have no common base
            commit(onnxruntime, theirs)
        with pytest.raises(shaderloom.ShaderloomError) as raised:
            commit(shaderloom, session)
        assert expected.type.__name__ in {base.__name__ for base in raised.type.__mro__}, fault


@pytest.mark.parametrize("providers", [["wgpu"], ["cpu"], ["wgpu", "cpu"]])
def test_a_missing_file_is_an_error_of_its_own(device, tmp_path, providers):
    """That of the model, and one that the model refers to: the error names it."""
    with pytest.raises(FileNotFoundError, match=r"there is no file '.*none\.onnx'"):
        shaderloom.InferenceSession(tmp_path / "none.onnx", device=device, providers=providers)
    weights = numpy_helper.from_array(np.ones(300, np.float32), "w")
    graph = onnx.parser.parse_graph("g (float[300] x) => (float[300] y) { y = Mul(x, w) }")
    graph.initializer.append(weights)
    path = tmp_path / "model.onnx"
    onnx.save_model(
        onnx.helper.make_model(graph), path, save_as_external_data=True, location="data.bin", size_threshold=0
    )
    (tmp_path / "data.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"tensor 'w': there is no file '.*data\.bin' \[.*beside the model"):
        shaderloom.InferenceSession(path, device=device, providers=providers, cache=False).run(
            None, {"x": np.ones(300, np.float32)}
        )
    with pytest.raises(FileNotFoundError, match="there is no bundle"):
        shaderloom.load_bundle(tmp_path / "none.shaderbundle", device=device)


def test_what_is_no_model_is_refused_with_what_is_one():
    with pytest.raises(InputError, match=r"not int \[pass one of these"):
        shaderloom.InferenceSession(3)


def test_no_names_are_all_outputs(session, model, x):
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for mine, expected in zip(session.run([], {"x": x}), theirs.run([], {"x": x}), strict=True):
        np.testing.assert_array_equal(mine, expected)


TYPES = """
<ir_version: 8, opset_import: ["" : 17]>
g (seq(float[2]) s, optional(float[2]) o, seq(int64[1]) n, string[2] t) => (seq(float[2]) y, float[2] z) {
    y = Identity(s)
    z = OptionalGetElement(o)
}
"""


@pytest.mark.parametrize("providers", [["wgpu", "cpu"], ["cpu"]])
def test_types_of_what_is_no_tensor(device, providers):
    model = onnx.parser.parse_model(TYPES).SerializeToString()
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    with shaderloom.InferenceSession(model, providers=providers, device=device, cache=False) as session:
        for mine, expected in ((session.get_inputs, theirs.get_inputs), (session.get_outputs, theirs.get_outputs)):
            assert [(port.name, port.type) for port in mine()] == [(port.name, port.type) for port in expected()]


def test_maps_have_the_type_that_onnxruntime_says():
    """Of outputs of classifiers: onnx's parser has no text for them."""
    make = onnx.helper
    kind = make.make_sequence_type_proto(make.make_map_type_proto(7, make.make_tensor_type_proto(1, [])))
    nodes = [make.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[3, 5])]
    value = make.make_tensor_value_info("x", 1, [2, 2])
    graph = make.make_graph(nodes, "g", [value], [make.make_value_info("y", kind)])
    opsets = [make.make_opsetid("", 17), make.make_opsetid("ai.onnx.ml", 3)]
    model = make.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    with shaderloom.InferenceSession(model, providers=["cpu"]) as session:
        assert session.get_outputs()[0].type == theirs.get_outputs()[0].type
        x = np.array([[0.25, 0.75], [0.5, 0.5]], np.float32)
        assert session.run(None, {"x": x}) == theirs.run(None, {"x": x})


def test_a_session_says_what_it_is(device, model, x):
    session = shaderloom.InferenceSession(model, device=device, cache=False)
    assert repr(session) == f"<InferenceSession of 'g' with 2 nodes on {device.name}: 0 plans, 0 bytes>"
    session.run(None, {"x": x})
    assert f": 1 plan, {session.device_bytes:,} bytes>" in repr(session)
    session.close()
    assert repr(session) == "<InferenceSession of 'g' with 2 nodes, closed>"
    host = shaderloom.InferenceSession(model, providers=["cpu"])
    assert repr(host) == "<InferenceSession of 'g' with 2 nodes on the host>"
