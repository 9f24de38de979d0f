"""Pausing Python's cycle collector."""

from __future__ import annotations

import gc
import threading

import pytest

from shaderloom.compiler.gc_pause import paused_collection

from ..support.patience import PATIENCE


def test_it_is_resumed_after_errors_and_by_the_outermost_alone():
    @paused_collection()
    def outer() -> None:
        with paused_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise ValueError("inside")

    assert gc.isenabled()
    with pytest.raises(ValueError, match="inside"):
        outer()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with paused_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_threads_that_overlap():
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with paused_collection():
            entered.set()
            leave.wait(PATIENCE)

    thread = threading.Thread(target=other)
    with paused_collection():
        thread.start()
        assert entered.wait(PATIENCE)
    assert not gc.isenabled()  # the other thread still compiles
    leave.set()
    thread.join()
    assert gc.isenabled()
