"""Queues that compute inside a submission: what may take long is awaited before it, where Ctrl-C is heard."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import helper

import shaderloom
from shaderloom.runtime.device import native, working_queue
from shaderloom.runtime.device.working_queue import LONG, WorkingQueue
from shaderloom.runtime.execution import recording

from ...support.kernels import make_model

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="wgpu-native has other functions")


class Driver:
    """A driver that computes what was submitted when it is told to, and a submission waits until then."""

    def __init__(self, monkeypatch):
        self.is_held = False  #: work is computed when it is released
        self.is_interrupted = False  #: the user presses Ctrl-C while it is asked
        self.submissions: list[bool] = []  #: of each, whether it would have waited
        self._is_busy = False
        self._submit, self._is_idle = native.submit_recorded, native.is_idle
        monkeypatch.setattr(native, "submit_recorded", self.submit)
        monkeypatch.setattr(native, "is_idle", self.is_idle)

    def submit(self, queue, recorded):
        self.submissions.append(self._is_busy)
        self._submit(queue, recorded)
        self._is_busy = self.is_held

    def is_idle(self, gpu):
        if self._is_busy and self.is_interrupted:
            signal.raise_signal(signal.SIGINT)
        return self._is_idle(gpu) and not self._is_busy

    def release(self):
        self.is_held = self.is_interrupted = self._is_busy = False


@pytest.fixture
def driver(device, monkeypatch) -> Driver:
    monkeypatch.setattr(device, "working_queue", WorkingQueue(device.gpu))
    return Driver(monkeypatch)


@pytest.fixture
def session(device, monkeypatch):
    """Two kernels, of which the run submits each by itself."""
    monkeypatch.setattr(recording, "PIECE", 1)
    nodes = [
        helper.make_node("CumSum", ["x", "zero"], ["t"]),
        helper.make_node("CumSum", ["t", "one"], ["y"]),
    ]
    constants = {"zero": np.int64(0), "one": np.int64(1)}
    model = make_model(nodes, {"x": X}, ["y"], constants=constants)
    with shaderloom.InferenceSession(model, device=device, cache=False) as opened:
        opened.prepare()
        yield opened


X = np.arange(16, dtype=np.float32).reshape(2, 8)
Y = np.cumsum(np.cumsum(X, 0), 1)


def test_an_interrupt_is_heard_before_a_submission_would_wait(session, driver, interrupts):
    driver.is_held = driver.is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        session.run(None, {"x": X})
    assert driver.submissions == [False], "the second one would not have come back"
    driver.release()
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], Y)


def test_an_interrupt_is_heard_while_the_only_submission_is_computed(session, driver, interrupts, monkeypatch):
    monkeypatch.setattr(recording, "PIECE", 64)
    driver.is_held = driver.is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        session.run(None, {"x": X})
    with pytest.raises(KeyboardInterrupt):
        session.run(None, {"x": X + 1})
    assert driver.submissions == [False], "nothing is submitted behind it"
    driver.release()
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], Y)


def test_a_session_closes_while_the_driver_computes(session, driver, interrupts):
    driver.is_held = driver.is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        session.run(None, {"x": X})
    session.close()
    assert driver.submissions == [False]
    driver.release()


def test_what_has_run_is_left_to_the_driver(session, driver):
    """It wakes the thread up sooner than a thread that asks would know."""
    session.run(None, {"x": X})
    driver.submissions.clear()
    driver.is_held = True
    x = shaderloom.Tensor.from_numpy(X, session.device)
    y = shaderloom.Tensor.empty(X.shape, np.float32, session.device)
    session.run(["y"], {"x": x}, outputs={"y": y})
    session.run(["y"], {"x": x}, outputs={"y": y})
    assert driver.submissions == [False, True, True, True]
    driver.release()
    np.testing.assert_array_equal(y.numpy(), Y)


def test_long_work_is_awaited_again(monkeypatch):
    now, asked = [0.0], []
    monkeypatch.setattr(working_queue, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(working_queue.native, "is_idle", lambda gpu: asked.append(gpu) or True)
    queue = WorkingQueue("gpu")
    for seconds, may_last, awaited in (
        (0.5, False, 0),
        (0.5, False, 1),
        (LONG / 2, False, 1),
        (0, True, 0),
        (0, False, 1),
    ):
        asked.clear()
        start = queue.wait()
        assert len(asked) == awaited
        now[0] += seconds
        queue.note_submission(start, may_last=may_last)


@pytest.mark.parametrize(
    ("adapter", "is_opengl", "has_one"),
    [("llvmpipe (LLVM 15.0.6, 256 bits)", False, True), ("llvmpipe", True, False), ("NVIDIA H200", False, False)],
)
def test_whose_queue_it_is(adapter, is_opengl, has_one):
    assert (WorkingQueue.of("gpu", adapter, is_opengl=is_opengl) is not None) == has_one
