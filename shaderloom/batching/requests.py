"""Requests that wait to be joined: those of equal shapes in one line, the oldest first."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..runtime.plan.errors import ClosedError, LimitError

Arrays = dict[str, np.ndarray]


@dataclass(eq=False, slots=True)
class Request:
    """Inputs of ``rows`` rows, and the future of the outputs.  Requests with equal keys may be joined."""

    key: Hashable
    feeds: Arrays
    rows: int
    future: Future[list[Any]] = field(default_factory=Future)
    deadline: float = 0.0  #: on the monotonic clock: when it no longer waits for others


class Line:
    """Requests of equal keys, the oldest first, and the number of their rows."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()
        self.rows = 0

    @property
    def deadline(self) -> float:
        """When the oldest request no longer waits."""
        return self._requests[0].deadline

    def append(self, request: Request) -> None:
        self._requests.append(request)
        self.rows += request.rows

    def take(self, most: int) -> list[Request]:
        """Remove and return the oldest requests, of up to ``most`` rows together, or a single one."""
        batch: list[Request] = []
        rows = 0
        while self._requests and (not batch or rows + self._requests[0].rows <= most):
            batch.append(self._requests.popleft())
            rows += batch[-1].rows
        self.rows -= rows
        return batch


class RequestQueue:
    """Requests by key.  A batch is due when it has ``most`` rows, or its oldest request has waited ``wait`` seconds.

    ``limit`` is the number of requests that may wait.  Thread-safe.
    """

    def __init__(self, most: int, wait: float, limit: int | None) -> None:
        self._most, self._wait, self._limit = most, wait, limit
        self._lines: dict[Hashable, Line] = {}
        self._count = 0
        self._closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return self._count

    def put(self, request: Request) -> None:
        """Append a request.  Raises :class:`ClosedError`, and :class:`LimitError` where too many wait."""
        with self._changed:
            if self._closed:
                raise ClosedError("the batched session is closed")
            if self._limit is not None and self._count >= self._limit:
                raise LimitError(f"{self._count} requests wait already", hint="ask again later, or raise max_queue")
            request.deadline = time.monotonic() + self._wait
            line = self._lines.setdefault(request.key, Line())
            line.append(request)
            self._count += 1
            if self._count == 1 or line.rows >= self._most:  # else a thread waits already until the oldest is due
                self._changed.notify()

    def take(self) -> list[Request]:
        """Wait for a batch that is due and remove it; return no requests once the queue is closed and empty."""
        with self._changed:
            while True:
                key = self._due()
                if key is not None:
                    return self._remove(key)
                if self._closed:
                    return []
                oldest = min((line.deadline for line in self._lines.values()), default=None)
                self._changed.wait(None if oldest is None else max(oldest - time.monotonic(), 0))

    def close(self) -> None:
        """Accept no further requests; those that wait are due."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _due(self) -> Hashable | None:
        """Return the key of a full batch, or of the one that has waited longest, if it is due."""
        if not self._lines:
            return None
        full = (key for key, line in self._lines.items() if line.rows >= self._most)
        key = next(full, None)
        if key is None:
            key = min(self._lines, key=lambda each: self._lines[each].deadline)
            if not self._closed and self._lines[key].deadline > time.monotonic():
                return None
        return key

    def _remove(self, key: Hashable) -> list[Request]:
        line = self._lines[key]
        batch = line.take(self._most)
        if not line.rows:
            del self._lines[key]
        self._count -= len(batch)
        if self._lines:
            self._changed.notify()  # another thread may find a batch that is due
        return batch
