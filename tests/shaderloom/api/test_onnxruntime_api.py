"""Programs written for onnxruntime: the same calls on both, the same answers; and what is different on purpose.

Covers: shaderloom/api, shaderloom/session.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import shaderloom
from shaderloom import notices
from shaderloom.runtime.plan import onnxruntime_errors
from shaderloom.runtime.plan.errors import ClosedError, InputError, UnsupportedError

from ...support.patience import PATIENCE

onnxruntime = pytest.importorskip("onnxruntime")

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 3] x, float[3] b) => (float[batch, 3] y, float[batch, 3] z) <float[3] b = {1, 2, 3}> {
    y = Add(x, b)
    z = Relu(y)
}
"""


@pytest.fixture(scope="module")
def model() -> bytes:
    parsed = onnx.parser.parse_model(MODEL)
    parsed.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    return parsed.SerializeToString()


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


@pytest.fixture
def session(device, model):
    with shaderloom.InferenceSession(model, device=device, cache=False) as opened:
        yield opened


@pytest.fixture
def told():
    """Report again what was reported once."""
    notices.forget()
    yield
    notices.forget()


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


def test_option_names_are_those_of_onnxruntime():
    theirs = onnxruntime.SessionOptions()
    ours = shaderloom.SessionOptions()
    absent = {
        # initializers, operators and providers given as objects of onnxruntime
        "add_external_initializers",
        "add_external_initializers_from_files_in_memory",
        "add_initializer",
        "add_provider",
        "add_provider_for_devices",
        "has_providers",
        "set_provider_selection_policy",
        "set_provider_selection_policy_delegate",
        "set_load_cancellation_flag",
        "set_external_initializers_file_folder_path",
        "set_ep_context_data_read_func",
        "clear_ep_context_data_read_func",
    }
    names = {name for name in dir(theirs) if not name.startswith("_")}
    missing = {name for name in names - absent if not hasattr(ours, name)}
    assert missing == set()
    for name in names - absent:
        value = getattr(theirs, name)
        if not callable(value) or isinstance(value, (onnxruntime.GraphOptimizationLevel, onnxruntime.ExecutionMode)):
            if name not in ("execution_order", "graph_optimization_level", "execution_mode"):
                assert getattr(ours, name) == value, name
    for theirs_level in onnxruntime.GraphOptimizationLevel.__members__:
        assert theirs_level in shaderloom.GraphOptimizationLevel.__members__
    with pytest.raises(AttributeError, match="no option 'fast'"):
        ours.fast = True
    with pytest.raises(AttributeError, match="the nearest is 'intra_op_num_threads'"):
        ours.intra_op_threads = 2
    with pytest.raises(AttributeError, match="fast"):
        ours.fast  # noqa: B018


def test_run_option_names_are_those_of_onnxruntime():
    names = {name for name in dir(onnxruntime.RunOptions()) if not name.startswith("_")}
    absent = {"add_active_adapter", "training_mode"}
    ours = shaderloom.RunOptions()
    assert {name for name in names - absent if not hasattr(ours, name)} == set()
    with pytest.raises(AttributeError, match="terminat"):
        ours.terminat = True


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


def test_binding_keeps_outputs_on_the_device(device, session, x):
    binding = session.io_binding()
    binding.bind_input("x", shaderloom.Tensor.from_numpy(x, device))
    binding.bind_output("y", "wgpu")
    binding.bind_output("z", "webgpu", 0)
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    values = binding.get_outputs()
    assert [value.device_name() for value in values] == ["wgpu", "wgpu"]
    assert values[0].tensor.location == "gpu-buffer"
    with pytest.raises(UnsupportedError, match="no address"):
        values[0].data_ptr()
    y = x + np.array([1, 2, 3], np.float32)
    np.testing.assert_allclose(values[0].numpy(), y)
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[1], np.maximum(y, 0))
    session.run_with_iobinding(binding)
    assert binding.get_outputs()[0].tensor is not values[0].tensor, "the caller still holds the first one"
    np.testing.assert_allclose(values[0].numpy(), y)


def test_binding_to_memory_of_the_caller(device, session, x):
    held = shaderloom.Tensor.from_numpy(x, device)
    target = shaderloom.Tensor.empty((2, 3), np.float32, device)
    binding = session.io_binding()
    binding.bind_input("x", "wgpu", 0, np.float32, (2, 3), held.gpu_buffer)
    binding.bind_output("y", "wgpu", 0, onnx.TensorProto.FLOAT, [2, 3], target.gpu_buffer)
    binding.bind_ortvalue_output(
        "z", shaderloom.OrtValue.ortvalue_from_shape_and_type([2, 3], "float32", "wgpu", device=device)
    )
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(target.numpy(), x + np.array([1, 2, 3], np.float32))
    value = shaderloom.OrtValue.ortvalue_from_numpy(x, "wgpu", device=device)
    value.update_inplace(x * 2)
    binding.clear_binding_inputs()
    with pytest.raises(InputError, match="'x'"):
        session.run_with_iobinding(binding)
    binding.bind_ortvalue_input("x", value)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(target.numpy(), x * 2 + np.array([1, 2, 3], np.float32))
    binding.clear_binding_outputs()
    assert binding.get_outputs() == []


