"""What it costs that another thread runs a request."""

from __future__ import annotations

import functools
import statistics
import threading
import time

from .batch_sizes import BatchSizes
from .request_kind import RequestKind
from .requests import Request, RequestQueue

#: Requests that are handed to a thread and back to measure what that takes
_HANDOVERS = 50


_measuring = threading.Lock()


def handover_seconds() -> float:
    """Return the seconds that a request takes through a queue to another thread and back, the median of some.

    They are measured once; further threads wait for that.
    """
    with _measuring:
        return _measured()


@functools.cache
def _measured() -> float:
    queue = RequestQueue(1, 0.0, None)
    kind = RequestKind((), {}, {}, BatchSizes((1,)), lambda: 0.0)
    request = Request(kind, kind, {}, 1)
    serve = functools.partial(queue.serve, lambda requests: [[]] * len(requests))
    thread = threading.Thread(target=serve, name="shaderloom-handover", daemon=True)
    thread.start()
    times = []
    for _ in range(_HANDOVERS):
        begun = time.perf_counter()
        queue.put(request).result()
        times.append(time.perf_counter() - begun)
    queue.close()
    thread.join()
    return statistics.median(times)
