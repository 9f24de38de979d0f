"""What requests that may be joined have in common, and by measurement whether joining them pays."""

from __future__ import annotations

import functools
import queue
import statistics
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future

from .batch_sizes import BatchSizes

#: So many requests run alone before it is measured again whether joining pays
_REFRESH = 10_000
#: Requests that are handed to a thread and back to measure what that takes
_HANDOVERS = 50


class RequestKind:
    """The names of outputs, the axes of rows of inputs and of these, and the measured sizes of batches.

    Joined requests go to another thread and back, which costs more than a run of few and tiny kernels.  So batches are
    compared with runs of single requests: where as many callers as there are would not gain what that takes, requests
    run at once in the threads of their callers.
    """

    def __init__(
        self, names: tuple[str, ...], inputs: Mapping[str, int], outputs: Mapping[str, int], sizes: BatchSizes
    ) -> None:
        self.names, self.inputs, self.sizes = names, inputs, sizes
        self.axes = tuple(outputs[name] for name in names)
        self._alone_up_to = 0.0  #: callers at a time for which joining does not pay
        self._alone = 0

    def joins(self, rows: int, concurrency: float) -> bool:
        """Return whether a request of ``rows`` rows waits for others if so many are expected at a time."""
        if concurrency <= 1 or rows >= self.sizes.most:
            return False
        if min(concurrency, self.sizes.most) > self._alone_up_to:
            return True
        self._alone += 1
        if self._alone % _REFRESH == 0:
            self._alone_up_to = 0.0
            self.sizes.forget()
        return False

    def judge(self, requests: int, rows: int) -> None:
        """Compare a batch of ``requests``, of ``rows`` rows together, with as many single runs."""
        alone, joined = self.sizes.estimate(rows // requests), self.sizes.estimate(rows)
        if alone is None or joined is None:
            return
        pays = alone - joined / requests > handover_seconds()
        self._alone_up_to = 0.0 if pays else max(self._alone_up_to, 2.0 * requests)


@functools.cache
def handover_seconds() -> float:
    """Return the seconds that a request takes to another thread and back, the median of some."""
    requests: queue.SimpleQueue[Future[None] | None] = queue.SimpleQueue()

    def answer() -> None:
        while (future := requests.get()) is not None:
            future.set_result(None)

    thread = threading.Thread(target=answer, name="shaderloom-handover", daemon=True)
    thread.start()
    times = []
    for _ in range(_HANDOVERS):
        begun = time.perf_counter()
        future: Future[None] = Future()
        requests.put(future)
        future.result()
        times.append(time.perf_counter() - begun)
    requests.put(None)
    thread.join()
    return statistics.median(times)
