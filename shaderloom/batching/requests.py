"""Requests that wait to be joined: those of equal shapes in one line, the oldest first."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from .. import forks
from ..runtime.plan.errors import ClosedError, LimitError
from .request_kind import RequestKind

Arrays = dict[str, np.ndarray]


@dataclass(eq=False, slots=True)
class Request:
    """Inputs of ``rows`` rows.  Requests with equal keys may be joined.

    One of several ``items`` is joined already, along the first axis of all inputs: each item has as many rows.
    """

    kind: RequestKind
    key: Hashable
    feeds: Arrays
    rows: int
    items: int = 1

    def between(self, begin: int, end: int) -> Request:
        """Return the request of some of the items."""
        if end - begin == self.items:
            return self
        rows = self.rows // self.items
        feeds = {name: array[begin * rows : end * rows] for name, array in self.feeds.items()}
        return Request(self.kind, self.key, feeds, (end - begin) * rows, end - begin)

    def apart(self) -> list[Request]:
        """Return the request of each item."""
        return [self.between(index, index + 1) for index in range(self.items)]


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """A request that waits for others until ``deadline``, on the monotonic clock, and the future of its outputs."""

    request: Request
    deadline: float
    future: Future[list[Any]] = field(default_factory=Future)


class Line:
    """Requests of equal keys, the oldest first, and the number of their rows."""

    def __init__(self) -> None:
        self._queued: deque[QueuedRequest] = deque()
        self.rows = 0

    @property
    def deadline(self) -> float:
        """When the oldest request no longer waits."""
        return self._queued[0].deadline

    def append(self, queued: QueuedRequest) -> None:
        self._queued.append(queued)
        self.rows += queued.request.rows

    def take(self, most: int) -> list[QueuedRequest]:
        """Remove and return the oldest requests, of up to ``most`` rows together, or a single one."""
        batch: list[QueuedRequest] = []
        rows = 0
        while self._queued and (not batch or rows + self._queued[0].request.rows <= most):
            batch.append(self._queued.popleft())
            rows += batch[-1].request.rows
        self.rows -= rows
        return batch


class RequestQueue:
    """Requests by key, and the number of those that run.  Thread-safe.

    A batch is due when it has ``most`` rows, when its oldest request has waited ``wait`` seconds, or when all callers
    are here: as many requests wait or run as there ever were since somebody waited in vain.  At most ``slots`` batches
    run at a time.  ``limit`` is the number of requests that may wait.
    """

    def __init__(self, most: int, wait: float, limit: int | None, slots: float = math.inf) -> None:
        self._most, self._wait, self._limit, self._slots = most, wait, limit, slots
        self._lines: dict[Hashable, Line] = {}
        self._count = 0
        self._running = 0
        self._expected = math.inf
        self._closed = False
        self._forks = forks.number
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def __len__(self) -> int:
        return self._count

    @property
    def concurrency(self) -> float:
        """The number of requests at a time that are expected with a further one; infinite until something is known."""
        callers = self._count + self._running + 1
        return callers if callers > self._expected else self._expected

    def put(self, request: Request) -> Future[list[Any]]:
        """Append a request.  Raises :class:`ClosedError`, and :class:`LimitError` where too many wait."""
        self._check_process()
        queued = QueuedRequest(request, time.monotonic() + self._wait)
        with self._changed:
            self._check_open()
            if self._limit is not None and self._count >= self._limit:
                raise LimitError(f"{self._count} requests wait already", hint="ask again later, or raise max_queue")
            line = self._lines.setdefault(request.key, Line())
            line.append(queued)
            self._count += 1
            self._expected = max(self._expected, self._callers)
            is_due = line.rows >= self._most or self._callers >= self._expected
            if self._slots and (is_due or self._count == 1):  # else a thread waits already until the oldest is due
                self._changed.notify()
        return queued.future

    def take(self) -> list[QueuedRequest]:
        """Wait for a batch that is due and remove it; return no requests once the queue is closed and empty.

        The batch runs until :meth:`end`.
        """
        with self._changed:
            while True:
                key = self._due() if self._slots else None
                if key is not None:
                    return self._remove(key)
                if self._closed and not self._count:
                    return []
                oldest = min((line.deadline for line in self._lines.values()), default=math.inf)
                self._changed.wait(max(oldest - time.monotonic(), 0) if self._slots and self._count else None)

    def serve(self, outcomes: Callable[[Sequence[Request]], Sequence[Any]]) -> None:
        """Settle requests with the outputs, or the error, of each, until the queue is closed and empty."""
        while batch := self.take():
            asked = [each for each in batch if each.future.set_running_or_notify_cancel()]
            settled = outcomes([each.request for each in asked])
            self.end(len(batch))
            for each, outcome in zip(asked, settled, strict=True):
                settle(each.future, outcome)
            del batch, asked, settled  # or arrays of the last requests stay while none come

    def begin(self) -> bool:
        """Begin the run of a request that does not wait, until :meth:`end`; return False if no slot is free.

        Raises :class:`ClosedError`.
        """
        self._check_process()
        with self._lock:
            self._check_open()
            if not self._slots:
                return False
            self._slots -= 1
            self._running += 1
            if self._callers > self._expected:
                self._expected = self._callers
            return True

    def end(self, requests: int) -> None:
        """End the run of so many requests, before their callers get what they wait for and may ask again."""
        with self._lock:
            self._slots += 1
            self._running -= requests
            if self._count or self._closed:
                self._changed.notify()

    def close(self) -> None:
        """Accept no further requests; those that wait are due.  In a fork do nothing."""
        if self._forks != forks.number:
            return
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _check_process(self) -> None:
        """Raise :class:`ClosedError` in a fork, before it takes a lock that a thread of its parent may have held."""
        if self._forks != forks.number:
            raise ClosedError(
                "the batched session is that of the process that has opened it", hint="open another one in a fork"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the batched session is closed")

    @property
    def _callers(self) -> int:
        return self._count + self._running

    def _due(self) -> Hashable | None:
        """Return the key of a full batch, or of the one that has waited longest, if it is due."""
        if not self._lines:
            return None
        full = next((key for key, line in self._lines.items() if line.rows >= self._most), None)
        if full is not None:
            return full
        key = min(self._lines, key=lambda each: self._lines[each].deadline)
        if self._closed or self._callers >= self._expected:
            return key
        if self._lines[key].deadline > time.monotonic():
            return None
        self._expected = self._callers
        return key

    def _remove(self, key: Hashable) -> list[QueuedRequest]:
        line = self._lines[key]
        batch = line.take(self._most)
        if not line.rows:
            del self._lines[key]
        self._count -= len(batch)
        self._running += len(batch)
        self._slots -= 1
        if self._lines and self._slots:
            self._changed.notify()  # another thread may find a batch that is due
        return batch


class Promise(Protocol):
    """A future as those see it that settle it."""

    def set_running_or_notify_cancel(self) -> bool:
        """Return whether the outputs are wanted still."""
        ...

    def set_result(self, result: Any, /) -> None:
        """Set the outputs."""
        ...

    def set_exception(self, exception: BaseException, /) -> None:
        """Set the error."""
        ...


def settle(future: Promise, outcome: Any) -> None:
    """Set the result of a future, or its error."""
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
