"""Runs with tensors of the device in and out: what is bound, what is copied, what is read back.

Covers: runtime/execution/executor, runtime/execution/attachment.
"""

from __future__ import annotations

import gc
import threading
from typing import ClassVar

import numpy as np
import onnx.parser
import pytest

import shaderloom
from shaderloom.runtime.execution.executor import Executor
from shaderloom.runtime.execution.weight_pool import WeightPool
from shaderloom.runtime.memory.tensor import Tensor
from shaderloom.runtime.plan.caps import MemoryAccount
from shaderloom.runtime.plan.errors import ClosedError, InputError

from ...conftest import open_adapter
from ...support.plans import dynamic_plan, two_call_plan
from ..memory.test_tensors import device_buffers, make_buffer

BIAS = np.arange(10, dtype=np.float32)


def expected(x: np.ndarray) -> np.ndarray:
    return (x * 2 + 2 * np.resize(BIAS, x.shape)) * 2


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(1).random(100, np.float32)


@pytest.fixture
def executor(device):
    with Executor(device, two_call_plan(), WeightPool(device, lambda source: BIAS, MemoryAccount(1 << 30))) as made:
        yield made


class Counter:
    """Counts the calls of wgpu-native's functions, whatever their caller."""

    FUNCTIONS: ClassVar = {
        "maps": ("wgpuBufferMapAsync",),
        "submits": ("wgpuQueueSubmit", "wgpuQueueSubmitForIndex"),
        "copies": ("wgpuCommandEncoderCopyBufferToBuffer",),
        "writes": ("wgpuQueueWriteBuffer",),
        "buffers": ("wgpuDeviceCreateBuffer",),
        "groups": ("wgpuDeviceCreateBindGroup",),
    }

    def __init__(self, monkeypatch) -> None:
        from wgpu.backends.wgpu_native._api import libf

        self.all = dict.fromkeys(self.FUNCTIONS, 0)
        for kind, names in self.FUNCTIONS.items():
            for name in names:
                monkeypatch.setattr(libf, name, self._counted(kind, getattr(libf, name)))

    def _counted(self, kind: str, function):
        def call(*arguments):
            self.all[kind] += 1
            return function(*arguments)

        return call

    def __getattr__(self, kind: str) -> int:
        return self.all[kind]


def test_the_counter_counts(device, executor, x, monkeypatch):
    counter = Counter(monkeypatch)
    executor.run({"x": x})
    assert min(counter.all.values()) > 0, counter.all


def test_device_to_device_reads_nothing_back_and_copies_nothing(device, executor, x, monkeypatch):
    given = Tensor.from_numpy(x, device)
    executor.run({"x": given}, {"y": "gpu-buffer"})["y"].dispose()
    counter = Counter(monkeypatch)
    results = [executor.run({"x": given}, {"y": "gpu-buffer"})["y"] for _ in range(3)]
    assert (counter.maps, counter.submits, counter.copies, counter.writes) == (0, 3, 0, 0)
    monkeypatch.undo()
    for result in results:
        np.testing.assert_array_equal(result.numpy(), expected(x))


def test_a_warm_run_with_tensors_makes_no_device_objects(device, executor, x, monkeypatch):
    given = Tensor.from_numpy(x, device)
    for _ in range(2):
        executor.run({"x": given}, {"y": "gpu-buffer"})["y"].dispose()
    counter = Counter(monkeypatch)
    for _ in range(3):
        executor.run({"x": given}, {"y": "gpu-buffer"})["y"].dispose()
    assert counter.all == {"maps": 0, "submits": 3, "copies": 0, "writes": 0, "buffers": 0, "groups": 0}


