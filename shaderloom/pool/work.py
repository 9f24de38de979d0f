"""The items of a pool: those that wait, and those that a worker has."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import forks
from ..batching.requests import Promise, settle
from ..runtime.plan.errors import ClosedError, DeviceError, ShaderloomError

#: Seconds that a chunk takes its worker at least: handing it over takes a twentieth of that
_CHUNK_SECONDS = 2e-3
#: Bytes of shared memory that a chunk takes at most, unless its least number of items takes more
CHUNK_BYTES = 1 << 24
#: How often an item is given to a worker that is lost before it answers
MOST_LOSSES = 2


@dataclass(eq=False, slots=True)
class Item:
    """Inputs, the promise of the outputs, how many workers were lost with it, and since when a worker has its chunk."""

    number: int
    feeds: Mapping[str, Any]
    promise: Promise
    losses: int = 0
    begun: float = 0.0


class Work:
    """Items in the order of their submission.  Thread-safe.

    ``chunk`` is the most that a worker gets at once.  One that has nothing to do gets what there is; one that is busy
    waits for as much, since a few items would take its device nearly as long.  It is a multiple of ``least``, up to
    ``most`` and to what the memory of a chunk holds, that takes the slowest worker no less than handing it over is
    worth, by measurement.
    """

    def __init__(self) -> None:
        self.set_chunk(1, 1)
        self._fitting: dict[Hashable, int] = {}
        self._waiting: deque[Item] = deque()
        self._count = 0
        self._pending = 0  #: items without an answer
        self._closed = False
        self._failure: ShaderloomError | None = None
        self._lock = threading.Lock()
        self._busy, self._idle = threading.Condition(self._lock), threading.Condition(self._lock)
        self._busy_waiters = self._idle_waiters = 0
        self._forks = forks.number

    @property
    def is_ours(self) -> bool:
        """Whether this process began the work; a fork of it has neither the threads nor the processes."""
        return self._forks == forks.number

    def set_chunk(self, least: int, most: int) -> None:
        """Set the least and the greatest chunk, before workers take any."""
        self.chunk, self.least, self._most = least, least, most

    def add(self, feeds: Mapping[str, Any], promise: Promise) -> None:
        """Append an item.  Raises :class:`ClosedError`, and :class:`DeviceError` without workers."""
        if not self.is_ours:
            raise ClosedError("the pool is that of the process that has opened it", hint="open another one in a fork")
        with self._lock:
            if self._closed:
                raise ClosedError("the pool is closed")
            if self._failure is not None:
                raise self._failure
            self._waiting.append(Item(self._count, feeds, promise))
            self._count += 1
            self._pending += 1
            self._notify_one()

    def take(
        self, is_wanted: threading.Event, is_busy: Callable[[], bool], hold: Callable[[Sequence[Item]], None]
    ) -> list[Item]:
        """Wait for items and remove up to a chunk of them; none once the pool is closed and has no items left.

        Several threads may do so for a worker: ``hold`` gets the items before another one asks whether it is busy.
        :meth:`wake` lets a worker ask again whether it is wanted, and busy.
        """
        with self._lock:
            while is_wanted.is_set():
                busy = is_busy()
                if len(self._waiting) >= self.chunk or not busy:
                    items = self._remove()
                    if items:
                        hold(items)
                        self._notify_one()  # others may have to do with what is left
                        return items
                if self._closed and not self._pending:
                    return []
                if busy:
                    self._notify_one()  # what an idle thread of this worker was woken for
                    self._busy_waiters += 1
                    self._busy.wait()
                    self._busy_waiters -= 1
                else:
                    self._idle_waiters += 1
                    self._idle.wait()
                    self._idle_waiters -= 1
            return []

    def measure(self, worker: Hashable, items: int, seconds: float, size: int) -> None:
        """Let chunks follow from the seconds that so many items took a worker, and from their bytes of shared memory.

        They double or halve at most.
        """
        seconds = max(seconds, _CHUNK_SECONDS * size / CHUNK_BYTES, 1e-9)
        fitting = int(_CHUNK_SECONDS * items / seconds) // self.least * self.least
        before = self._fitting.get(worker, self.least)
        with self._lock:
            self._fitting[worker] = max(self.least, min(fitting, 2 * before, self._most), before // 2)
            self.chunk = min(self._fitting.values())

    def _remove(self) -> list[Item]:
        """Remove up to a chunk of items, or one that a worker was lost with; cancelled ones are forgotten."""
        items: list[Item] = []
        while self._waiting and len(items) < self.chunk:
            if items and (items[-1].losses or self._waiting[0].losses):
                break
            item = self._waiting.popleft()
            if item.losses or item.promise.set_running_or_notify_cancel():
                items.append(item)
            else:
                self._forget(1)
        return items

    def answer(self, answers: Iterable[tuple[Item, Any]]) -> None:
        """Set the results of items, or their errors."""
        count = 0
        for item, outcome in answers:
            settle(item.promise, outcome)
            count += 1
        with self._lock:
            self._forget(count)

    def give_back(self, items: Sequence[Item], reason: str) -> None:
        """Let other workers have the items of a lost one, first of all; those that were lost too often fail."""
        lost = []
        with self._lock:
            for item in reversed(items):
                item.losses += 1
                if self._failure is not None or item.losses >= MOST_LOSSES:
                    lost.append(item)
                else:
                    self._waiting.appendleft(item)
            self._notify_all()
        self.answer(
            (item, self._failure or DeviceError(f"{item.losses} workers were lost with this item: {reason}"))
            for item in lost
        )

    def fail(self, failure: ShaderloomError) -> None:
        """Fail all items that wait, and those that come: no worker is left."""
        with self._lock:
            self._failure = failure = self._failure or failure
            waiting = list(self._waiting)
            self._waiting.clear()
        for item in waiting:
            if item.losses or item.promise.set_running_or_notify_cancel():
                self.answer([(item, failure)])
            else:
                with self._lock:
                    self._forget(1)

    def close(self) -> None:
        """Accept no further items; in a fork do nothing."""
        if not self.is_ours:
            return
        with self._lock:
            self._closed = True
            self._notify_all()

    def wake(self) -> None:
        """Let workers that wait look again whether they are wanted, and busy."""
        with self._lock:
            self._notify_all()

    def _notify_one(self) -> None:
        """Notify a worker of items that wait: an idle one of any, a busy one of a chunk."""
        if self._waiting and self._idle_waiters:
            self._idle.notify()
        elif self._busy_waiters and len(self._waiting) >= self.chunk:
            self._busy.notify()

    def _notify_all(self) -> None:
        self._busy.notify_all()
        self._idle.notify_all()

    def _forget(self, count: int) -> None:
        self._pending -= count
        if self._closed and not self._pending:
            self._notify_all()
