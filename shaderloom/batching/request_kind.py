"""What requests that may be joined have in common, and by measurement whether joining them pays."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .batch_sizes import BatchSizes

#: So many requests run alone before it is measured again whether joining pays
_REFRESH = 10_000


class RequestKind:
    """The names of outputs, the axes of rows of inputs and of these, and the measured sizes of batches.

    Joined requests go to another thread and back, which costs more than a run of few and tiny kernels: ``handover``
    seconds.  Where a single run takes no longer, or as many callers as there are would not gain that by batches,
    requests run at once in the threads of their callers.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        inputs: Mapping[str, int],
        outputs: Mapping[str, int],
        sizes: BatchSizes,
        handover: Callable[[], float],
    ) -> None:
        self.names, self.inputs, self.sizes = names, inputs, sizes
        self.axes = tuple(outputs[name] for name in names)
        self._handover = handover
        self._short_up_to = 0  #: rows of a run that takes no longer than handing it over
        self._alone_up_to = 0.0  #: callers at a time for which joining does not pay
        self._alone = 0

    def joins(self, rows: int, concurrency: float) -> bool:
        """Return whether a request of ``rows`` rows waits for others if so many are expected at a time."""
        if concurrency <= 1 or rows >= self.sizes.most:
            return False
        if min(concurrency, self.sizes.most) > self._alone_up_to and not self._is_short(rows):
            return True
        self._alone += 1
        if self._alone % _REFRESH == 0:
            self._alone_up_to, self._short_up_to = 0.0, 0
            self.sizes.forget()
        return False

    def judge(self, requests: int, rows: int) -> None:
        """Compare a batch of ``requests``, of ``rows`` rows together, with as many single runs."""
        alone, joined = self.sizes.estimate(rows // requests), self.sizes.estimate(rows)
        if alone is None or joined is None:
            return
        pays = alone - joined / requests > self._handover()
        self._alone_up_to = 0.0 if pays else max(self._alone_up_to, 2.0 * requests)

    def _is_short(self, rows: int) -> bool:
        """Return whether a run of ``rows`` rows takes no longer than handing it over."""
        if rows > self._short_up_to:
            alone = self.sizes.estimate(rows)
            if alone is None or alone > self._handover():
                return False
            self._short_up_to = rows
        return True
