"""Devices: those of other programs, several sessions on one, loss and recovery.  Covers: runtime/device/device."""

from __future__ import annotations

import gc

import numpy as np
import onnx.parser
import pytest

import shaderloom
from shaderloom.runtime.device.device import Device
from shaderloom.runtime.device.opening import open_device, reopen_device
from shaderloom.runtime.memory.tensor import Tensor
from shaderloom.runtime.plan.errors import DeviceLost, InputError, LimitError

from ...support.sessions import engine_of
from ..memory.test_tensors import make_buffer

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 8] x) => (float[n, 8] y) <float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}> {
    s = Softmax<axis = -1>(x)
    y = Mul(s, b)
}"""


@pytest.fixture(scope="module")
def model() -> bytes:
    return onnx.parser.parse_model(MODEL).SerializeToString()


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)


def expected(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) * np.arange(1, 9, dtype=np.float32)


def request_device(device, **arguments):
    """A device of a caller on the same adapter."""
    return device.gpu.adapter.request_device_sync(**arguments)


def test_a_device_of_another_program(device, model, x):
    """Buffers pass between the libraries without copies; the device is left as it was."""
    gpu = request_device(device)
    with shaderloom.InferenceSession(model, device=gpu, cache=False, preferred_output_location="gpu-buffer") as session:
        assert session.device.gpu is gpu
        theirs = Tensor.from_gpu_buffer(make_buffer(session.device, x), np.float32, x.shape)
        (result,) = session.run(None, {"x": theirs})
        # the other program reads our output with its own queue
        data = np.frombuffer(gpu.queue.read_buffer(result.gpu_buffer, 0, x.nbytes), np.float32).reshape(x.shape)
        np.testing.assert_allclose(data, expected(x), rtol=1e-5)
    np.testing.assert_allclose(result.numpy(), expected(x), rtol=1e-5)
    result.dispose()
    del session, theirs, result
    gc.collect()
    assert len(gpu.queue.read_buffer(gpu.create_buffer(size=16, usage=4))) == 16, "the device must live on"
    gpu.destroy()


def test_one_wrapper_for_one_device(device, model):
    gpu = request_device(device)
    first = Device.from_wgpu(gpu)
    assert Device.from_wgpu(gpu) is first
    assert open_device(gpu) is first
    assert Device.from_wgpu(device.gpu) is device
    buffer = gpu.create_buffer(size=16, usage=0x80)
    assert Tensor.from_gpu_buffer(buffer, np.float32, (4,)).device is first
    gpu.destroy()


def test_sessions_share_device_and_pipelines(device, model, x):
    with (
        shaderloom.InferenceSession(model, device=device, cache=False) as first,
        shaderloom.InferenceSession(model, device=device, cache=False) as second,
    ):
        first.run(None, {"x": x})
        second.run(None, {"x": x})
        assert first.device is second.device
        holders = [engine_of(session).last.executor._binder._holders for session in (first, second)]
        assert holders[0].keys() == holders[1].keys()
        for key, holder in holders[0].items():
            assert holders[1][key] is holder
        # an output of one session is an input of the other
        (middle,) = first.run(None, {"x": x}, outputs={"y": "gpu-buffer"})
        (result,) = second.run(None, {"x": middle})
        np.testing.assert_allclose(result, expected(expected(x)), rtol=1e-5)


def test_limits_of_a_shared_device_are_respected(device, x):
    limits = {"max-storage-buffer-binding-size": 1 << 20, "max-buffer-size": 1 << 21}
    gpu = request_device(device, required_limits=limits)
    wrapped = Device.from_wgpu(gpu)
    for name, value in limits.items():
        assert wrapped.profile.limit(name) == value
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Add(x, x) }'
    )
    with shaderloom.InferenceSession(model, device=gpu, cache=False) as session:
        with pytest.raises(LimitError, match=r"1,048,576|2,097,152"):
            session.run(None, {"x": np.zeros((1 << 19) + 4, np.float32)})
        for elements in (1 << 17, 1 << 19):  # one binding, and a buffer of several
            (result,) = session.run(None, {"x": np.ones(elements, np.float32)})
            assert result.shape == (elements,) and (result == 2).all()
    gpu.destroy()


def test_two_devices_are_not_mixed(device, model, x):
    gpu = request_device(device)
    foreign = Tensor.from_numpy(x, gpu)
    with shaderloom.InferenceSession(model, device=device, cache=False) as session:
        for run in (
            lambda: session.run(None, {"x": foreign}),
            lambda: session.run(None, {"x": x}, outputs={"y": foreign}),
        ):
            with pytest.raises(InputError, match="another device"):
                run()
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-5)
    foreign.dispose()
    gpu.destroy()


def lose(device: Device) -> None:
    """What a driver does that resets."""
    device.gpu.destroy()


@pytest.fixture
def own_device(device, monkeypatch):
    """A device as :func:`open_device` makes it, which no other test uses."""
    monkeypatch.setattr("shaderloom.runtime.device.opening._shared", {})
    return open_device(device.name)


def test_a_session_recovers_from_loss(own_device, model, x):
    session = shaderloom.InferenceSession(model, device=own_device, cache=False)
    held = Tensor.from_numpy(x, own_device)
    np.testing.assert_allclose(session.run(None, {"x": held})[0], expected(x), rtol=1e-5)
    (kept,) = session.run(None, {"x": x}, outputs={"y": "gpu-buffer"})
    lose(own_device)
    for _ in range(2):
        with pytest.raises(DeviceLost):
            session.run(None, {"x": x})
    for use in (kept.numpy, held.numpy, lambda: session.run(None, {"x": held})):
        with pytest.raises(DeviceLost):
            use()
    kept.dispose()
    session.recover()
    assert session.device is not own_device
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-5)
    with pytest.raises(InputError, match="another device"):
        session.run(None, {"x": held})
    held.dispose()
    session.recover()  # nothing is lost: the plans are made anew
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-5)
    session.close()
    with pytest.raises(shaderloom.ClosedError):
        session.recover()


def test_the_next_session_gets_a_new_device_after_a_loss(own_device, model, x):
    name = own_device.name
    session = shaderloom.InferenceSession(model, device=name, cache=False)
    assert session.device is own_device
    lose(own_device)
    with pytest.raises(DeviceLost):
        session.run(None, {"x": x})
    session.close()
    with shaderloom.InferenceSession(model, device=name, cache=False) as following:
        assert following.device is not own_device
        np.testing.assert_allclose(following.run(None, {"x": x})[0], expected(x), rtol=1e-5)


def test_loss_while_loading_is_told(own_device, model, x):
    session = shaderloom.InferenceSession(model, device=own_device, cache=False)
    lose(own_device)
    with pytest.raises(DeviceLost):
        session.run(None, {"x": x})
    session.recover()
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-5)
    session.close()


def test_loss_while_runs_are_in_flight_is_told(own_device, model, x):
    """Results that the device had finished, or DeviceLost; never the end of the process."""
    session = shaderloom.InferenceSession(model, device=own_device, cache=False)
    executor = engine_of(session).ready({"x": x.shape}).executor
    pending = [executor.submit({"x": x}) for _ in range(4)]
    lose(own_device)
    for run in pending:
        try:
            np.testing.assert_allclose(run.wait()["y"], expected(x), rtol=1e-5)
        except DeviceLost:
            assert own_device.lost
    session.recover()
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-5)
    session.close()


def test_a_device_whose_loss_nobody_noticed_is_not_handed_out(own_device):
    lose(own_device)
    assert open_device(own_device.name) is not own_device


def test_a_lost_device_of_the_caller_is_replaced_by_the_caller(device, model, x):
    gpu = request_device(device)
    session = shaderloom.InferenceSession(model, device=gpu, cache=False)
    session.run(None, {"x": x})
    gpu.destroy()
    with pytest.raises(DeviceLost):
        session.run(None, {"x": x})
    with pytest.raises(DeviceLost, match="made by the caller"):
        session.recover()
    session.recover(device)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-5)
    assert reopen_device(device) is device
    session.close()