@pytest.mark.parametrize("source", ["host", "tensor"])
@pytest.mark.parametrize("target", ["cpu", "gpu-buffer", "tensor"])
def test_host_and_device_mix_freely(each_device, x, source, target):
    pool = WeightPool(each_device, lambda source: BIAS, MemoryAccount(1 << 30))
    with Executor(each_device, two_call_plan(), pool) as executor:
        for factor in (1, 2, 3):
            data = x * np.float32(factor)
            feed = data if source == "host" else Tensor.from_numpy(data, each_device)
            place = Tensor.empty((100,), np.float32, each_device) if target == "tensor" else target
            result = executor.run({"x": feed}, {"y": place})["y"]
            assert isinstance(result, np.ndarray) == (target == "cpu")
            assert target != "tensor" or result is place
            np.testing.assert_array_equal(np.asarray(result), expected(data))


@pytest.mark.parametrize("offset", [0, 4, 256])
@pytest.mark.parametrize("count", [100, 97])
def test_buffers_of_the_caller_at_any_offset(device, x, offset, count):
    """97 elements do not fill the padding that kernels touch: what follows in the caller's buffer must stay."""
    pool = WeightPool(device, lambda source: BIAS, MemoryAccount(1 << 30))
    with Executor(device, two_call_plan(count), pool) as executor:
        source = Tensor.from_gpu_buffer(make_buffer(device, x[:count], offset), np.float32, (count,), offset)
        guard = np.full(offset // 4 + 104, 7, np.float32)
        memory = make_buffer(device, guard)
        target = Tensor.from_gpu_buffer(memory, np.float32, (count,), offset)
        assert executor.run({"x": source}, {"y": target})["y"] is target
        after = np.frombuffer(device.gpu.queue.read_buffer(memory), np.float32)
    begin = offset // 4
    np.testing.assert_array_equal(after[begin : begin + count], expected(x[:count]))
    assert (after[:begin] == 7).all()
    assert (after[begin + count :] == 7).all()


def test_an_aligned_buffer_of_the_caller_is_bound_and_not_copied(device, executor, x, monkeypatch):
    source = Tensor.from_gpu_buffer(make_buffer(device, x), np.float32, (100,))
    target = Tensor.from_gpu_buffer(make_buffer(device, x), np.float32, (100,))
    executor.run({"x": source}, {"y": target})
    counter = Counter(monkeypatch)
    executor.run({"x": source}, {"y": target})
    assert (counter.copies, counter.maps, counter.submits) == (0, 0, 1)


def test_an_output_may_overwrite_its_input(device, executor, x):
    state = Tensor.from_numpy(x, device)
    value = x
    for _ in range(3):
        executor.run({"x": state}, {"y": state})
        value = expected(value)
    np.testing.assert_array_equal(state.numpy(), value)


def test_an_output_may_lie_beside_its_input_in_one_buffer(device, executor, x):
    buffer = make_buffer(device, np.concatenate([x, np.zeros(28 + 100, np.float32)]))
    source = Tensor.from_gpu_buffer(buffer, np.float32, (100,))
    target = Tensor.from_gpu_buffer(buffer, np.float32, (100,), 512)
    executor.run({"x": source}, {"y": target})
    np.testing.assert_array_equal(target.numpy(), expected(x))
    np.testing.assert_array_equal(source.numpy(), x)


def test_outputs_feed_the_next_run(device, executor, x, monkeypatch):
    state, value = Tensor.from_numpy(x / 1000, device), x / 1000
    for step in range(6):
        if step == 4:
            counter = Counter(monkeypatch)
        following = executor.run({"x": state}, {"y": "gpu-buffer"})["y"]
        state.dispose()
        state, value = following, expected(value)
    assert (counter.copies, counter.maps, counter.buffers) == (0, 0, 0), "two buffers take turns"
    monkeypatch.undo()
    np.testing.assert_allclose(state.numpy(), value, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda device: Tensor.empty((99,), np.float32, device), r"float32\[99\], the result float32\[100\]"),
        (lambda device: Tensor.empty((100, 1), np.float32, device), r"float32\[100, 1\]"),
        (lambda device: Tensor.empty((100,), np.int32, device), "int32"),
        (lambda device: "tpu", "no location 'tpu'"),
    ],
)
def test_a_wrong_target_is_an_error_and_the_executor_stays_usable(device, executor, x, make, reason):
    with pytest.raises(InputError, match=reason):
        executor.run({"x": x}, {"y": make(device)})
    np.testing.assert_array_equal(executor.run({"x": x})["y"], expected(x))


