"""Threads that wait for a device: one asks it what has finished, the others sleep until they are called back.

Each question takes the lock of the interpreter, which other threads need to encode and submit.  A thread alone asks a
GPU again and again, as waking up takes up to 0.1 ms.  Where others wait, or did a moment ago and so write or encode
what comes next, the device has more to do than its run, and it sleeps between two questions.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

#: A queue that a callback puts a status into, or None where its thread is the one to ask now
Finished = queue.SimpleQueue["int | None"]

#: Seconds for which a thread alone asks a GPU again and again before it sleeps
SPIN_SECONDS = 0.002
#: Seconds between two questions about a GPU while other threads use it, too
_PAUSE = 5e-5
#: Seconds after which a thread that has waited beside this one counts as gone
_GONE = 0.01
#: A thread that waits sleeps between two questions for this part of the time that it has waited, after the shortest
#: and up to the longest time, in seconds
_SLICE = 1 / 64
_SHORTEST, _LONGEST = 2e-4, 0.05
#: Seconds without a question after which another thread asks: an interrupt may end a thread anywhere
_LOST = 0.2


class _Line:
    """The threads that wait for one device, by their queues, in the order in which they came, and the one that asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Finished, None] = {}
        self._asker: Finished | None = None
        self._asked = 0.0  #: when it was asked last
        self._shared = -_GONE  #: when several threads waited last

    def wait(self, finished: Finished, ask: Callable[[], object], spin: bool) -> int:
        try:
            with self._lock:
                self._waiting[finished] = None
                self._note_company()
            while not self._has_turn(finished):
                with suppress(queue.Empty):
                    status = finished.get(timeout=_LOST)
                    if status is not None:
                        return status
            return self._ask(finished, ask, spin)
        finally:
            with self._lock:
                self._waiting.pop(finished, None)
                if self._asker is finished:
                    self._asker = next(iter(self._waiting), None)
                    if self._asker is not None:
                        self._note_question()
                        self._asker.put(None)

    def _has_turn(self, finished: Finished) -> bool:
        with self._lock:
            if self._asker is None or time.perf_counter() - self._asked > _LOST:
                if self._asker is not None:
                    self._waiting.pop(self._asker, None)
                self._asker = finished
                self._note_question()
            return self._asker is finished

    def _note_question(self) -> None:
        self._asked = time.perf_counter()

    def _note_company(self) -> None:
        if len(self._waiting) > 1:
            self._shared = time.perf_counter()

    def _ask(self, finished: Finished, ask: Callable[[], object], spin: bool) -> int:
        """Ask until called back, in slices, since a shader of a stranger may have no end."""
        start = time.perf_counter()
        while True:
            self._note_question()
            ask()
            while finished.qsize():
                status = finished.get()
                if status is not None:
                    return status
            self._note_company()
            now = time.perf_counter()
            waited, is_alone = now - start, now - self._shared > _GONE
            if waited > (SPIN_SECONDS if spin else _SHORTEST):
                time.sleep(min(waited * _SLICE, _LONGEST))
            elif not spin:
                time.sleep(0)  # other threads go first: the driver's may want this core
            elif not is_alone:
                time.sleep(_PAUSE)


_lines: weakref.WeakKeyDictionary[Any, _Line] = weakref.WeakKeyDictionary()
_lines_lock = threading.Lock()


def wait_in_line(device: Any, finished: Finished, ask: Callable[[], object], *, spin: bool) -> int:
    """Return the status that a callback puts into ``finished`` while some thread calls ``ask`` for the device.

    With ``spin`` a thread that waits alone asks all the time at first.  An interrupt ends the wait.
    """
    with _lines_lock:
        line = _lines.setdefault(device, _Line())
    return line.wait(finished, ask, spin)
