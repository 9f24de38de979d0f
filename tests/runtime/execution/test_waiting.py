"""Waiting for a device: what wgpu-native's answer means, and that a thread that asks at first still gets results.

Covers: runtime/device.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import helper

import shaderloom
from shaderloom.runtime.device import native, waiting

from ...support.kernels import make_model
from ...support.patience import PATIENCE

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="wgpu-native has other functions")


class Device:
    """What is asked of a device that is none."""

    _internal = queue = None


@pytest.mark.parametrize(("answer", "idle"), [(0, False), (1, True), (0x5A5A5A00, False), (0x5A5A5A01, True)])
def test_only_the_lowest_byte_of_the_answer_counts(monkeypatch, answer, idle):
    monkeypatch.setattr(native, "lib", SimpleNamespace(wgpuDevicePoll=lambda *_: answer))
    assert native.is_idle(SimpleNamespace(_internal=None)) is idle


@pytest.mark.parametrize("spin", [False, True])
def test_slices_grow_with_the_time_and_none_blocks(monkeypatch, spin):
    """A clock of our own: a wait of ten seconds asks a few hundred times, and ends at most a sixty-fourth late."""
    now, slept, asked, finished = [0.0], [], [], queue.SimpleQueue()

    def sleep(seconds):
        slept.append(seconds)
        now[0] += max(seconds, 1e-6)

    def poll(handle, wait, index):
        asked.append(wait)
        now[0] += 1e-6
        if now[0] > 2:
            finished.put(1)
        return 0

    monkeypatch.setattr(native, "lib", SimpleNamespace(wgpuDevicePoll=poll))
    monkeypatch.setattr(waiting, "time", SimpleNamespace(perf_counter=lambda: now[0], sleep=sleep))
    assert native._wait_for(Device(), finished, spin) == 1
    assert not any(asked)
    assert 2 < now[0] < 2.1 and max(slept) <= 0.05
    assert len(asked) < 3000
    assert (0 in slept) is not spin, "a software driver gets the core"


def test_of_threads_that_wait_one_asks(monkeypatch):
    """Each question takes the lock of the interpreter.  Who leaves the line, called back or not, hands the turn on."""
    askers: list[int] = []
    done = [queue.SimpleQueue() for _ in range(4)]
    device, interrupted = Device(), threading.Event()

    def ask(device):
        askers.append(threading.get_ident())
        if interrupted.is_set() and threading.get_ident() == threads[0].ident:
            raise KeyboardInterrupt

    def wait(finished, statuses):
        with contextlib.suppress(KeyboardInterrupt):
            statuses.append(native._wait_for(device, finished, True))

    def asked_by(thread):
        before = len(askers)
        return until(lambda: thread.ident in askers[before:])

    monkeypatch.setattr(native, "is_idle", ask)
    statuses: list[list[int]] = [[] for _ in done]
    threads = [threading.Thread(target=wait, args=pair) for pair in zip(done, statuses)]
    for number, thread in enumerate(threads):
        thread.start()
        until(lambda number=number: len(waiting._lines[device]._waiting) == number + 1)
    assert set(askers) == {threads[0].ident}, "the others sleep"
    done[2].put(7)
    threads[2].join()
    assert statuses[2] == [7] and set(askers) == {threads[0].ident}
    interrupted.set()
    threads[0].join()
    asked_by(threads[1])
    done[1].put(5)
    threads[1].join()
    asked_by(threads[3])
    done[3].put(6)
    threads[3].join()
    assert statuses == [[], [5], [7], [6]]
    assert set(askers) == {threads[number].ident for number in (0, 1, 3)}


def test_a_thread_that_is_lost_while_it_asks_is_replaced(monkeypatch):
    """An interrupt may come between any two steps, also where a thread leaves the line."""
    device, asked = Device(), []
    line = waiting._lines.setdefault(device, waiting._Line())
    lost, finished = queue.SimpleQueue(), queue.SimpleQueue()
    line._waiting[lost] = None
    assert line._has_turn(lost)

    def ask(device):
        asked.append(device)
        finished.put(3)

    monkeypatch.setattr(native, "is_idle", ask)
    assert native._wait_for(device, finished, True) == 3
    assert len(asked) == 1 and not line._waiting and line._asker is None


def until(holds):
    """Wait until a condition holds."""
    end = time.perf_counter() + PATIENCE
    while not holds():
        assert time.perf_counter() < end
        time.sleep(1e-3)


ENDLESS = """
import os, signal, sys, threading
from shaderloom.runtime.device.opening import open_device
device = open_device(sys.argv[1])
code = '''@group(0) @binding(0) var<storage, read_write> y: array<u32>;
  @compute @workgroup_size(1) fn main() { loop { if y[0] == 7u { break; } y[1] += 1u; } }'''
module = device.create_module(code, checked=True, label="x", max_bytes=1 << 20)
pipeline = device.gpu.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
buffer = device.gpu.create_buffer(size=16, usage=0x80)
entries = [{"binding": 0, "resource": {"buffer": buffer, "offset": 0, "size": 16}}]
group = device.gpu.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
encoder = device.gpu.create_command_encoder()
work = encoder.begin_compute_pass()
work.set_pipeline(pipeline)
work.set_bind_group(0, group)
work.dispatch_workgroups(1, 1, 1)
work.end()
device.submit([encoder.finish()], "a run")
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    device.wait()
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.slow
def test_a_shader_without_an_end_can_be_interrupted(each_device):
    """And the process can end.  llvmpipe ends such loops by itself, SwiftShader does not."""
    if "SwiftShader" not in each_device.name:
        pytest.skip("the driver may end the loop, or the machine's display hang")
    command = [sys.executable, "-c", ENDLESS, "SwiftShader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_a_run_is_waited_for_when_the_thread_asks_at_first(device, monkeypatch):
    """A software driver takes its time: results would be those of the poison if the wait ended early."""
    monkeypatch.setattr(device, "profile", replace(device.profile, kind="discrete"))
    assert device.busy_waits
    x = np.random.default_rng(0).standard_normal((512, 300)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Tanh", ["t"], ["y"])]
    weight = np.random.default_rng(1).standard_normal((300, 512)).astype(np.float32) * 0.05
    model = make_model(nodes, {"x": x}, ["y"], constants={"w": weight})
    with shaderloom.InferenceSession(model, device=device, cache=False) as session:
        for number in range(4):
            (y,) = session.run(None, {"x": x * number})
            np.testing.assert_allclose(y, np.tanh(x * number @ weight), atol=1e-5)
        held = shaderloom.Tensor.from_numpy(np.full((512, 512), np.nan, np.float32), device)
        session.run(["y"], {"x": shaderloom.Tensor.from_numpy(x, device)}, outputs={"y": held})
        device.wait()
        assert native.is_idle(device.gpu)
        np.testing.assert_allclose(held.numpy(), np.tanh(x @ weight), atol=1e-5)