def test_gone_tensors_are_errors_and_the_executor_stays_usable(device, executor, x):
    disposed = Tensor.from_numpy(x, device)
    disposed.dispose()
    buffer = make_buffer(device, x)
    destroyed = Tensor.from_gpu_buffer(buffer, np.float32, (100,))
    np.testing.assert_array_equal(executor.run({"x": destroyed})["y"], expected(x))  # its bind group is kept
    buffer.destroy()
    for gone in (disposed, destroyed):
        with pytest.raises(ClosedError):
            executor.run({"x": gone})
        with pytest.raises(ClosedError):
            executor.run({"x": x}, {"y": gone})
    np.testing.assert_array_equal(executor.run({"x": x})["y"], expected(x))


def test_tensors_of_another_device_are_refused(executor, device, x):
    other = open_adapter("SwiftShader" if "llvmpipe" in device.name else "llvmpipe")
    foreign = Tensor.from_numpy(x, other)
    for run in (
        lambda: executor.run({"x": foreign}),
        lambda: executor.run({"x": x}, {"y": foreign}),
    ):
        with pytest.raises(InputError, match="another device"):
            run()


def test_outputs_outlive_their_executor_and_disposing_in_flight_is_safe(device, x):
    pool = WeightPool(device, lambda source: BIAS, MemoryAccount(1 << 30))
    with Executor(device, two_call_plan(), pool) as executor:
        given = Tensor.from_numpy(x, device)
        kept = executor.run({"x": given}, {"y": "gpu-buffer"})["y"]
        for _ in range(20):
            gone = executor.run({"x": given}, {"y": "gpu-buffer"})["y"]
            gone.dispose()
        given.dispose()
    pool.close()
    np.testing.assert_array_equal(kept.numpy(), expected(x))
    assert pool.account.used == 400, "the output that is left"
    kept.dispose()
    assert pool.account.used == 0


def test_closing_while_runs_are_in_flight(device, x):
    """Results or ClosedError; never a crash."""
    pool = WeightPool(device, lambda source: BIAS, MemoryAccount(1 << 30))
    executor = Executor(device, two_call_plan(), pool)
    pending = [executor.submit({"x": x * np.float32(i)}) for i in range(8)]
    executor.close()
    pool.close()
    for i, run in enumerate(pending):
        np.testing.assert_array_equal(run.wait()["y"], expected(x * np.float32(i)))
    assert pool.account.used == 0
    with pytest.raises(ClosedError):
        executor.submit({"x": x})


def test_submitted_runs_do_not_wait_for_each_other(device, executor, x):
    first, second = executor.submit({"x": x}), executor.submit({"x": x * 2})
    np.testing.assert_array_equal(second.wait()["y"], expected(x * 2))
    np.testing.assert_array_equal(first.wait()["y"], expected(x))


def test_collected_tensors_take_their_bind_groups_with_them(device, executor, x):
    executor.run({"x": Tensor.from_numpy(x, device)}, {"y": "gpu-buffer"})["y"].dispose()
    gc.collect()
    before = device_buffers()
    for _ in range(10):
        executor.run({"x": Tensor.from_numpy(x, device)}, {"y": Tensor.empty((100,), np.float32, device)})
    assert device_buffers() == before


