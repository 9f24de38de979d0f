"""Pools of worker processes, one for each device.

Covers: shaderloom/pool.
"""

from __future__ import annotations

import asyncio
import multiprocessing.util
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import shaderloom
from shaderloom.bundles.compile import compile_bundle
from shaderloom.pool import workers
from shaderloom.runtime.plan.errors import ClosedError, DeviceError, InputError, RunError, UnsupportedError

from ...conftest import ADAPTERS
from ...support.patience import PATIENCE

TINY = """
<ir_version: 8, opset_import: ["" : 18]>
tiny (float[batch, k] x) => (float[batch, k] y) { e = Exp(x) last = Constant<value_ints = [-1]>()
    s = ReduceSum<keepdims = 1>(e, last) y = Div(e, s) }
"""
MIXING = '<ir_version: 8, opset_import: ["" : 18]> m (float[n, 4] x) => (float[n, 4] y) { y = Softmax<axis = 0>(x) }'

FOURS = """
<ir_version: 8, opset_import: ["" : 18]>
fours (float[batch, n] x) => (float[batch, n] y) { four = Constant<value_ints = [-1, 4]>() f = Reshape(x, four)
    p = Softmax<axis = 1>(f) s = Shape(x) y = Reshape(p, s) }
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pool") / "tiny.onnx"
    onnx.save(onnx.parser.parse_model(TINY), path)
    return path


@pytest.fixture(scope="module")
def devices(device) -> list[str]:
    """Both software devices, or the GPU twice."""
    present = [name for name in ADAPTERS if any(name in adapter.name for adapter in shaderloom.list_adapters())]
    return present if len(present) > 1 else [device.name, device.name]


@pytest.fixture(scope="module")
def shared(model, devices):
    with shaderloom.Pool(model, devices) as pool:
        yield pool


def item(number: int, length: int = 8) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(number).standard_normal((1, length), dtype=np.float32)}


def check(outputs: list[np.ndarray], feeds: dict[str, np.ndarray]) -> None:
    exponentials = np.exp(feeds["x"].astype(np.float64))
    np.testing.assert_allclose(outputs[0], exponentials / exponentials.sum(-1, keepdims=True), rtol=1e-5)
    assert outputs[0].flags.writeable


def test_results_are_in_order(shared):
    numbers = range(300)
    for number, outputs in zip(numbers, shared.map(item(number) for number in numbers), strict=True):
        check(outputs, item(number))


def test_results_as_completed_have_the_number_of_their_item(shared):
    lengths = [4 + number % 3 for number in range(100)]
    results = dict(shared.map((item(number, lengths[number]) for number in range(100)), ordered=False))
    assert sorted(results) == list(range(100))
    for number, outputs in results.items():
        check(outputs, item(number, lengths[number]))


def test_large_arrays(shared):
    items = [item(number, 100_000 + number) for number in range(8)]
    for outputs, feeds in zip(shared.map(items), items, strict=True):
        check(outputs, feeds)


def test_what_is_too_large_for_a_chunk_is_sent_in_parts(model, devices, monkeypatch):
    """Large items behind tiny ones, of which chunks have become long."""
    monkeypatch.setattr(workers, "CHUNK_BYTES", 1 << 20)
    items = [item(number, 100_000) for number in range(30)]
    with shaderloom.Pool(model, devices[:1], batch=2) as pool:
        pool._work.chunk = 16
        for outputs, feeds in zip(pool.map(items), items, strict=True):
            check(outputs, feeds)
        worker = pool._workers._workers[0]
        sizes = [memory._size for memory in worker.channel._memories]
    assert all(size <= 2 << 20 for size in sizes)  # of a chunk's inputs and outputs


def test_only_a_window_of_items_is_taken(model, devices):
    taken = []

    def items():
        for number in range(200):
            taken.append(number)
            yield item(number)

    with shaderloom.Pool(model, devices[:1], queue=5) as pool:
        for number, _ in enumerate(pool.map(items())):
            assert len(taken) <= number + 6


def test_errors_belong_to_their_item(shared):
    items = [item(0), {"x": np.zeros((1, 8))}, {}, {"x": threading.Lock()}, item(4)]
    results = list(shared.map(items, on_error="return"))
    check(results[0], items[0])
    check(results[4], items[4])
    assert isinstance(results[1], InputError) and "float64" in str(results[1])
    assert isinstance(results[2], InputError)
    assert isinstance(results[3], InputError) and "cannot be sent to a process" in str(results[3])
    with pytest.raises(InputError, match="float64"):
        list(shared.map(items[:2]))
    for items in (5, None, "x", item(0)):
        with pytest.raises(InputError, match="items is an iterable of inputs"):
            shared.map(items)
    assert isinstance(shared.submit(None).exception(PATIENCE), InputError)
    with pytest.raises(InputError, match="on_error"):
        shared.map([], on_error="ignore")
    with pytest.raises(InputError, match="ordered"):
        shared.map([], ordered="no")


def test_items_are_awaited(shared):
    async def ask():
        return await asyncio.gather(*(shared.run(item(number)) for number in range(20)))

    for number, outputs in enumerate(asyncio.run(ask())):
        check(outputs, item(number))


@pytest.mark.filterwarnings("error")  # which must end no thread of the pool
def test_items_of_a_process_that_ends_go_to_another(model, devices):
    with shaderloom.Pool(model, devices, batch=1) as pool:
        assert len(pool.processes) == 2
        futures = [pool.submit(item(number)) for number in range(400)]
        futures[10].result(PATIENCE)
        os.kill(pool.processes[0], signal.SIGKILL)
        for number, future in enumerate(futures):
            check(future.result(PATIENCE), item(number))
        assert len(pool.devices) == 1


def test_without_workers_items_fail(model, devices):
    pool = shaderloom.Pool(model, devices[:1])
    check(pool.submit(item(0)).result(PATIENCE), item(0))
    os.kill(pool.processes[0], signal.SIGKILL)
    with pytest.raises(DeviceError):
        _ask_for_ever(pool)
    pool.close()


def _ask_for_ever(pool: shaderloom.Pool) -> None:
    while True:
        pool.submit(item(1)).result(PATIENCE)


def test_a_pool_is_closed(model, devices):
    pool = shaderloom.Pool(model, devices[:1])
    processes = pool.processes
    future = pool.submit(item(0))
    pool.close()
    check(future.result(0), item(0))
    assert pool.processes == [] or not _runs(processes[0])
    with pytest.raises(ClosedError):
        pool.submit(item(0))
    pool.close()


def test_a_callback_cannot_wait_for_the_pool(model):
    told: Future[str] = Future()

    def close(_: object) -> None:
        with pytest.raises(RunError, match="callback") as refused:
            pool.close()
        told.set_result(str(refused.value))

    with shaderloom.Pool(model, "cpu") as pool:
        pool.submit(item(0)).add_done_callback(close)
        assert "another thread" in told.result(PATIENCE)
        check(pool.submit(item(1)).result(PATIENCE), item(1))


def test_an_error_in_the_block_ends_the_processes(model, devices):
    pool = shaderloom.Pool(model, devices[:1])
    processes = pool.processes
    with pytest.raises(ZeroDivisionError):
        _fail_with(pool)
    assert not _runs(processes[0])
    with pytest.raises(ClosedError):
        pool.submit(item(0))


def _fail_with(pool: shaderloom.Pool) -> None:
    with pool:
        for number in range(2000):
            pool.submit(item(number))
        raise ZeroDivisionError


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
def test_a_fork_leaves_the_pool_to_its_parent(model):
    with shaderloom.Pool(model, "cpu") as pool:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                pool.submit(item(0))
            except ClosedError:
                pool.terminate()
                pool.close()
                status = 0
                multiprocessing.util._exit_function()  # as at the end of a program, which ends processes of its own
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        check(pool.submit(item(1)).result(PATIENCE), item(1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
def test_a_fork_of_a_program_with_a_device_opens_a_pool_by_numbers(model, device):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with pytest.raises(DeviceError, match="name them by number"):
                shaderloom.Pool(model, "all")
            with shaderloom.Pool(model, [device.name]) as pool:
                check(pool.submit(item(0)).result(PATIENCE), item(0))
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_pool_that_is_dropped_ends_its_processes(model, devices):
    pool = shaderloom.Pool(model, devices[:1])
    process = pool.processes[0]
    del pool
    assert not _runs(process)


def test_what_cannot_be_joined_runs_alone_unless_a_batch_is_asked_for(devices):
    model = onnx.parser.parse_model(MIXING)
    x = np.random.default_rng(0).standard_normal((3, 4), dtype=np.float32)
    with shaderloom.Pool(model, devices[:1]) as pool:
        (result,) = pool.submit({"x": x}).result(PATIENCE)
        np.testing.assert_allclose(result.sum(0), 1, rtol=1e-5)
    with pytest.raises(UnsupportedError, match="mixes the rows"):
        shaderloom.Pool(model, devices[:1], batch=8)


def test_items_that_cannot_be_joined_run_alone_beside_others(devices):
    """Rows of 6 are divided into fours across their ends; rows of 8 are not."""
    items = [{"x": np.random.default_rng(rows).standard_normal((rows, size), dtype=np.float32)}
             for rows, size in ((1, 8), (2, 6), (0, 8), (1, 8), (3, 7), (3, 12))]  # fmt: skip
    with shaderloom.Pool(onnx.parser.parse_model(FOURS), devices[:1]) as pool:
        results = list(pool.map(items, on_error="return"))
        assert isinstance(results.pop(4), shaderloom.ShaderloomError)  # 21 elements are no fours
    del items[4]
    for (result,), feeds in zip(results, items, strict=True):
        e = np.exp(feeds["x"].astype(np.float64)).reshape(-1, 4)
        np.testing.assert_allclose(result, (e / e.sum(-1, keepdims=True)).reshape(feeds["x"].shape), rtol=1e-5)
    with shaderloom.Pool(onnx.parser.parse_model(FOURS), devices[:1], batch=8) as pool:
        refused = pool.submit(items[1]).exception(PATIENCE)
    assert isinstance(refused, UnsupportedError)
    assert refused.origin.op == "Reshape"


def test_the_host_is_a_device(model):
    with shaderloom.Pool(model, "cpu") as pool:
        assert pool.devices == ["cpu"]
        check(pool.submit(item(0)).result(PATIENCE), item(0))


def test_notices_of_all_workers_are_one_of_the_program(model, devices, fresh_notices):
    options = {"providers": ["TensorrtExecutionProvider", "wgpu"]}
    missing = pytest.warns(shaderloom.ShaderloomWarning, match="TensorrtExecutionProvider")
    with missing as told, shaderloom.Pool(model, devices, **options) as pool:
        check(pool.submit(item(0)).result(PATIENCE), item(0))
    assert len(told) == 1
    assert "pool" in Path(told[0].filename).stem  # the line that has opened it


def test_options_are_checked(model, devices):
    wrong = [("batch", value) for value in (0, "all", 2.5, None)] + [("device", 0)]
    wrong += [("queue", value) for value in (0, "a", 2.5, True)]
    wrong += [("open_batch", "no"), ("options", {"f16": threading.Lock()})]
    wrong += [("devices", value) for value in ([], 5.5, None, b"cpu", "", ["0", ""], [None], {0: 1})]
    for name, value in wrong:
        with pytest.raises(InputError, match=name):
            shaderloom.Pool(model, **{"devices": devices[:1], name: value})
    with pytest.raises(InputError, match="not int"):
        shaderloom.Pool(5, devices[:1])
    with pytest.raises(InputError, match="which provider"):
        shaderloom.Pool(model, "cpu", providers=["wgpu"])
    with pytest.raises(shaderloom.ModelError):
        shaderloom.Pool(b"no model", devices[:1])
    with pytest.raises(DeviceError, match="no adapter matches"):
        shaderloom.Pool(model, ["no such device"])


def test_an_interrupt_ends_the_pool(model, devices, tmp_path, interrupts):
    """Of the program and all its processes; the program says what it was doing when it is told to stop."""
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import itertools, sys
import numpy as np
import shaderloom

if __name__ == "__main__":
    x = {{"x": np.zeros((1, 8), np.float32)}}
    try:
        with shaderloom.Pool({str(model)!r}, {devices!r}) as pool:
            for number, outputs in enumerate(pool.map(x for _ in itertools.count())):
                if number == 50:
                    print(*pool.processes, flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
    )
    process = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    workers = [int(text) for text in process.stdout.readline().split()]
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (out, process.returncode, "Traceback" in err) == ("interrupted\n", 0, False)
    assert not any(map(_runs, workers))


def _runs(process: int) -> bool:
    """Return whether a process is there and no zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("is_zip", [False, True])
def test_a_bundle_is_mapped(is_zip, model, devices, tmp_path):
    compile_bundle(model, tmp_path / "b", shapes=[{"x": (rows, 8)} for rows in (1, 4)], as_zip=is_zip)
    items = [item(number) for number in range(20)]
    with shaderloom.Pool(tmp_path / "b", devices[:1]) as pool:
        for (y,), each in zip(pool.map(items), items, strict=True):
            e = np.exp(each["x"])
            np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True), rtol=1e-5)
    with pytest.raises(InputError, match="a bundle has no option 'dynamic'"):
        shaderloom.Pool(tmp_path / "b", devices[:1], dynamic="off")
