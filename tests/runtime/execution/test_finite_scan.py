"""Elements that are not finite in tensors on the device: which, where, and in which run.

Covers: runtime/execution/scan_kernels.py.
"""

from __future__ import annotations

import time

import ml_dtypes
import numpy as np
import pytest

from shaderloom import Tensor
from shaderloom.runtime.device import native
from shaderloom.runtime.execution import finite_scan
from shaderloom.runtime.execution.finite_scan import FiniteScan, ScannedTensor, can_scan
from shaderloom.runtime.execution.scan_kernels import INFINITE, MINUS_INFINITE, NOT_A_NUMBER

from ...support.patience import PATIENCE

KINDS = {np.inf: INFINITE, -np.inf: MINUS_INFINITE, np.nan: NOT_A_NUMBER}
#: elements around whole words and quads of words
SIZES = (1, 2, 3, 5, 7, 8, 9, 31, 1001)


@pytest.fixture
def scan(each_device):
    return FiniteScan(each_device, (2, 1))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("number", KINDS)
def test_every_place(each_device, scan, dtype: type, number: float) -> None:
    largest = ml_dtypes.finfo(dtype).max
    for size in SIZES:
        tensor = Tensor.from_numpy(np.full(size, largest, dtype), each_device)
        scan.submit([ScannedTensor(0, tensor)], ())
        assert scan.look() is None
        for place in {0, size // 2, size - 1}:
            array = np.full(size, largest, dtype)
            array[place] = number
            tensor.update(array)
            scan.submit([ScannedTensor(1, tensor)], ())
            assert scan.look().kinds == (0, KINDS[number])


def test_views_of_a_larger_buffer(each_device, scan) -> None:
    """What lies around the tensor does not count, in the last word either."""
    whole = Tensor.from_numpy(np.full(4096, np.nan, np.float16), each_device)
    for offset, size in ((4, 1), (12, 2), (16, 7), (60, 9), (256, 1001), (1028, 1003)):
        view = Tensor.from_gpu_buffer(whole.gpu_buffer, np.float16, [size], offset)
        scan.submit([ScannedTensor(0, view)], ())
        assert scan.look().kinds == (NOT_A_NUMBER, 0)
        even = np.full((size + 1) // 2 * 2, 7, np.float16)
        if size % 2:
            even[-1] = np.nan
        Tensor.from_gpu_buffer(whole.gpu_buffer, np.float16, even.shape, offset).update(even)
        scan.submit([ScannedTensor(0, view)], ())
        assert scan.look() is None


@pytest.mark.parametrize(("outputs", "inputs"), [(1 << 14, 1 << 22), (1, 1 << 22), (1 << 14, 0), (0, 0)])
def test_inputs_and_what_is_allowed(device, monkeypatch, outputs: int, inputs: int) -> None:
    """The same whether the last kernel looks at the outputs, or at the inputs, or others do."""
    monkeypatch.setattr(finite_scan, "_JUDGED_OUTPUTS", outputs)
    monkeypatch.setattr(finite_scan, "_JUDGED_INPUT", inputs)
    scan = FiniteScan(device, (2, 1))
    bad = Tensor.from_numpy(np.array([1, np.nan], np.float16), device)
    masked = Tensor.from_numpy(np.array([1, -np.inf], np.float32), device)
    scan.submit([ScannedTensor(0, bad)], [ScannedTensor(2, bad)])
    scan.submit([ScannedTensor(0, bad, NOT_A_NUMBER)], ())
    assert scan.look() is None
    scan.submit([ScannedTensor(0, bad), ScannedTensor(1, masked)], [ScannedTensor(2, masked)])
    scan.submit([ScannedTensor(0, bad, INFINITE)], ())
    found = scan.look()
    assert (found.runs, found.first, found.kinds) == (2, 3, (NOT_A_NUMBER, MINUS_INFINITE))
    assert scan.look() is None and not scan.is_pending


@pytest.mark.parametrize("number", [0, 6, 18])
def test_many_tensors(device, number: int) -> None:
    """More than a kernel binds: large outputs, small ones, and inputs."""
    scan = FiniteScan(device, (19, 19))
    arrays = [np.zeros(40_001 if index % 3 else 3, np.float16) for index in range(19)]
    arrays[number][-1] = np.inf
    tensors = [Tensor.from_numpy(array, device) for array in arrays]
    inputs = [ScannedTensor(19 + index, Tensor.from_numpy(np.zeros(5, np.float32), device)) for index in range(19)]
    scan.submit([ScannedTensor(slot, tensor) for slot, tensor in enumerate(tensors)], inputs)
    expected = tuple(INFINITE if slot == number else 0 for slot in range(19))
    assert scan.look().kinds == expected
    inputs[number].tensor.update(np.full(5, np.nan, np.float32))
    scan.submit([ScannedTensor(slot, tensor) for slot, tensor in enumerate(tensors)], inputs)
    assert scan.look() is None


def test_few_kernels_behind_a_run(device) -> None:
    """Each waits for the one before: outputs of a classifier take one, and larger ones another for all of them."""
    scan = FiniteScan(device, (2, 2))
    small, large = (Tensor.empty((size,), np.float32, device) for size in (1000, 150_000))
    inputs = [ScannedTensor(2, large), ScannedTensor(3, small)]
    assert len(scan.dispatches([ScannedTensor(0, small)], inputs)) == 1
    assert len(scan.dispatches([ScannedTensor(0, large), ScannedTensor(1, large)], inputs)) == 2
    huge = Tensor.empty(((1 << 22) + 1,), np.float32, device)
    assert len(scan.dispatches([ScannedTensor(0, small)], [ScannedTensor(2, huge)])) == 3


def test_a_tensor_beyond_one_binding(device, monkeypatch) -> None:
    limit = type(device.profile).limit
    monkeypatch.setattr(
        type(device.profile),
        "limit",
        lambda self, name: 256 if name == "max-storage-buffer-binding-size" else limit(self, name),
    )
    scan = FiniteScan(device, (1, 0))
    for place in (0, 127, 128, 500):
        array = np.zeros(501, np.float16)
        array[place] = np.inf
        scan.submit([ScannedTensor(0, Tensor.from_numpy(array, device))], ())
        assert scan.look().kinds == (INFINITE,)


@pytest.mark.parametrize("is_native", [False, True])
def test_a_reading_does_not_wait(device, monkeypatch, is_native: bool) -> None:
    if is_native and not native.AVAILABLE:
        pytest.skip("wgpu-native is called through wgpu-py here")
    monkeypatch.setattr(native, "AVAILABLE", is_native)
    monkeypatch.setattr(finite_scan, "INTERVAL", 0.0)
    scan = FiniteScan(device, (1, 0))
    bad = Tensor.from_numpy(np.array([np.inf], np.float16), device)
    assert scan.poll() is None
    scan.submit([ScannedTensor(0, bad)], ())
    end = time.monotonic() + PATIENCE
    while (found := scan.poll()) is None and time.monotonic() < end:
        time.sleep(1e-3)
    assert found is not None and found.runs == 1


def test_what_is_scanned(device) -> None:
    tensor = Tensor.from_numpy(np.ones(3, np.float16), device)
    assert can_scan(tensor)
    for other in (np.ones(3, np.float16), Tensor.from_numpy(np.ones(3, np.int32), device), None):
        assert not can_scan(other)
    assert not can_scan(Tensor.empty((0, 3), np.float16, device))
    tensor.get_data(release=True)
    assert not can_scan(tensor)