def test_dynamic_sizes_with_tensors(device):
    pool = WeightPool(device, lambda source: BIAS, MemoryAccount(1 << 30))
    with Executor(device, dynamic_plan(), pool) as executor:
        for n in (5, 0, 7, 300, 1, 5, 1000):
            data = np.random.default_rng(n).random((n, 3), np.float32)
            feed = Tensor.from_numpy(data, device)
            result = executor.run({"x": feed}, {"y": "gpu-buffer"})["y"]
            assert result.shape == (n, 3)
            np.testing.assert_array_equal(result.numpy(), data + data)
            executor.run({"x": feed}, {"y": result})
            np.testing.assert_array_equal(result.numpy(), data + data)


CACHE = """
<ir_version: 8, opset_import: ["" : 17]>
step (float[1, past, 4] cache, float[1, 1, 4] x) => (float[1, total, 4] present, float[1, 1, 4] y, float[1, 1, 4] same,
    int64[2] constant, float[1, total, 4] again)
<int64[2] constant = {3, 4}> {
    present = Concat<axis = 1>(cache, x)
    axes = Constant<value_ints = [1]>()
    y = ReduceSum<keepdims = 1>(present, axes)
    same = Identity(x)
    again = Identity(present)
}
"""


@pytest.fixture(scope="module")
def cache_model():
    return onnx.parser.parse_model(CACHE)


def test_a_cache_grows_on_the_device(device, cache_model, monkeypatch):
    locations = {"present": "gpu-buffer"}
    with shaderloom.InferenceSession(
        cache_model, device=device, cache=False, preferred_output_location=locations, dynamic={"past": (0, 64)}
    ) as session:
        cache: Tensor | np.ndarray = np.zeros((1, 0, 4), np.float32)
        rows = np.random.default_rng(0).random((20, 4), np.float32)
        for step, row in enumerate(rows):
            present, y = session.run(["present", "y"], {"cache": cache, "x": row.reshape(1, 1, 4)})
            assert isinstance(present, Tensor)
            assert present.shape == (1, step + 1, 4)
            np.testing.assert_allclose(y[0, 0], rows[: step + 1].sum(0), rtol=1e-5)
            cache = present
        np.testing.assert_array_equal(cache.numpy()[0], rows)
        assert session.stats.misses == 1


@pytest.mark.parametrize("location", ["cpu", "gpu-buffer"])
@pytest.mark.parametrize("feed", ["host", "tensor"])
def test_constant_and_aliased_outputs(device, cache_model, location, feed):
    data = {
        "cache": np.random.default_rng(0).random((1, 3, 4), np.float32),
        "x": np.random.default_rng(1).random((1, 1, 4), np.float32),
    }
    whole = np.concatenate([data["cache"], data["x"]], 1)
    with shaderloom.InferenceSession(
        cache_model, device=device, cache=False, preferred_output_location=location
    ) as session:
        feeds = {name: Tensor.from_numpy(value, device) for name, value in data.items()} if feed == "tensor" else data
        for names in (None, ["again", "same"], ["constant"]):
            results = dict(zip(names or [port.name for port in session.get_outputs()], session.run(names, feeds)))
            values = {"present": whole, "again": whole, "same": data["x"], "constant": np.array([3, 4])}
            for name, result in results.items():
                assert isinstance(result, Tensor) == (location == "gpu-buffer")
                if name in values:
                    np.testing.assert_array_equal(np.asarray(result), values[name])
        # aliases into memory of the caller, of which one is also an input
        memory = {name: Tensor.from_numpy(value * 0, device) for name, value in values.items()}
        if feed == "tensor":
            memory["same"] = feeds["x"]
        session.run(list(memory), feeds, outputs=memory)
        for name, tensor in memory.items():
            np.testing.assert_array_equal(tensor.numpy(), values[name], err_msg=name)


SWAP = """
<ir_version: 8, opset_import: ["" : 17]>
swap (float[4] a, float[4] b) => (float[4] c, float[4] d, float[4] e) { c = Identity(b) d = Identity(a) e = Add(a, b) }
"""


