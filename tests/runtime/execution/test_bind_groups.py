"""Bind groups of plans with dynamic dimensions: the same ones for all sizes.  And how sizes get to the device."""

from __future__ import annotations

import numpy as np
import pytest

import shaderloom
from shaderloom.runtime.execution import executor
from shaderloom.runtime.execution.recording import Recording, Replay
from shaderloom.runtime.plan.errors import DeviceError

from ...support.programs import numbers, parse
from ...support.sessions import engine_of

#: Four kernels: running sums over one axis and the other, in turns
SUMS = """g (float[n, 8] x) => (float[n, 8] y) <int64 rows = {0}, int64 columns = {1}> {
    a = CumSum(x, rows)  b = CumSum(a, columns)  c = CumSum(b, rows)  y = CumSum(c, columns) }"""


def expected(x: np.ndarray) -> np.ndarray:
    return x.cumsum(0, np.float64).cumsum(1).cumsum(0).cumsum(1)


def test_new_sizes_bind_nothing_anew(each_device, monkeypatch) -> None:
    """Buffers that grow are bound again, sizes below them are not; sizes come back, too."""
    bound = []
    plain = type(each_device).bind_group
    monkeypatch.setattr(
        type(each_device), "bind_group", lambda device, *where: bound.append(1) or plain(device, *where)
    )
    with shaderloom.InferenceSession(parse(SUMS), device=each_device, cache=False, dynamic={"n": (2, 99)}) as session:
        counts = []
        for size in (40, 3, 39, 17, 99, 98, 2, 40):
            x = numbers(size, 8, seed=size)
            np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-4, atol=1e-3)
            counts.append(len(bound))
        calls = len(engine_of(session).last.compiled.plan.calls)
    assert counts == [calls] * 4 + [2 * calls] * 4


def test_a_plan_without_arenas_looks_for_its_buffers_once(device, monkeypatch) -> None:
    sought = []
    plain = executor.Executor._allocate_symbols
    monkeypatch.setattr(executor.Executor, "_allocate_symbols", lambda run: sought.append(1) or plain(run))
    tanh = parse("g (float[n, 8] x) => (float[n, 8] y) { y = Tanh(x) }")
    with shaderloom.InferenceSession(tanh, device=device, cache=False, dynamic={"n": (2, 99)}) as session:
        for size in (40, 3, 99):
            x = numbers(size, 8, seed=size)
            np.testing.assert_allclose(session.run(None, {"x": x})[0], np.tanh(x), rtol=1e-5, atol=1e-6)
        assert not engine_of(session).last.compiled.plan.arenas
    assert sought == [1]


def test_a_caller_s_tensor_is_bound_in_its_size(each_device) -> None:
    """Between runs on arrays, with tensors for the input, the output, or both."""
    with shaderloom.InferenceSession(parse(SUMS), device=each_device, cache=False, dynamic={"n": (1, 99)}) as session:
        for size in (40, 3, 25):
            x = numbers(size, 8, seed=size)
            tensor = shaderloom.Tensor.from_numpy(x, each_device)
            for feed in (x, tensor):
                for where in ("cpu", "gpu-buffer"):
                    (y,) = session.run(None, {"x": feed}, outputs={"y": where})
                    found = y if isinstance(y, np.ndarray) else y.numpy()
                    np.testing.assert_allclose(found, expected(x), rtol=1e-4, atol=1e-3)


def test_tensors_of_new_sizes_share_buffers_and_bind_groups(each_device, monkeypatch) -> None:
    """Released outputs of similar sizes serve each other, bound whole: then a run binds its new input alone."""
    bound, created = [], []
    kind = type(each_device)
    bind_group, create_buffer = kind.bind_group, kind.create_buffer
    monkeypatch.setattr(kind, "bind_group", lambda device, *where: bound.append(1) or bind_group(device, *where))
    monkeypatch.setattr(kind, "create_buffer", lambda device, *what: created.append(1) or create_buffer(device, *what))
    with shaderloom.InferenceSession(parse(SUMS), device=each_device, cache=False, dynamic={"n": (1, 99)}) as session:
        counts = []
        for size in (64, 60, 57, 63, 58, 40, 61, 59):
            x = numbers(size, 8, seed=size)
            tensor = shaderloom.Tensor.from_numpy(x, each_device)
            before = len(bound), len(created)
            (y,) = session.run(None, {"x": tensor}, outputs={"y": "gpu-buffer"})
            counts.append((len(bound) - before[0], len(created) - before[1]))
            np.testing.assert_allclose(y.numpy(), expected(x), rtol=1e-4, atol=1e-3)
            assert y.shape == x.shape
            y.dispose()
    assert counts[1:5] == [(1, 0)] * 4 and counts[6:] == [(1, 0)] * 2, counts
    assert counts[5] == (2, 1), "an output of another class of sizes"


