"""Fewer garbage collections while a program starts.

Importing the compiler and compiling a model make some hundred thousand objects that live on, at each thousand of which
Python looks for circles of garbage: a tenth of the time, to find none.  Nor does it look at all of them at once after
that: they join the old objects, which Python looks at when there are many more.
"""

from __future__ import annotations

import gc
import threading
from types import TracebackType

#: Objects between two collections of the youngest generation, in place of 700; and those that are taken for old
#: between two collections of all
_OBJECTS = 1_000_000
#: Objects of which a collection takes a millisecond or so: fewer are left to it
_WORTH = 2_000
#: Objects that Python itself has frozen when it starts: 375 in version 3.12
_PYTHONS = 1_000

_lock = threading.Lock()
_blocks = 0
_thresholds = gc.get_threshold()
_taken = 0  #: objects that were taken for old since the collection of that number
_collection = 0
_frozen = False  #: whether the program has frozen objects, for which Python counts all that are


class RareCollections:
    """In ``with``: collect at every 1,000,000 new objects.  Blocks of several threads, and within others, end together.

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
                _take_for_old()
                gc.set_threshold(*_thresholds)


def _take_for_old() -> None:
    """Let objects that were not looked at yet join the old ones, but not too many, and not where some are frozen."""
    global _taken, _collection, _frozen
    young = gc.get_count()[0]
    if young < _WORTH or _frozen:
        return
    collection = gc.get_stats()[-1]["collections"]
    if collection != _collection:
        _taken, _collection = 0, collection
    _taken += young
    if _taken > _OBJECTS:
        return
    _frozen = gc.get_freeze_count() > _PYTHONS
    if not _frozen:
        gc.freeze()
        gc.unfreeze()
