"""Generates many texts at once, in a thread that alone uses the device.

Whoever wants a text submits a :class:`TextRequest`; those that wait are in a queue of bounded length.  The thread goes
round: it drops what was cancelled, lets requests of the queue join the batch, and runs the batch for one token.  A
request is notified of each change, and reads what there is; it is done when ``is_done`` says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Full
from typing import Protocol

from ..log import GENERATE
from ..runtime.plan.errors import ClosedError, DeviceLost, InternalError, ShaderloomError
from .slots import SlotRow
from .text_row import TextTask


class TextRequest(SlotRow):
    """A text that was asked for.

    ``text`` only grows, and ``is_done`` is set behind its last change, so that another thread may read both at any
    time.  ``changed`` is called in the scheduler's thread when they have changed, and must not block.
    """

    def __init__(self, task: TextTask, changed: Callable[[], None]) -> None:
        super().__init__(task)
        self.changed = changed
        self.is_done = False
        self.is_cancelled = False


class Batch(Protocol):
    """What a scheduler runs: texts that join, and leave at the latest when they have ended."""

    @property
    def nbytes(self) -> int: ...
    def admit(self, waiting: Sequence[SlotRow]) -> list[SlotRow]: ...
    def leave(self, row: SlotRow) -> None: ...
    def step(self) -> list[SlotRow]: ...
    def reset(self) -> None: ...
    def close(self) -> None: ...


@dataclass
class Counters:
    """What a scheduler has done.  Written by its thread alone."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    new_tokens: int = 0
    texts: int = 0
    steps: int = 0
    step_seconds: float = 0.0
    failures: int = 0


class Scheduler:
    """A queue, a batch, and the thread that serves them until :meth:`close`."""

    def __init__(self, batch: Batch, queue: int) -> None:
        """Take a batch over; at most ``queue`` requests wait for a place in it."""
        self.counters = Counters()
        self.queue = queue
        self._batch = batch
        self._waiting: list[TextRequest] = []
        self._active: list[TextRequest] = []
        self._changed = threading.Condition()
        self._is_closing = False
        self._lost: DeviceLost | None = None
        self._thread = threading.Thread(target=self._run, name="shaderloom-generate", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether requests are served: neither closed nor without a device."""
        return not self._is_closing and self._lost is None

    @property
    def nbytes(self) -> int:
        """Bytes of the batch's cache on the device."""
        return self._batch.nbytes

    @property
    def waiting(self) -> int:
        """The number of requests that have no place in the batch yet."""
        return len(self._waiting)

    @property
    def active(self) -> int:
        """The number of requests in the batch."""
        return len(self._active)

    def submit(self, requests: Sequence[TextRequest]) -> None:
        """Queue requests, all or none.

        Raises ``queue.Full``, ``ClosedError`` behind :meth:`close`, or ``DeviceLost``.
        """
        with self._changed:
            if self._lost is not None:
                raise self._lost
            if self._is_closing:
                raise ClosedError("the server is stopping", hint="ask again when it has started")
            if len(self._waiting) + len(requests) > self.queue:
                raise Full
            self._waiting += requests
            self._changed.notify()

    def cancel(self, request: TextRequest) -> None:
        """Drop a request, at the next token at the latest.  One that is done stays as it is."""
        with self._changed:
            request.is_cancelled = True
            self._changed.notify()

    def close(self) -> None:
        """Fail what is not done, end the thread, and free the batch."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while self._next():
            begun = time.perf_counter()
            try:
                changed = self._batch.step()
            except Exception as error:
                self._fail(error)
                continue
            self.counters.steps += 1
            self.counters.step_seconds += time.perf_counter() - begun
            self.counters.new_tokens += len(changed)
            for row in changed:
                assert isinstance(row, TextRequest), "it was submitted"
                if row.has_ended:
                    self._end(row)
                row.changed()
        self._fail(ClosedError("the server is stopping", hint="ask again when it has started"))
        self._batch.close()

    def _next(self) -> bool:
        """Wait until there is something to run; return False when the scheduler is closed."""
        with self._changed:
            while not self._is_closing:
                for request in [each for each in (*self._active, *self._waiting) if each.is_cancelled]:
                    self._end(request)
                for row in self._batch.admit(self._waiting):
                    assert isinstance(row, TextRequest), "it was submitted"
                    self._waiting.remove(row)
                    self._active.append(row)
                    self.counters.prompt_tokens += row.prompt_tokens
                    self.counters.reused_tokens += row.reused_tokens
                if self._active:
                    return True
                self._changed.wait()
        return False

    def _end(self, request: TextRequest) -> None:
        if request in self._active:
            self._active.remove(request)
            self._batch.leave(request)
        elif request in self._waiting:
            self._waiting.remove(request)
        self.counters.texts += bool(request.tokens)
        request.is_done = True

    def _fail(self, error: Exception) -> None:
        """End all requests with an error: those of the batch, and with a closed scheduler those that wait."""
        own = error if isinstance(error, ShaderloomError) else InternalError(f"{type(error).__name__}: {error}")
        with self._changed:
            self._lost = error if isinstance(error, DeviceLost) else None
            failed = [*self._active, *(self._waiting if self._is_closing or self._lost else ())]
            if not self._is_closing:
                self.counters.failures += 1
                GENERATE.error("a step of %d texts failed", len(failed), exc_info=error)
                self._batch.reset()
            for request in failed:
                request.error = own
                self._end(request)
        for request in failed:
            request.changed()
