"""Fewer garbage collections while a program starts.

Importing the compiler and compiling a model make some hundred thousand objects that live on, at each thousand of which
Python looks for circles of garbage: a tenth of the time, to find none.
"""

from __future__ import annotations

import gc
import threading
from types import TracebackType

#: Objects between two collections of the youngest generation, in place of 700
_OBJECTS = 50_000

_lock = threading.Lock()
_blocks = 0
_thresholds = gc.get_threshold()


class RareCollections:
    """In ``with``: collect at every 50,000 new objects.  Blocks of several threads, and within others, end together.

    A collector that is off, or that the caller has set to collect less often, stays as it is.
    """

    def __enter__(self) -> None:
        global _blocks, _thresholds
        with _lock:
            _blocks += 1
            if _blocks == 1:
                _thresholds = gc.get_threshold()
                if 0 < _thresholds[0] < _OBJECTS:
                    gc.set_threshold(_OBJECTS, *_thresholds[1:])

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        global _blocks
        with _lock:
            _blocks -= 1
            if not _blocks and gc.get_threshold()[0] == _OBJECTS:
                gc.set_threshold(*_thresholds)