def test_wrong_bindings_are_refused(session, x):
    binding = session.io_binding()
    for bind, reason in (
        (lambda: binding.bind_cpu_input("q", x), "no input 'q'"),
        (lambda: binding.bind_output("q"), "no output 'q'"),
        (lambda: binding.bind_input("x", "wgpu", 0, np.float32, (2, 3), 123456), "an address does not say"),
        (lambda: binding.bind_input("x", "wgpu", 0, np.float32, (2, 3)), "needs its element type"),
        (lambda: binding.bind_output("y", "tpu"), "no device type 'tpu'"),
    ):
        with pytest.raises(InputError, match=reason):
            bind()


def test_values_on_the_host(x):
    value = shaderloom.OrtValue.ortvalue_from_numpy(x.copy())
    assert value.data_ptr() == value.numpy().ctypes.data
    value.update_inplace(x * 3)
    np.testing.assert_array_equal(np.asarray(value), x * 3)
    with pytest.raises(InputError):
        value.update_inplace(x[0])
    with pytest.raises(InputError, match="no device type 'tpu'"):
        shaderloom.OrtValue.ortvalue_from_numpy(x, "tpu")


def test_free_dimensions_are_fixed(device, model, x):
    for fix in ("add_free_dimension_override_by_name", "add_free_dimension_override_by_denotation"):
        answers = []
        for library, options in (
            (onnxruntime, {"providers": ["CPUExecutionProvider"]}),
            (shaderloom, {"device": device, "cache": False}),
        ):
            settings = library.SessionOptions()
            getattr(settings, fix)("batch" if fix.endswith("name") else "DATA_BATCH", 2)
            session = library.InferenceSession(model, settings, **options)
            answers.append([port.shape for port in session.get_inputs()])
            np.testing.assert_allclose(session.run(["z"], {"x": x * 0})[0][0], [1, 2, 3])
            with pytest.raises((InputError, onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument)):
                session.run(["z"], {"x": np.zeros((3, 3), np.float32)})
        assert answers[0] == answers[1] == [[2, 3]]
    settings = shaderloom.SessionOptions()
    settings.add_free_dimension_override_by_name("time", 2)
    with pytest.raises(InputError, match="no input has a dimension 'time'"):
        shaderloom.InferenceSession(model, settings, device=device, cache=False)


def test_optimisation_off_means_a_kernel_for_each_node(device, model, x):
    calls = {}
    for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
        settings = shaderloom.SessionOptions()
        settings.graph_optimization_level = shaderloom.GraphOptimizationLevel[level]
        with shaderloom.InferenceSession(model, settings, device=device, cache=False) as session:
            session.run(["z"], {"x": x})
            calls[level] = session.report()["calls"]
    assert calls["ORT_DISABLE_ALL"] >= calls["ORT_ENABLE_ALL"]


def test_what_has_no_effect_says_so_once(device, model, told):
    settings = shaderloom.SessionOptions()
    settings.optimized_model_filepath = "optimised.onnx"
    settings.intra_op_num_threads = 3
    settings.add_session_config_entry("session.disable_prepacking", "1")
    assert settings.get_session_config_entry("session.disable_prepacking") == "1"
    with pytest.warns(UserWarning, match="has no effect") as caught:
        shaderloom.InferenceSession(model, settings, device=device, cache=False).close()
    text = "\n".join(str(warning.message) for warning in caught)
    for part in (
        "optimized_model_filepath has no effect: nothing is written",
        "intra_op_num_threads",
        "session.disable_prepacking",
    ):
        assert part in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shaderloom.InferenceSession(model, settings, device=device, cache=False).close()
    notices.forget()
    settings.log_severity_level = 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shaderloom.InferenceSession(model, settings, device=device, cache=False).close()


def test_termination_is_heard_before_a_run(session, x):
    options = shaderloom.RunOptions()
    session.run(None, {"x": x}, options)
    options.terminate = True
    with pytest.raises(InputError, match=r"termination.*set terminate to False") as caught:
        session.run(None, {"x": x}, options)
    assert isinstance(caught.value, onnxruntime_errors.Fail)  # as onnxruntime reports it


def test_a_value_that_an_option_cannot_have_is_refused_when_it_is_set():
    settings = shaderloom.SessionOptions()
    for name, value, message in (
        ("graph_optimization_level", 98, r"level 98 \[use one of ORT_DISABLE_ALL \(0\)"),
        ("graph_optimization_level", "all", "level 'all'"),
        ("intra_op_num_threads", "two", "an integer, not 'two'"),
        ("inter_op_num_threads", 1.5, "an integer, not 1.5"),
    ):
        with pytest.raises(InputError, match=message):
            setattr(settings, name, value)
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    assert settings.graph_optimization_level is shaderloom.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.intra_op_num_threads = np.int64(3)
    assert settings.intra_op_num_threads == 3


