"""Threads on which drivers compile, and the end of a process that has some.

They are no daemons: a process that ends while a driver compiles on another thread would be ended by a signal, so Python
waits for the driver.  A program that was interrupted may leave by :func:`os._exit` instead, as the command line does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from .awaited_thread import AwaitedThread


def start(target: Callable[[], None], number: int) -> threading.Thread:
    """Start and return the thread ``number`` of those that run ``target``."""
    thread = AwaitedThread(target=target, name=f"shaderloom-compile-{number}")
    thread.start()
    return thread


def process_ends() -> bool:
    """Return whether the main thread has ended, so that nothing that is compiled will be used."""
    return not threading.main_thread().is_alive()