def test_outputs_may_swap_their_inputs(device):
    one, two = np.ones(4, np.float32), np.full(4, 2, np.float32)
    with shaderloom.InferenceSession(onnx.parser.parse_model(SWAP), device=device, cache=False) as session:
        a, b = Tensor.from_numpy(one, device), Tensor.from_numpy(two, device)
        session.run(["c", "d"], {"a": a, "b": b}, outputs={"c": a, "d": b})
        np.testing.assert_array_equal(a.numpy(), two)
        np.testing.assert_array_equal(b.numpy(), one)
        with pytest.raises(InputError, match="shares memory with the output 'c'"):
            session.run(None, {"a": one, "b": two}, outputs={"c": a, "e": a})
        # three outputs in one buffer of the caller
        buffer = make_buffer(device, np.zeros(256, np.float32))
        parts = {name: Tensor.from_gpu_buffer(buffer, np.float32, (4,), i * 256) for i, name in enumerate("cde")}
        session.run(None, {"a": one, "b": two}, outputs=parts)
        for name, value in zip("cde", (two, one, one + two)):
            np.testing.assert_array_equal(parts[name].numpy(), value)


def test_outputs_into_arrays_of_the_caller(device):
    one = np.ones(4, np.float32)
    with shaderloom.InferenceSession(onnx.parser.parse_model(SWAP), device=device, cache=False) as session:
        mine = np.zeros(4, np.float32)
        results = session.run(["e"], {"a": one, "b": one}, outputs={"e": mine})
        assert results[0] is mine
        np.testing.assert_array_equal(mine, [2, 2, 2, 2])
        with pytest.raises(InputError, match="not asked for"):
            session.run(["e"], {"a": one, "b": one}, outputs={"c": mine})
        with pytest.raises(InputError, match="the array for the output"):
            session.run(["e"], {"a": one, "b": one}, outputs={"e": mine.astype(np.float64)})


def test_wrong_locations_are_refused(device):
    model = onnx.parser.parse_model(SWAP)
    for locations, reason in (("gpu", "no location 'gpu'"), ({"q": "cpu"}, "no output 'q'")):
        with pytest.raises(InputError, match=reason):
            shaderloom.InferenceSession(model, device=device, cache=False, preferred_output_location=locations)


@pytest.mark.parametrize("sessions", [1, 4])
def test_eight_threads_of_a_hundred_runs(device, sessions):
    """Mixed host and device, one session or several on one device: every result exact."""
    model = onnx.parser.parse_model(SWAP)
    opened = [shaderloom.InferenceSession(model, device=device, cache=False) for _ in range(sessions)]
    failures: list[object] = []

    def work(index: int) -> None:
        session = opened[index % sessions]
        generator = np.random.default_rng(index)
        try:
            for step in range(100):
                a, b = generator.random((2, 4), np.float32)
                feed = Tensor.from_numpy(a, device) if step % 2 else a
                place = {"e": "gpu-buffer"} if step % 3 == 0 else None
                c, e = session.run(["c", "e"], {"a": feed, "b": b}, outputs=place)
                if not (np.array_equal(c, b) and np.array_equal(np.asarray(e), a + b)):
                    failures.append((index, step))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for session in opened:
        session.close()
    assert failures == []


def test_a_tensor_in_a_cycle_does_not_spoil_the_pool_of_outputs(device):
    """The collector finalises a tensor and its buffer at once; the buffer must not serve a later run."""
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Neg(x) }'
    x = np.arange(4, dtype=np.float32)
    with shaderloom.InferenceSession(
        onnx.parser.parse_model(text), device=device, cache=False, preferred_output_location="gpu-buffer"
    ) as session:
        for _ in range(3):
            cycle: list = [session.run(None, {"x": x})[0]]
            cycle.append(cycle)
            del cycle
            gc.collect()
            np.testing.assert_array_equal(session.run(None, {"x": x})[0].numpy(), -x)
