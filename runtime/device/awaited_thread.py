"""Threads that the end of a process waits for, also after an interrupt."""

from __future__ import annotations

import threading


class AwaitedThread(threading.Thread):
    """A thread whose :meth:`join` may be interrupted.

    Before Python 3.13 a thread counts as ended once ``Thread.join`` was left by an exception, as Ctrl-C raises one: the
    process ends without it, and a driver that it was in may end the process by a signal.
    """

    _ended: threading.Event

    def start(self) -> None:
        self._ended = threading.Event()
        super().start()

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._ended.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has done its work, ``timeout`` seconds at most."""
        if self._ended.wait(timeout):
            super().join()
