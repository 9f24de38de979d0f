"""Entries that are written while the process goes on: a first output does not wait for the disk.

The threads are no daemons, so a process that ends completes them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_threads: list[threading.Thread] = []


def write_beside(write: Callable[[], object]) -> None:
    """Run ``write`` on a thread of its own."""
    thread = threading.Thread(target=write, name="shaderloom-cache")
    thread.start()
    _threads.append(thread)


def finish_writing() -> None:
    """Wait until all that was begun in this process is written."""
    while _threads:
        thread = _threads[-1]
        thread.join()
        if thread in _threads:
            _threads.remove(thread)
