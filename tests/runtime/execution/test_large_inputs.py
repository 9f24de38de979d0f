"""Large inputs of the host: runs write them at the same time, to few buffers, and nothing else changes.

Covers: runtime/execution/large_inputs, runtime/execution/executor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx.parser
import pytest

import shaderloom
from shaderloom.runtime.execution import large_inputs
from shaderloom.runtime.execution.executor import Executor
from shaderloom.runtime.execution.large_inputs import LARGE, MOST_RUNS, LargeInputs
from shaderloom.runtime.execution.ports import port_size
from shaderloom.runtime.execution.weight_pool import WeightPool
from shaderloom.runtime.memory.tensor import Tensor
from shaderloom.runtime.plan.caps import MemoryAccount
from shaderloom.runtime.plan.errors import ClosedError, LimitError
from shaderloom.runtime.plan.plan import Port

from ...support.bundles import CACHE
from ...support.patience import PATIENCE
from ...support.plans import dynamic_plan, two_call_plan
from .test_tensor_runs import Counter

#: An odd number of elements, just large
COUNT = LARGE // 4 + 3
BIAS = np.arange(10, dtype=np.float32)


def pool_of(device, cap: int = 1 << 30) -> WeightPool:
    return WeightPool(device, lambda source: BIAS, MemoryAccount(cap))


@pytest.fixture
def executor(device):
    with Executor(device, two_call_plan(COUNT), pool_of(device), poison=True) as opened:
        yield opened


def array(seed: int, count: int = COUNT) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count, np.float32)


def check(executor: Executor, seed: int) -> None:
    x = array(seed)
    y = executor.run({"x": x})["y"]
    np.testing.assert_array_equal(y, (x * 2 + 2 * np.resize(BIAS, x.shape)) * 2)


def before_each_write(monkeypatch, act: Callable[[], object]) -> None:
    original = large_inputs.write_array

    def write_array(*arguments):
        act()
        original(*arguments)

    monkeypatch.setattr(large_inputs, "write_array", write_array)


def test_runs_write_at_the_same_time(executor, monkeypatch):
    before_each_write(monkeypatch, threading.Barrier(MOST_RUNS, timeout=PATIENCE).wait)
    with ThreadPoolExecutor(MOST_RUNS) as threads:
        list(threads.map(lambda seed: check(executor, seed), range(2 * MOST_RUNS)))


def test_few_runs_have_buffers(executor):
    before = executor.device_bytes
    with ThreadPoolExecutor(3 * MOST_RUNS) as threads:
        list(threads.map(lambda seed: check(executor, seed), range(6 * MOST_RUNS)))
    assert 4 * COUNT < executor.device_bytes - before - 4 * COUNT < (MOST_RUNS + 0.1) * 4 * COUNT  # beside the output's


@pytest.mark.parametrize("most", [1, 2])
def test_fewer_where_the_cap_leaves_no_room(device, most):
    account = MemoryAccount(int((most + 0.5) * 4 * COUNT))
    inputs = LargeInputs(device, account)
    sizes = {"x": port_size(Port("x", "float32", (COUNT,)), (COUNT,), COUNT)}

    def write(seed: int) -> None:
        with inputs.written({"x": array(seed)}, sizes) as storages:
            tensor = Tensor.from_gpu_buffer(storages["x"].gpu, "float32", (COUNT,))
            np.testing.assert_array_equal(tensor.numpy(), array(seed))

    with ThreadPoolExecutor(MOST_RUNS) as threads:
        list(threads.map(write, range(10)))
    inputs.close()
    assert account.used == 0


def test_one_too_large_alone_is_refused(device):
    pool = pool_of(device)
    with Executor(device, dynamic_plan(high=1 << 22), pool) as executor:
        rows = LARGE // 12 + 1
        for count in (rows, 3 * rows, 2 * rows):
            x = array(count, 3 * count).reshape(-1, 3)
            np.testing.assert_array_equal(executor.run({"x": x})["y"], x + x)
        pool.account.cap = pool.account.used
        with pytest.raises(LimitError, match="input:x"):
            executor.run({"x": array(1, 30 * rows).reshape(-1, 3)})
        x = array(2, 3 * rows).reshape(-1, 3)
        np.testing.assert_array_equal(executor.run({"x": x})["y"], x + x)


def test_a_lone_thread_binds_the_same_buffer(executor, monkeypatch, encoded):
    for seed in range(3):
        check(executor, seed)
    counter = Counter(monkeypatch)
    encoded.clear()
    for seed in range(3):
        check(executor, seed)
    assert (counter.buffers, counter.groups, len(encoded)) == (0, 0, 3)  # each ahead of the next


def test_a_closed_executor_frees_what_a_run_writes(device, monkeypatch):
    pool = pool_of(device)
    executor = Executor(device, two_call_plan(COUNT), pool)
    before_each_write(monkeypatch, executor.close)
    with pytest.raises(ClosedError):
        executor.run({"x": array(0)})
    pool.close()
    assert pool.account.used == 0


def test_outputs_begin_as_large_inputs(device):
    rows = LARGE // 16 + 1
    past = array(0, 8 * rows).reshape(2, rows, 4)
    row, place = array(1, 8).reshape(2, 1, 4), np.array([5, rows - 1])
    expected = past.copy()
    expected[0, 5], expected[1, -1] = row[:, 0]
    model = onnx.parser.parse_model(CACHE.replace(" 6,", f" {rows},"))
    with shaderloom.InferenceSession(model, device=device, cache=False) as session:
        for _ in range(2):
            present = session.run(["present"], {"past": past, "row": row, "place": place})[0]
            np.testing.assert_array_equal(present, expected)
