"""Entries that are written when there is time: a first output waits neither for the disk nor for their encoding.

They wait for the outputs of the run for which they were made, and then a thread writes them, which is no daemon: a
process that ends completes it, and writes what has not begun.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable

from ..runtime.device.awaited_thread import AwaitedThread

_lock = threading.Lock()
_waiting: list[Callable[[], object]] = []
_threads: list[threading.Thread] = []


def write_later(write: Callable[[], object]) -> None:
    """Run ``write`` after the next :func:`begin_writing`."""
    with _lock:
        _waiting.append(write)


def begin_writing() -> None:
    """Write what waits, on a thread of its own; for a caller that has what it waited for."""
    if not _waiting:
        return
    with _lock:
        thread = AwaitedThread(target=_write, name="shaderloom-cache")
        thread.start()
        _threads.append(thread)


def finish_writing() -> None:
    """Write what waits, and wait until all that was begun in this process is written."""
    _write()
    while _threads:
        thread = _threads[-1]
        thread.join()
        if thread in _threads:
            _threads.remove(thread)


def _write() -> None:
    while True:
        with _lock:
            if not _waiting:
                return
            write = _waiting.pop(0)
        write()


def _forget() -> None:
    """Leave all to the parent of this process."""
    global _lock
    _lock = threading.Lock()  # which a thread that is not here may have held
    _waiting.clear()
    _threads.clear()


atexit.register(finish_writing)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
