"""Tensors: ownership, conversion, and what a disposed one refuses.  Covers: runtime/memory/tensor."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import shaderloom
from shaderloom.runtime.memory.host_arrays import host_array
from shaderloom.runtime.memory.tensor import Tensor
from shaderloom.runtime.plan.errors import ClosedError, DeviceError, InputError, UnsupportedError

from ...support.patience import PATIENCE

STORAGE, COPY_SRC, COPY_DST = 0x80, 0x4, 0x8


def device_buffers() -> int:
    """Buffers that wgpu-native keeps alive."""
    from wgpu.backends.wgpu_native._helpers import generate_report

    gc.collect()
    return generate_report()["hub"]["buffers"]["kept"]


def make_buffer(device, array: np.ndarray, offset: int = 0, usage: int = STORAGE | COPY_SRC | COPY_DST):
    """A buffer of the caller that holds an array at ``offset``, and nothing behind it but the last word's padding."""
    data = array.tobytes()
    buffer = device.gpu.create_buffer(size=offset + (len(data) + 3) // 4 * 4, usage=usage | COPY_DST)
    device.gpu.queue.write_buffer(buffer, offset, data.ljust((len(data) + 3) // 4 * 4, b"\0"))
    return buffer


ARRAYS = [
    np.arange(5, dtype=np.float32),
    np.array([True, False, True]),
    np.arange(-3, 4, dtype=np.int64).reshape(7, 1) << 40,
    np.arange(7, dtype=np.uint8),
    np.arange(3, dtype=np.float16),
    np.float32(2.5),
    np.zeros((0, 3), np.float32),
    np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)),
    np.arange(4, dtype=">f4"),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{np.asarray(array).dtype.str}{np.shape(array)}")
def test_arrays_survive_the_device(device, array):
    with Tensor.from_numpy(array, device) as tensor:
        assert (tensor.shape, tensor.location) == (np.shape(array), "gpu-buffer")
        assert tensor.dtype == np.asarray(array).dtype.newbyteorder("=")
        np.testing.assert_array_equal(tensor.numpy(), array)
        np.testing.assert_array_equal(asyncio.run(tensor.numpy_async()), array)


def test_bfloat16_survives_the_device(device):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(5).astype(ml_dtypes.bfloat16)
    with Tensor.from_numpy(array, device) as tensor:
        np.testing.assert_array_equal(tensor.numpy(), array)
        with pytest.raises(BufferError, match="take the bits"):
            np.from_dlpack(tensor, device="cpu")


def test_types_that_only_the_host_holds_are_refused(device):
    for array in (np.zeros(3), np.array(["a"]), np.zeros(2, np.complex64)):
        with pytest.raises(UnsupportedError):
            Tensor.from_numpy(array, device)


def test_a_disposed_tensor_raises_on_every_use(device):
    tensor = Tensor.from_numpy(np.ones(3, np.float32), device)
    tensor.dispose()
    tensor.dispose()
    assert tensor.disposed
    assert "disposed" in repr(tensor)
    for use in (
        tensor.numpy,
        tensor.get_data,
        lambda: tensor.gpu_buffer,
        lambda: tensor.update(np.ones(3, np.float32)),
        lambda: np.asarray(tensor),
        lambda: np.from_dlpack(tensor),
        lambda: asyncio.run(tensor.numpy_async()),
    ):
        with pytest.raises(ClosedError):
            use()


def test_data_can_move_to_the_host(device):
    tensor = Tensor.from_numpy(np.arange(4, dtype=np.int32), device)
    before = device_buffers()
    np.testing.assert_array_equal(tensor.get_data(), np.arange(4))
    assert tensor.location == "gpu-buffer"
    data = tensor.get_data(release=True)
    np.testing.assert_array_equal(data, np.arange(4))
    assert tensor.location == "cpu"
    assert device_buffers() == before - 1
    data[:] = 0
    np.testing.assert_array_equal(tensor.numpy(), np.arange(4))
    with pytest.raises(InputError):
        _ = tensor.gpu_buffer
    tensor.dispose()
    with pytest.raises(ClosedError):
        tensor.numpy()


def test_numpy_protocols(device):
    tensor = Tensor.from_numpy(np.arange(4, dtype=np.float32), device)
    np.testing.assert_array_equal(np.asarray(tensor), np.arange(4))
    assert np.asarray(tensor, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="without a copy"):
        tensor.__array__(copy=False)


def test_dlpack_copies_a_tensor_of_the_device_only_when_asked_for_the_host(device):
    tensor = Tensor.from_numpy(np.arange(4, dtype=np.float32), device)
    assert tensor.__dlpack_device__() == (15, 0)
    np.testing.assert_array_equal(np.from_dlpack(tensor, device="cpu"), np.arange(4))
    with pytest.raises(BufferError, match=r"from_dlpack\(tensor, device='cpu'\)"):
        np.from_dlpack(tensor)
    for wrong in ({"copy": False, "dl_device": (1, 0)}, {"dl_device": (2, 0)}, {"stream": 1}):
        with pytest.raises(BufferError):
            tensor.__dlpack__(**wrong)


def test_dlpack_shares_the_memory_of_a_tensor_on_the_host(device):
    tensor = Tensor.from_numpy(np.arange(4, dtype=np.float32), device)
    tensor.get_data(release=True)
    assert tensor.__dlpack_device__() == (1, 0)
    first, second = np.from_dlpack(tensor), np.from_dlpack(tensor)
    assert np.shares_memory(first, second)
    assert not np.shares_memory(first, np.from_dlpack(tensor, copy=True))
    with Tensor.from_dlpack(first, device) as copied:
        np.testing.assert_array_equal(copied.numpy(), np.arange(4))


class Exporter:
    """An array of a library that has DLPack alone."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_arrays_of_other_libraries_are_seen_without_a_copy(device):
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    assert np.shares_memory(host_array(Exporter(array)), array)
    with Tensor.from_dlpack(Exporter(array), device) as tensor:
        np.testing.assert_array_equal(tensor.numpy(), array)
    value = shaderloom.OrtValue.from_dlpack(Exporter(array))
    assert np.shares_memory(np.from_dlpack(value), array)
    assert value.__dlpack_device__() == (1, 0)
    on_device = shaderloom.OrtValue.ortvalue_from_numpy(array, "wgpu", device=device)
    np.testing.assert_array_equal(np.from_dlpack(on_device, device="cpu"), array)
    with pytest.raises(BufferError, match="other libraries cannot see"):
        np.from_dlpack(on_device)
    with pytest.raises(InputError, match="Exporter does not share memory of the host"):
        host_array(Exporter(np.array(["text"])))


def test_elements_are_replaced(device):
    tensor = Tensor.empty((3,), np.uint16, device)
    np.testing.assert_array_equal(tensor.numpy(), [0, 0, 0])
    for order in "<>":
        tensor.update(np.array([1, 2, 3 + ord(order)], f"{order}u2"))
        np.testing.assert_array_equal(tensor.numpy(), [1, 2, 3 + ord(order)])
    for wrong in (np.ones(3, np.int16), np.ones(4, np.uint16), np.ones((3, 1), np.uint16)):
        with pytest.raises(InputError):
            tensor.update(wrong)


@pytest.mark.parametrize("offset", [0, 4, 256])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.float16])
def test_a_buffer_of_the_caller(device, dtype, offset):
    array = np.array([1, 0, 1, 1, 0], dtype)
    buffer = make_buffer(device, array, offset)
    tensor = Tensor.from_gpu_buffer(buffer, dtype, (5,), offset)
    assert tensor.gpu_buffer is buffer
    np.testing.assert_array_equal(tensor.numpy(), array)
    tensor.update(1 - array if dtype != np.bool_ else ~array)
    np.testing.assert_array_equal(tensor.numpy(), 1 - array if dtype != np.bool_ else ~array)
    tensor.dispose()
    del tensor
    gc.collect()
    assert len(device.gpu.queue.read_buffer(buffer)) == buffer.size, "the caller's buffer must live on"
    buffer.destroy()


def test_a_buffer_that_does_not_hold_the_tensor_is_refused(device):
    buffer = make_buffer(device, np.zeros(8, np.float32))
    for arguments, reason in (
        ((buffer, np.float32, (9,)), "takes 36 bytes; the buffer has 32"),
        ((buffer, np.float32, (8,), 4), "the buffer has 28"),
        ((buffer, np.float32, (1,), 32), "the buffer has 0"),
        ((buffer, np.float32, (1,), 2), "multiple of 4"),
        ((buffer, np.float32, (1,), -4), "multiple of 4"),
        ((buffer, np.float32, (-1,)), "negative"),
        ((b"bytes", np.float32, (1,)), "wgpu.GPUBuffer is needed"),
        ((make_buffer(device, np.zeros(4, np.float32), usage=COPY_SRC), np.float32, (1,)), "usage STORAGE"),
    ):
        with pytest.raises(InputError, match=reason):
            Tensor.from_gpu_buffer(*arguments)
    with pytest.raises(UnsupportedError):
        Tensor.from_gpu_buffer(buffer, np.float64, (1,))


def test_a_buffer_that_its_owner_destroyed_is_an_error_and_not_the_end_of_the_process(device):
    buffer = make_buffer(device, np.zeros(8, np.float32))
    tensor = Tensor.from_gpu_buffer(buffer, np.float32, (8,))
    buffer.destroy()
    for use in (tensor.numpy, lambda: tensor.update(np.zeros(8, np.float32))):
        with pytest.raises(ClosedError, match="destroyed by its owner"):
            use()


def test_a_mapped_buffer_is_an_error_and_not_the_end_of_the_process(device):
    buffer = device.gpu.create_buffer(size=32, usage=STORAGE | COPY_SRC | COPY_DST, mapped_at_creation=True)
    tensor = Tensor.from_gpu_buffer(buffer, np.float32, (8,))
    with pytest.raises(DeviceError, match="mapped"):
        tensor.numpy()
    buffer.unmap()
    np.testing.assert_array_equal(tensor.numpy(), np.zeros(8))


def test_memory_goes_with_the_tensor(device):
    before = device_buffers()
    tensor = Tensor.from_numpy(np.ones(100, np.float32), device)
    assert device_buffers() == before + 1
    del tensor
    assert device_buffers() == before
    tensor = Tensor.from_numpy(np.ones(100, np.float32), device)
    buffer = tensor.gpu_buffer
    del tensor
    assert len(device.gpu.queue.read_buffer(buffer)) == 400, "a buffer that the caller holds outlives the tensor"
    del buffer
    assert device_buffers() == before


def test_interpreter_exit_with_tensors_alive_is_silent(device):
    program = f"""
        import numpy as np, shaderloom
        kept = shaderloom.Tensor.from_numpy(np.ones(3, np.float32), {device.name!r})
        class Cycle: pass
        cycle = Cycle()
        cycle.itself, cycle.tensor = cycle, shaderloom.Tensor.from_numpy(np.ones(3, np.float32), {device.name!r})
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert result.returncode == 0, result.stderr
    assert "Exception" not in result.stderr, result.stderr


def test_tensors_are_public():
    assert shaderloom.Tensor is Tensor


def test_element_types_that_are_none(device):
    buffer = make_buffer(device, np.zeros(4, np.float32))
    for wrong, message in (
        ("float31", "element type"),
        (7.5, "element type"),
        (np.dtype("U3"), "no ONNX tensor type"),
        ("float64", r"float64 \[convert them to another type"),
    ):
        for make in (
            lambda kind: Tensor.from_gpu_buffer(buffer, kind, (2,)),
            lambda kind: Tensor.empty((2,), kind, device),
        ):
            with pytest.raises(UnsupportedError, match=message):
                make(wrong)