def test_memory_of_the_caller_is_bound_in_its_size(each_device) -> None:
    """A range in the middle of a buffer, for several sizes, with what lies around it unchanged."""
    rows = 32
    buffer = each_device.create_buffer(4 * rows * 32, 0x8C, "caller")
    whole = shaderloom.Tensor.from_gpu_buffer(buffer, np.float32, (4 * rows, 8))
    with shaderloom.InferenceSession(parse(SUMS), device=each_device, cache=False, dynamic={"n": (1, 99)}) as session:
        for size in (32, 8, 24, 16):
            before = numbers(4 * rows, 8, seed=size)
            whole.update(before)
            x = shaderloom.Tensor.from_gpu_buffer(buffer, np.float32, (size, 8), offset=rows * 32)
            (y,) = session.run(None, {"x": x}, outputs={"y": "gpu-buffer"})
            np.testing.assert_allclose(y.numpy(), expected(before[rows : rows + size]), rtol=1e-4, atol=1e-3)
            np.testing.assert_array_equal(whole.numpy(), before)


def test_a_repeated_run_after_one_of_another_size(each_device) -> None:
    """Tensors in and out are replayed at once; a profile at another size in between writes other symbols."""
    with shaderloom.InferenceSession(parse(SUMS), device=each_device, cache=False, dynamic={"n": (1, 99)}) as session:
        x = numbers(40, 8)
        feed = shaderloom.Tensor.from_numpy(x, each_device)
        result = shaderloom.Tensor.empty((40, 8), np.float32, each_device)
        for profiled in (False, False, True, False, False):
            if profiled:
                session.profile({"x": numbers(7, 8)})
            result.update(np.zeros((40, 8), np.float32))
            session.run(None, {"x": feed}, outputs={"y": result})
            np.testing.assert_allclose(result.numpy(), expected(x), rtol=1e-4, atol=1e-3)
        assert engine_of(session).last.executor.try_replay({"x": feed}, {"y": result}) is not None


@pytest.mark.parametrize(("sizes", "high", "written"), [(1, 99, 0), (2, 99, 0), (3, 99, 1), (1, 1 << 14, 1)])
def test_sizes_are_copied_on_the_device(sizes: int, high: int, written: int, each_device, monkeypatch) -> None:
    """A new size writes nothing from the host, unless it is one of many; a submission that failed has set no size."""
    names = "nmk"[:sizes]
    shape = ", ".join((*names, "2"))
    model = parse(f"g (float[{shape}] x) => (float[{shape}] y) <int64 axis = {{0}}> {{ y = CumSum(x, axis) }}")
    ranges = dict.fromkeys(names, (1, high))
    with shaderloom.InferenceSession(model, device=each_device, cache=False, dynamic=ranges) as session:
        inputs = [numbers(*[size + axis for axis in range(sizes)], 2, seed=size) for size in (5, 9, 3, 8, 3)]
        feeds = [shaderloom.Tensor.from_numpy(x, each_device) for x in inputs]
        session.run(None, {"x": feeds[0]})
        writes, failing = [], [False, True, False]
        plain, submit = executor.write, Replay.submit_once
        monkeypatch.setattr(executor, "write", lambda *what: writes.append(1) or plain(*what))

        def submitted(replay: Replay, recording: Recording) -> None:
            if failing and failing.pop():
                raise DeviceError("refused")
            submit(replay, recording)

        monkeypatch.setattr(Replay, "submit_once", submitted)
        for x, feed in zip(inputs[1:], feeds[1:], strict=True):
            try:
                (y,) = session.run(None, {"x": feed})
            except DeviceError:
                (y,) = session.run(None, {"x": feed})
            np.testing.assert_allclose(y, x.cumsum(0), rtol=1e-5, atol=1e-5)
        assert len(writes) == written * 5, "four sizes, and one of them again"
        assert not failing
