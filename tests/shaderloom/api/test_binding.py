"""Bindings and values: memory of the host, of the device and of the caller.

Covers: shaderloom/api/binding.
"""

from __future__ import annotations

import pickle

import numpy as np
import onnx
import onnx.parser
import pytest

import shaderloom
from shaderloom.runtime.plan.errors import InputError, UnsupportedError

from ...support.patience import PATIENCE


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


KINDS = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
    g (float[n, 2] x) => (float[n, 2] y, seq(float[a, 2]) z, optional(float[n, 2]) o, string[k] u) {
    y = Identity(x)  z = SplitToSequence<axis = 0, keepdims = 1>(x)  o = Optional(x)
    u = Constant<value_strings = ["a", "bc"]>()  m = ai.onnx.ml.ZipMap<classlabels_int64s = [1, 2]>(x) }"""
)
MAPS = KINDS.graph.output.add(name="m").type.sequence_type.elem_type.map_type
MAPS.key_type, MAPS.value_type.tensor_type.elem_type = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
QUESTIONS = ("data_type", "element_type", "shape", "is_tensor", "is_tensor_sequence", "has_value")


def _answers(value):
    """What a value says about itself, and the class of what it raises in place of an answer."""
    for question in (*QUESTIONS, "tensor_size_in_bytes"):
        try:
            yield getattr(value, question)()
        except Exception as error:
            yield RuntimeError if isinstance(error, RuntimeError) else error


@pytest.mark.usefixtures("quiet_providers")
@pytest.mark.parametrize("bound", [False, True])
def test_values_tell_what_they_are(bound):
    """Tensors, texts, sequences, maps and optional values, by name or in another order than that of the model."""
    onnxruntime = pytest.importorskip("onnxruntime")
    x = np.ones((3, 2), np.float32)
    names = ["m", "y", "z", "o", "u"]
    answers = {}
    for library in (onnxruntime, shaderloom):
        session = library.InferenceSession(KINDS.SerializeToString(), providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        for name in names:
            binding.bind_output(name)
        session.run_with_iobinding(binding)
        feeds = {"x": library.OrtValue.ortvalue_from_numpy(x)}
        values = list(binding.get_outputs()) if bound else session.run_with_ort_values(names, feeds)
        answers[library] = [list(_answers(value)) for value in values]
    for ours, theirs in zip(answers[shaderloom], answers[onnxruntime], strict=True):
        if ours[0] == "tensor(string)":
            ours, theirs = ours[:-1], theirs[:-1]  # the bytes of texts are those of objects
        assert ours == theirs
    assert [repr(value) for value in values] == [
        "<OrtValue seq(map(int64,tensor(float))) on cpu>",
        "<OrtValue tensor(float) [3, 2] on cpu>",
        "<OrtValue seq(tensor(float)) on cpu>",
        "<OrtValue tensor(float) [3, 2] on cpu>",
        "<OrtValue tensor(string) [2] on cpu>",
    ]
    with pytest.raises(InputError, match=r"no tensor: it is seq\(tensor\(float\)\)"):
        values[2].update_inplace(x)
    assert not shaderloom.OrtValue(None).has_value()


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


def test_faults_are_of_the_classes_of_onnxruntime(session, model, x):
    """It raises RuntimeError where a fault of :meth:`run` has a class for its status."""
    onnxruntime = pytest.importorskip("onnxruntime")
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    def run(library, each, feed, bind):
        binding = each.io_binding()
        binding.bind_cpu_input("x", feed)
        bind(binding, library)
        each.run_with_iobinding(binding)

    def value(library, *arguments):
        return library.OrtValue.ortvalue_from_shape_and_type(*arguments)

    faults = {
        "an input of this name": lambda library, each: each.io_binding().bind_cpu_input("none", x),
        "a value of this name": lambda library, each: each.io_binding().bind_ortvalue_input(
            "none", value(library, [2, 3], np.float32)
        ),
        "a type": lambda library, each: value(library, [3], "nonsense"),
        "a size": lambda library, each: value(library, [3], np.float32).update_inplace(np.ones(4, np.float32)),
        "a shape": lambda library, each: run(library, each, x[:, :2], lambda binding, _: binding.bind_output("y")),
        "a dtype": lambda library, each: run(library, each, x.astype(np.int64), lambda b, _: b.bind_output("y")),
        "memory for an output": lambda library, each: run(
            library, each, x, lambda b, _: b.bind_ortvalue_output("y", value(library, [4, 4], np.float32))
        ),
        "no output": lambda library, each: run(library, each, x, lambda binding, _: None),
    }
    for fault in faults.values():
        with pytest.raises(RuntimeError):
            fault(onnxruntime, theirs)
        with pytest.raises(shaderloom.ShaderloomError) as raised:
            fault(shaderloom, session)
        assert isinstance(raised.value, RuntimeError)
        again = pickle.loads(pickle.dumps(raised.value))
        assert type(again) is type(raised.value) and str(again) == str(raised.value)
    with pytest.raises(InputError) as of_a_run:
        session.run(None, {"x": x[:, :2]})
    assert not isinstance(of_a_run.value, RuntimeError)


def test_values_on_the_host(x):
    value = shaderloom.OrtValue.ortvalue_from_numpy(x.copy())
    assert value.data_ptr() == value.numpy().ctypes.data
    value.update_inplace(x * 3)
    np.testing.assert_array_equal(np.asarray(value), x * 3)
    with pytest.raises(InputError):
        value.update_inplace(x[0])
    with pytest.raises(InputError, match="no device type 'tpu'"):
        shaderloom.OrtValue.ortvalue_from_numpy(x, "tpu")


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


def test_bindings_and_runs_show_what_they_are(session, x):
    binding = session.io_binding()
    assert repr(binding) == "<IOBinding of inputs none; outputs none>"
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    assert repr(binding) == "<IOBinding of inputs x; outputs y>"
    run = session.run_async(None, {"x": x})
    run.result(PATIENCE)
    assert repr(run) == "<AsyncRun, ended>"
