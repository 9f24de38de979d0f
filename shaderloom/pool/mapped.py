"""The outcome of an item of a map: what a future is for many threads, for the one that waits for it."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any


class MappedItem:
    """The outputs of an item, or its error, as :attr:`outcome` once it is settled.

    A future of the standard library has a lock and a condition of its own, which take longer than a run of few and tiny
    kernels.  Here one thread settles and one waits: no lock is taken where the outcome is there.  With ``settled`` the
    item is put there then.
    """

    __slots__ = ("_is_cancelled", "_settled", "_waiter", "is_settled", "number", "outcome")

    def __init__(self, number: int, settled: SimpleQueue[MappedItem] | None = None) -> None:
        self.number = number
        self.outcome: Any = None
        self.is_settled = False
        self._is_cancelled = False
        self._settled = settled
        self._waiter: threading.Lock | None = None

    def cancel(self) -> None:
        """Let no worker have the item if none has it yet."""
        self._is_cancelled = True

    def set_running_or_notify_cancel(self) -> bool:
        """Return whether the item is wanted."""
        return not self._is_cancelled

    def set_result(self, outcome: Any) -> None:
        self.outcome = outcome
        self.is_settled = True
        waiter = self._waiter  # read behind the write above, as the thread that waits does it the other way round
        if waiter is not None:
            waiter.release()
        if self._settled is not None:
            self._settled.put(self)

    set_exception = set_result

    def wait(self) -> None:
        """Wait until the item is settled; only one thread may, and once."""
        waiter = threading.Lock()
        waiter.acquire()
        self._waiter = waiter
        if not self.is_settled:
            waiter.acquire()