def test_an_entry_that_was_not_added_is_an_error_that_names_those_that_were():
    settings, options = shaderloom.SessionOptions(), shaderloom.RunOptions()
    with pytest.raises(InputError, match=r"no entry 'a' \[add_session_config_entry adds one"):
        settings.get_session_config_entry("a")
    with pytest.raises(InputError, match=r"no entry 'a' \[add_run_config_entry adds one"):
        options.get_run_config_entry("a")
    settings.add_session_config_entry("b", "1")
    with pytest.raises(InputError, match=r"no entry 'a' \[the entries are b"):
        settings.get_session_config_entry("a")


def test_what_is_no_model_is_refused_with_what_is_one():
    with pytest.raises(InputError, match=r"not int \[pass one of these"):
        shaderloom.InferenceSession(3)


def test_runs_are_awaited(session, x):
    async def work() -> list[np.ndarray]:
        runs = [session.run_async(["z"], {"x": x * step}) for step in range(8)]
        return [(await run)[0] for run in runs]

    for step, result in enumerate(asyncio.run(work())):
        np.testing.assert_allclose(result, np.maximum(x * step + np.array([1, 2, 3], np.float32), 0), rtol=1e-6)
    run = session.run_async(["z"], {"x": x})
    np.testing.assert_allclose(run.result(30)[0], session.run(["z"], {"x": x})[0])
    assert run.done()
    with pytest.raises(InputError):
        session.run_async(["z"], {"x": x.astype(np.float64)}).result(30)


def test_errors_reach_the_callback(session, x):
    finished = threading.Event()
    called: list[object] = []

    def callback(results, user_data, error):
        called.extend([results, user_data, error])
        finished.set()

    assert session.run_async(["z"], {"x": x.astype(np.float64)}, callback, 7) is None
    assert finished.wait(PATIENCE)
    assert called[:2] == [[], 7]
    assert "float64" in called[2]


def test_a_closed_session_starts_nothing(device, model, x):
    session = shaderloom.InferenceSession(model, device=device, cache=False)
    runs = [session.run_async(None, {"x": x}) for _ in range(8)]
    session.close()
    for run in runs:  # whatever was in flight ends
        with contextlib.suppress(ClosedError):
            np.testing.assert_allclose(run.result(30)[0], x + np.array([1, 2, 3], np.float32))
    with pytest.raises(ClosedError):
        session.run_async(None, {"x": x})


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
    with pytest.raises(FileNotFoundError):
        shaderloom.InferenceSession(tmp_path / "none.onnx")


def test_no_names_are_all_outputs(session, model, x):
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for mine, expected in zip(session.run([], {"x": x}), theirs.run([], {"x": x}), strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_the_trace_has_the_runs_and_the_kernels(device, model, x, tmp_path):
    settings = shaderloom.SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = str(tmp_path / "trace")
    with shaderloom.InferenceSession(model, settings, device=device, cache=False) as session:
        assert session.get_profiling_start_time_ns() > 0
        session.run(None, {"x": x})
        session.run(["z"], {"x": x})
        path = session.end_profiling()
        assert session.end_profiling() == ""
    events = json.loads(Path(path).read_text())
    assert [event["name"] for event in events if event["cat"] == "Session"] == ["model_run", "model_run"]
    kernels = [event for event in events if event["cat"] == "Node"]
    assert kernels
    assert all(event["ph"] == "X" and event["args"]["nodes"] for event in kernels)
    assert [event["ts"] for event in events] == sorted(event["ts"] for event in events)


def test_values_by_dlpack_and_by_address(session, x):
    value = shaderloom.OrtValue.from_dlpack(x)
    assert value.data_ptr() == x.ctypes.data
    assert value.tensor_size_in_bytes() == x.nbytes
    with pytest.raises(InputError, match="by DLPack"):
        shaderloom.OrtValue.from_dlpack([1.0])
    bits = shaderloom.OrtValue.ortvalue_from_numpy_with_onnx_type(
        np.array([0x3C00], np.uint16), onnx.TensorProto.FLOAT16
    )
    assert bits.numpy()[0] == np.float16(1)
    result = np.zeros((2, 3), np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("z", "cpu", 0, np.float32, result.shape, result.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(result, np.maximum(x + np.array([1, 2, 3], np.float32), 0))


def test_vendors_names_of_devices_mean_the_device(device, session, x):
    value = shaderloom.OrtValue.ortvalue_from_numpy(x, "cuda", 0, device=device)
    assert value.device_name() == "wgpu"
    np.testing.assert_array_equal(value.numpy(), x)


def test_a_pinned_cpu_says_once_how_to_run_on_the_device(model, told):
    with pytest.warns(UserWarning, match="as_onnxruntime"):
        shaderloom.InferenceSession(model, providers=["CPUExecutionProvider"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shaderloom.InferenceSession(model, providers=["CPUExecutionProvider"])
        notices.forget()
        shaderloom.InferenceSession(model, providers=["cpu"])


def test_options_of_providers_are_texts(device, model):
    options = [{"power_preference": "low-power"}, {}]
    with shaderloom.InferenceSession(model, None, ["wgpu", "cpu"], options, device=device, cache=False) as session:
        assert session.get_provider_options() == {"wgpu": {"power_preference": "low-power"}, "cpu": {}}


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
