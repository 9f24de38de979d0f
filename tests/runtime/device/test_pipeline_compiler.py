"""Pipelines compiled on several threads: every kernel once, siblings of a device, errors, and that results stay."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from shaderloom.runtime.device import pipeline_compiler
from shaderloom.runtime.device.pipeline_compiler import PipelineCompiler, compiles_late
from shaderloom.runtime.execution.executor import Executor
from shaderloom.runtime.execution.weight_pool import WeightPool
from shaderloom.runtime.plan.caps import MemoryAccount
from shaderloom.runtime.plan.errors import DeviceError

from ...support.patience import PATIENCE
from ...support.plans import dynamic_plan, two_call_plan

BIAS = np.arange(10, dtype=np.float32)
X = np.random.default_rng(2).random(100, np.float32)


@pytest.fixture
def three_threads(monkeypatch):
    """Three cores, and siblings beside a late compiler however short the kernels."""
    monkeypatch.delenv("MESA_SHADER_CACHE_DISABLE", raising=False)
    monkeypatch.setattr(pipeline_compiler, "cores", lambda: 3)
    monkeypatch.setattr(pipeline_compiler, "_WORTH_BYTES", 0)


def kernels(count: int, note: str):
    """Return ``count`` kernels of one body whose texts, and keys, differ."""
    first = two_call_plan().kernels[0]
    return [
        dataclasses.replace(first, key=f"{note}{number:03}", wgsl=f"{first.wgsl}\n// {note} {number}")
        for number in range(count)
    ]


def compiler(device, **options):
    return PipelineCompiler(device, checked=True, max_wgsl_bytes=1 << 20, **options)


def test_only_a_driver_that_compiles_late_gets_siblings(each_device, monkeypatch):
    monkeypatch.delenv("MESA_SHADER_CACHE_DISABLE", raising=False)
    assert compiles_late(each_device) == ("llvmpipe" in each_device.name.lower())
    monkeypatch.setenv("MESA_SHADER_CACHE_DISABLE", "true")
    assert not compiles_late(each_device), "what a sibling compiled would not reach the device"


def test_short_kernels_are_left_to_their_first_dispatch_where_siblings_cost_more(each_device, monkeypatch):
    monkeypatch.setattr(pipeline_compiler, "cores", lambda: 3)
    seen = []
    ahead = compiler(each_device, progress=lambda done, total: seen.append((done, total)))
    for item in kernels(3, "short"):
        ahead.add(item)
    assert ahead.is_running == (not compiles_late(each_device))
    ahead.finish()
    assert seen[-1] == ((0, 3) if compiles_late(each_device) else (3, 3))


def test_every_kernel_is_compiled_once(each_device, three_threads, monkeypatch):
    created = []
    create = type(each_device)._create_pipeline

    def record(device, kernel, *rest):
        if device is each_device:
            created.append(kernel.key)
        return create(device, kernel, *rest)

    monkeypatch.setattr(type(each_device), "_create_pipeline", record)
    items = kernels(12, "once")
    seen = []
    ahead = compiler(each_device, progress=lambda done, total: seen.append((done, total)))
    for item in items + items:
        ahead.add(item)
    ahead.finish()
    assert sorted(created) == sorted(item.key for item in items)
    assert seen[-1] == (12, 12)
    assert ahead.on_siblings == (12 if compiles_late(each_device) else 0)
    for item in items:
        each_device.pipeline(item, checked=True, max_wgsl_bytes=1 << 20)
    assert len(created) == 12, "the pipelines are held until their user takes them"


def test_a_kernel_does_not_wait_for_a_busy_thread_while_another_may_start(each_device, three_threads, monkeypatch):
    create = type(each_device)._create_pipeline
    entered, release = threading.Semaphore(0), threading.Event()

    def slow(device, *rest):
        entered.release()
        release.wait(PATIENCE)
        return create(device, *rest)

    monkeypatch.setattr(type(each_device), "_create_pipeline", slow)
    ahead = compiler(each_device)
    begun = []
    for item in kernels(3, "busy"):
        ahead.add(item)
        begun.append(entered.acquire(timeout=PATIENCE))
    release.set()
    ahead.finish()
    assert begun == [True, True, True]


def test_threads_that_need_one_pipeline_share_it(each_device, monkeypatch):
    entered, release = threading.Event(), threading.Event()
    create = type(each_device)._create_pipeline
    calls = []

    def slow(device, kernel, *rest):
        calls.append(kernel.key)
        entered.set()
        release.wait(PATIENCE)
        return create(device, kernel, *rest)

    monkeypatch.setattr(type(each_device), "_create_pipeline", slow)
    (item,) = kernels(1, "shared")
    holders = []
    threads = [
        threading.Thread(
            target=lambda: holders.append(each_device.pipeline(item, checked=True, max_wgsl_bytes=1 << 20))
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert entered.wait(PATIENCE)
    release.set()
    for thread in threads:
        thread.join()
    assert len(calls) == 1 and len(holders) == 3 and len(set(map(id, holders))) == 1


@pytest.mark.parametrize("make", [two_call_plan, dynamic_plan])
def test_results_stay(each_device, three_threads, make, monkeypatch):
    def outputs():
        pool = WeightPool(each_device, lambda reference: BIAS, MemoryAccount(1 << 30))
        with Executor(each_device, make(), pool, poison=True) as executor:
            feeds = {port.name: X if make is two_call_plan else X[:99].reshape(-1, 3) for port in executor.plan.inputs}
            result = executor.run(feeds)
        pool.close()
        return result

    together = outputs()
    monkeypatch.setattr(pipeline_compiler, "cores", lambda: 0)
    alone = outputs()
    assert together.keys() == alone.keys()
    for name, value in alone.items():
        assert np.isfinite(value).all()
        np.testing.assert_array_equal(together[name], value)


def test_a_device_without_a_sibling_compiles_alone(each_device, three_threads, monkeypatch):
    def refuse(self):
        raise DeviceError("no second device")

    monkeypatch.setattr(type(each_device), "sibling", refuse)
    ahead = compiler(each_device)
    for item in kernels(3, "alone"):
        ahead.add(item)
    ahead.finish()
    assert ahead.on_siblings == 0 and ahead.done == 3


def test_a_kernel_that_does_not_compile_is_the_device_s_error(each_device, three_threads):
    plan = two_call_plan()
    broken = dataclasses.replace(plan, kernels=tuple(dataclasses.replace(k, wgsl="fn main(") for k in plan.kernels))
    pool = WeightPool(each_device, lambda reference: BIAS, MemoryAccount(1 << 30))
    for _ in range(2):  # a failure is not remembered as a pipeline that is being created
        with pytest.raises(DeviceError, match="compiling the shader"):
            Executor(each_device, broken, pool)
    pool.close()


def test_threads_without_work_end_and_start_again(each_device, three_threads, monkeypatch):
    monkeypatch.setattr(pipeline_compiler, "_IDLE", 0.01)
    ahead = compiler(each_device)
    first, second = kernels(2, "idle")
    ahead.add(first)
    deadline = time.monotonic() + PATIENCE
    while ahead.is_running and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not ahead.is_running and ahead.done == 1
    ahead.add(second)
    ahead.finish()
    assert ahead.done == 2


def test_stopping_leaves_the_rest(each_device, three_threads, monkeypatch):
    monkeypatch.setattr(pipeline_compiler, "_PATIENCE", PATIENCE)
    ahead = compiler(each_device)
    items = kernels(50, "stop")
    for item in items:
        ahead.add(item)
    ahead.stop()
    assert not ahead.is_running
    ahead.finish()
    assert ahead.done < len(items)


def test_what_the_driver_still_compiles_is_logged(each_device, three_threads, monkeypatch, caplog):
    caplog.set_level("INFO", "shaderloom.device")
    monkeypatch.setattr(pipeline_compiler, "_PATIENCE", 0)
    create = type(each_device)._create_pipeline
    begun, release = threading.Event(), threading.Event()

    def held(device, *rest):
        begun.set()
        release.wait(PATIENCE)
        return create(device, *rest)

    monkeypatch.setattr(type(each_device), "_create_pipeline", held)
    ahead = compiler(each_device)
    (kernel,) = kernels(1, "log")
    ahead.add(kernel)
    assert begun.wait(PATIENCE)
    ahead.stop()
    assert caplog.messages == [f"the driver still compiles kernel {kernel.id} ({kernel.template})"]
    release.set()
    ahead.finish()
    ahead.stop()
    assert len(caplog.messages) == 1


#: A process with a driver that compiles until it is released; says which kernels it begins, and which it has compiled
_HELD = """
    import os, signal, sys, threading, time
    from shaderloom.runtime.device import compile_threads, pipeline_compiler
    from shaderloom.runtime.device.device import Device
    from shaderloom.runtime.device.opening import open_device
    from tests.runtime.device.test_pipeline_compiler import compiler, kernels

    def say(what):
        os.write(1, f"{what}\\n".encode())  # whole, beside other threads

    device, create = open_device(), Device._create_pipeline
    pipeline_compiler._WORTH_BYTES = 0
    pipeline_compiler.cores = lambda: 2
    begun, release = threading.Semaphore(0), threading.Event()

    def held(device, kernel, *rest):
        say(f"begin {kernel.key}")
        begun.release()
        while not (release.is_set() or compile_threads.process_ends()):
            time.sleep(0.01)
        holder = create(device, kernel, *rest)
        say(f"end {kernel.key}")
        return holder

    Device._create_pipeline = held
    ahead = compiler(device)
    for item in kernels(8, "held"):
        ahead.add(item)
    begun.acquire()
    begun.acquire()
    say("all threads compile")
