"""The end of a process waits for its threads, whatever became of those that waited.

Covers: runtime/device/awaited_thread.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from shaderloom.runtime.device.awaited_thread import AwaitedThread

_INTERRUPTED = """
import os, signal, threading
from shaderloom.runtime.device.awaited_thread import AwaitedThread

main_ended = threading.Event()

def work():
    main_ended.wait()
    threading.main_thread().join()
    os.write(1, b"ended")

thread = AwaitedThread(target=work)
thread.start()
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
try:
    thread.join()
except KeyboardInterrupt:
    assert thread.is_alive()
    main_ended.set()
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the system has no signals to a thread")
def test_a_process_waits_for_a_thread_whose_join_was_interrupted():
    """The thread works on once the main thread has ended."""
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("ended", "", 0)


def test_join_waits_for_the_work_or_the_time():
    release = threading.Event()
    thread = AwaitedThread(target=release.wait)
    thread.start()
    thread.join(0.01)
    assert thread.is_alive()
    release.set()
    thread.join()
    assert not thread.is_alive()
