"""A driver's queue that compiles and computes on a thread of its own, and lets a submission wait for the one before.

lavapipe has such a queue.  A thread that waits inside a submission hears no signal, so Ctrl-C would be heard when the
driver has compiled the kernels of a whole plan.  What may take long is therefore awaited before the submission, in
slices.  What is known to be short is left to the driver, which wakes the thread up sooner than a slice ends.
"""

from __future__ import annotations

import time
from typing import Any

from . import native

#: Parts of the names of adapters that have such a queue
_ADAPTERS = ("llvmpipe",)
#: Seconds from which work is long
LONG = 0.2


class WorkingQueue:
    """The queue of one ``wgpu.GPUDevice``, whose submissions are reported to it."""

    def __init__(self, gpu: Any) -> None:
        self._gpu = gpu
        self._may_last = False  #: what was submitted last may take long

    @classmethod
    def of(cls, gpu: Any, adapter: str, *, is_opengl: bool) -> WorkingQueue | None:
        """Return the queue of a device of the named adapter, or None if its submissions do not wait.

        OpenGL has no queue: a driver computes in the call.
        """
        if not is_opengl and any(part in adapter.lower() for part in _ADAPTERS):
            return cls(gpu)
        return None

    def wait(self) -> float:
        """Wait for work that may take long, and return the time at which the wait began."""
        start = time.perf_counter()
        if native.AVAILABLE and self._may_last and not native.is_idle(self._gpu):
            native.wait(self._gpu)
        return start

    def note_submission(self, start: float, *, may_last: bool) -> None:
        """Note a submission that has begun at ``start`` with :meth:`wait`.

        ``may_last`` unless its work is known to be short: kernels that have never run may have to be compiled.
        """
        self._may_last = may_last or time.perf_counter() - start > LONG
