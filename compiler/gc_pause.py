"""Python's cycle collector, kept out of the compiler's way.

A compilation makes many small objects that live until it ends: nodes, values, expressions, indices.  The collector
walks them again and again and finds nothing, at a quarter of the compiler's time.  What is garbage by the end is
collected then, as ever.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_pausing = 0  #: blocks that are running, in all threads
_was_enabled = False


@contextmanager
def paused_collection() -> Iterator[None]:
    """Pause the collector while the block runs; blocks may nest and overlap among threads."""
    global _pausing, _was_enabled
    with _lock:
        if _pausing == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pausing += 1
    try:
        yield
    finally:
        with _lock:
            _pausing -= 1
            if _pausing == 0 and _was_enabled:
                gc.enable()
