"""Runs in the background: while one is awaited the next is encoded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from .values import OutputValue

#: runs of one session that are encoded or awaited at the same time; one waits for the device while another is encoded
IN_FLIGHT = 4

#: As in onnxruntime: results, the caller's data, and the message of an error ("" if there was none)
Callback = Callable[[list[OutputValue], Any, str], None]


class AsyncRun:
    """A run in flight.  ``await`` it, or call :meth:`result`."""

    def __init__(self, future: Future[list[OutputValue]]) -> None:
        self._future = future

    def __repr__(self) -> str:
        state = "in flight" if not self.done() else "cancelled" if self._future.cancelled() else "ended"
        return f"<AsyncRun, {state}>"

    def __await__(self) -> Generator[Any, None, list[OutputValue]]:
        import asyncio  # the caller has it; a session that never awaits does not need it

        return asyncio.wrap_future(self._future).__await__()

    def result(self, timeout: float | None = None) -> list[OutputValue]:
        """Block until the outputs are available and return them; raise what the run raised."""
        return self._future.result(timeout)

    def done(self) -> bool:
        """Return whether the run has ended."""
        return self._future.done()


class AsyncRunner:
    """Threads for the runs of one session; they start with the first run and end with :meth:`close`."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def start(self, run: Callable[[], list[OutputValue]], callback: Callback | None, user_data: Any) -> AsyncRun:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="shaderloom-run")
            future = self._threads.submit(run)
        if callback is not None:
            future.add_done_callback(lambda done: _call(callback, user_data, done))
        return AsyncRun(future)

    def close(self) -> None:
        """Let runs in flight finish and accept no further ones."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)


def _call(callback: Callback, user_data: Any, done: Future[list[OutputValue]]) -> None:
    error = done.exception()
    if error is None:
        callback(done.result(), user_data, "")
    else:
        callback([], user_data, str(error))
