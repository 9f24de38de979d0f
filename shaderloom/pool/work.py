"""The items of a pool: those that wait, and those that a worker has."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ..batching.requests import settle
from ..runtime.plan.errors import ClosedError, DeviceError, ShaderloomError

#: How often an item is given to a worker that is lost before it answers
MOST_LOSSES = 2


@dataclass(eq=False, slots=True)
class Item:
    """Inputs, the future of the outputs, and how many workers were lost with it."""

    number: int
    feeds: Mapping[str, Any]
    future: Future[list[Any]] = field(default_factory=Future)
    losses: int = 0


class Work:
    """Items in the order of their submission.  Thread-safe.  ``chunk`` is the most that a worker gets at once."""

    def __init__(self) -> None:
        self.chunk = 1
        self._waiting: deque[Item] = deque()
        self._count = 0
        self._pending = 0  #: items without an answer
        self._closed = False
        self._failure: ShaderloomError | None = None
        self._changed = threading.Condition()

    def add(self, feeds: Mapping[str, Any]) -> Future[list[Any]]:
        """Append an item; return its future.  Raises :class:`ClosedError`, and :class:`DeviceError` without workers."""
        with self._changed:
            if self._closed:
                raise ClosedError("the pool is closed")
            if self._failure is not None:
                raise self._failure
            item = Item(self._count, feeds)
            self._count += 1
            self._pending += 1
            self._waiting.append(item)
            self._changed.notify()
        return item.future

    def take(self, is_wanted: threading.Event) -> list[Item]:
        """Wait for items and remove up to a chunk of them; none once the pool is closed and has no items left.

        Clearing ``is_wanted`` and :meth:`wake` end the wait of a worker that takes no more.
        """
        with self._changed:
            while is_wanted.is_set():
                items: list[Item] = []
                while self._waiting and len(items) < self.chunk:
                    item = self._waiting.popleft()
                    if item.losses or item.future.set_running_or_notify_cancel():
                        items.append(item)
                    else:
                        self._forget(1)
                if items:
                    return items
                if self._closed and not self._pending:
                    return []
                self._changed.wait()
            return []

    def answer(self, item: Item, outcome: Any) -> None:
        """Set the result of an item, or its error."""
        settle(item.future, outcome)
        with self._changed:
            self._forget(1)

    def give_back(self, items: Sequence[Item], reason: str) -> None:
        """Let other workers have the items of a lost one, first of all; those that were lost too often fail."""
        lost = []
        with self._changed:
            for item in reversed(items):
                item.losses += 1
                if self._failure is not None or item.losses >= MOST_LOSSES:
                    lost.append(item)
                else:
                    self._waiting.appendleft(item)
            self._changed.notify_all()
        for item in lost:
            self.answer(item, self._failure or DeviceError(f"{item.losses} workers were lost with this item: {reason}"))

    def fail(self, failure: ShaderloomError) -> None:
        """Fail all items that wait, and those that come: no worker is left."""
        with self._changed:
            self._failure = failure = self._failure or failure
            waiting = list(self._waiting)
            self._waiting.clear()
        for item in waiting:
            if item.losses or item.future.set_running_or_notify_cancel():
                self.answer(item, failure)
            else:
                with self._changed:
                    self._forget(1)

    def close(self) -> None:
        """Accept no further items."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Let workers that wait look again whether they are wanted."""
        with self._changed:
            self._changed.notify_all()

    def _forget(self, count: int) -> None:
        self._pending -= count
        if self._closed and not self._pending:
            self._changed.notify_all()
