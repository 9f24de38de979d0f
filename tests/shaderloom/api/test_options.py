"""Options of sessions and runs: their names, values, effects, and what is said of those without one.

Covers: shaderloom/api/options, shaderloom/notices.
"""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest

import shaderloom
from shaderloom import notices
from shaderloom.runtime.plan import onnxruntime_errors
from shaderloom.runtime.plan.errors import InputError

onnxruntime = pytest.importorskip("onnxruntime")


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


class PickledOptions(shaderloom.SessionOptions):
    """As programs write a class of options that can be copied and sent to other processes."""

    def __getstate__(self):
        attributes = [(name, getattr(self, name)) for name in dir(self)]
        return pickle.dumps([(name, value) for name, value in attributes if not callable(value)])

    def __setstate__(self, state):
        self.__init__()
        for name, value in pickle.loads(state):
            setattr(self, name, value)


@pytest.mark.parametrize("kind", [PickledOptions, shaderloom.SessionOptions])
def test_options_are_copied_and_pickled(kind):
    options = kind()
    options.inter_op_num_threads, options.execution_mode = 3, shaderloom.ExecutionMode.ORT_PARALLEL
    options.add_session_config_entry("a", "1")
    for again in (copy.deepcopy(options), pickle.loads(pickle.dumps(options))):
        assert type(again) is kind and again.get_session_config_entry("a") == "1"
        assert (again.inter_op_num_threads, again.execution_mode) == (3, shaderloom.ExecutionMode.ORT_PARALLEL)


def test_run_option_names_are_those_of_onnxruntime():
    names = {name for name in dir(onnxruntime.RunOptions()) if not name.startswith("_")}
    absent = {"add_active_adapter", "training_mode"}
    ours = shaderloom.RunOptions()
    assert {name for name in names - absent if not hasattr(ours, name)} == set()
    with pytest.raises(AttributeError, match="terminat"):
        ours.terminat = True


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


def test_what_has_no_effect_says_so_once(device, model, fresh_notices):
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


def test_a_pinned_cpu_says_once_how_to_run_on_the_device(model, fresh_notices):
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