"""

_INTERRUPTED = """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    try:
        timer.start()
        ahead.finish()
    except KeyboardInterrupt:
        ahead.stop()
        say("stopped")
    release.set()
"""


def said_by(device, program: str) -> list[str]:
    """Run ``program`` in a process of its own and return its lines, after those that it says while it starts."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "SHADERLOOM_ADAPTER": device.name, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    start = lines.index("all threads compile")
    assert len(set(lines[:start])) == 2 and all(line.startswith("begin ") for line in lines[:start]), lines
    return lines[start + 1 :]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the system has no signals to a thread")
def test_an_interrupt_does_not_wait_for_the_driver(each_device):
    """The driver is released after the compiler has stopped; what it had begun is all that it compiles."""
    stopped, *rest = said_by(each_device, textwrap.dedent(_HELD) + textwrap.dedent(_INTERRUPTED))
    assert stopped == "stopped"
    assert len({line.split()[1] for line in rest}) == 2, rest


@pytest.mark.slow
def test_a_process_that_ends_waits_for_the_driver_alone(each_device):
    """It neither crashes nor compiles what is left: two kernels of eight."""
    rest = said_by(each_device, textwrap.dedent(_HELD))
    assert len({line for line in rest if line.startswith("end ")}) == 2, rest
    assert len({line.split()[1] for line in rest}) == 2, rest


def test_a_sibling_has_the_same_features_and_limits(each_device):
    sibling = each_device.sibling()
    try:
        assert sibling.gpu is not each_device.gpu
        assert set(sibling.gpu.features) == set(each_device.gpu.features)
        assert all(sibling.gpu.limits[name] == each_device.gpu.limits[name] for name in each_device.profile.limits)
    finally:
        sibling.gpu.destroy()
