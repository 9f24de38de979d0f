"""A session whose requests are joined: many callers, few runs."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Self

import numpy as np

from ..api.arguments import count, is_number
from ..api.async_run import AsyncRun
from ..runtime.plan.errors import InputError, ShaderloomError
from .requests import RequestQueue
from .row_runner import BatchStats, RowRunner
from .session_rows import SessionRows

if TYPE_CHECKING:
    from ..api.values import InputValue


class BatchedSession:
    """Joins requests of equal shapes along the batch of the model.  Thread-safe; close it, or use it in ``with``.

    :meth:`.InferenceSession.batched` opens one.  A request has one row or several; inputs without rows are shared, so
    only requests in which these are equal are joined.  Outputs are arrays on the host.  Where joined runs use the
    kernels of single runs, results are equal bit for bit; else they differ by the rounding of sums in another order.

    An error belongs to its request: inputs are checked one by one, and when a joined run fails, each request of it runs
    alone.
    """

    def __init__(self, session: SessionRows, max_batch: int, max_wait_ms: float, max_queue: int | None) -> None:
        rows = count("max_batch", max_batch, "rows")
        if not is_number(max_wait_ms) or not 0 <= max_wait_ms < 60_000:
            raise InputError(f"max_wait_ms is a number of milliseconds below 60,000, not {max_wait_ms!r:.80}")
        limit = None if max_queue is None else count("max_queue", max_queue, "requests")
        self._runner = RowRunner(session, rows)
        self._queue = RequestQueue(rows, max_wait_ms / 1e3, limit, session.slots)
        threads = [
            threading.Thread(
                target=self._queue.serve, args=(self._runner.outcomes,), name="shaderloom-batch", daemon=True
            )
            for _ in range(session.in_flight)
        ]
        for thread in threads:
            thread.start()
        self._close = weakref.finalize(self, _close, self._queue, threads)

    def submit(
        self, input_feed: Mapping[str, InputValue], output_names: Sequence[str] | None = None
    ) -> Future[list[np.ndarray]]:
        """Queue a request; return the future of its outputs, in the order of ``output_names``, or the model's.

        Inputs must not change until it is done.  Errors of the request are those of the future; a closed session raises
        :class:`.ClosedError`, a full queue :class:`.LimitError`.
        """
        try:
            request = self._runner.request(input_feed, output_names)
        except ShaderloomError as error:
            failed: Future[list[np.ndarray]] = Future()
            failed.set_exception(error)
            return failed
        return self._queue.put(request)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, InputValue], *, timeout: float | None = None
    ) -> list[np.ndarray]:
        """Return the outputs of a request as :meth:`.InferenceSession.run` does; ``timeout`` is in seconds.

        Without a timeout a request runs at once in this thread where others are not expected, or joining does not pay.
        """
        if timeout is not None and not (is_number(timeout) and timeout <= threading.TIMEOUT_MAX):
            raise InputError(f"timeout is a number of seconds, not {timeout!r:.80}", hint="pass None to wait for ever")
        request = self._runner.request(input_feed, output_names)
        callers = self._queue.concurrency
        if timeout is not None or request.kind.joins(request.rows, callers) or not self._queue.begin():
            return self._queue.put(request).result(timeout)
        try:
            return self._runner.outputs_of(request, callers == 1)
        finally:
            self._queue.end(1)

    def run_async(self, output_names: Sequence[str] | None, input_feed: Mapping[str, InputValue]) -> AsyncRun:
        """Queue a request; return what can be awaited, or asked for its ``result()``."""
        return AsyncRun(self.submit(input_feed, output_names))

    def measure(self, input_feed: Mapping[str, InputValue]) -> dict[int, float]:
        """Compile and time every batch size on one row of these inputs; return the seconds of each size.

        Without it, a size is compiled and measured when requests first need it.
        """
        request = self._runner.request(input_feed)
        if request.rows != 1:
            raise InputError(f"one row is measured, not {request.rows}", hint="pass the inputs of a single request")
        return self._runner.measure(request)

    @property
    def waiting(self) -> int:
        """The number of requests that wait to be joined."""
        return len(self._queue)

    @property
    def stats(self) -> BatchStats:
        """Counts of requests, rows and runs so far."""
        return self._runner.stats

    def close(self) -> None:
        """Run what waits, then end.  The session stays open.  Closing twice has no effect."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close(queue: RequestQueue, threads: Sequence[threading.Thread]) -> None:
    queue.close()
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join()
