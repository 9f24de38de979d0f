"""Batch sizes: measured times decide whether the rest of a batch is padded or run in smaller runs."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence

#: Times of a size that count: the least of these, as others are those of a busy machine
_SAMPLES = 8
#: Times of a size by which batches are compared with single runs
_TRUSTED = 3
#: Runs of a size that do not count: the first ones compile its plan and fill caches
_WARM_UPS = 1
#: After so many choices the size whose time is the oldest is measured again
_REFRESH = 64


def sizes_up_to(most: int) -> tuple[int, ...]:
    """Return the batch sizes that have plans of their own: powers of four, and ``most``."""
    return tuple(sorted({most, *(1 << power for power in range(0, most.bit_length(), 2))}))


class DeviceTimes:
    """Seconds that runs take of a device when several are in flight: a run that waits for others does so in theirs."""

    def __init__(self) -> None:
        self._ended = 0.0
        self._lock = threading.Lock()

    def of(self, begun: float, ended: float) -> float:
        """Return the seconds of a run since its begin, or since the run before has ended if that was later."""
        with self._lock:
            before = self._ended
            if ended <= before:
                return 0.0
            self._ended = ended
        return ended - (begun if begun > before else before)


class BatchSizes:
    """Batch sizes with the seconds that a run of each takes, of one kind of requests.  Thread-safe.

    ``sizes`` are in ascending order.  A size is measured when it is first needed.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self._samples: dict[int, deque[float]] = {size: deque(maxlen=_SAMPLES) for size in sizes}
        self._seconds: dict[int, float] = {}
        self._covers: dict[int, list[int]] = {}  #: the fastest sizes by rows, as long as the seconds stay
        self._warm_ups = dict.fromkeys(sizes, _WARM_UPS)
        self._last: dict[int, int] = dict.fromkeys(sizes, 0)
        self._choices = 0
        self._lock = threading.Lock()

    @property
    def most(self) -> int:
        """The most rows of a batch."""
        return self.sizes[-1]

    def note(self, size: int, seconds: float) -> None:
        """Record the duration of a run of ``size`` rows."""
        with self._lock:
            if self._warm_ups[size]:
                self._warm_ups[size] -= 1
            else:
                samples, least = self._samples[size], self._seconds.get(size)
                dropped = samples[0] if len(samples) == _SAMPLES else math.inf
                samples.append(seconds)
                if least is None or seconds < least or dropped <= least:
                    self._set_seconds(size, min(samples))
                self._last[size] = self._choices

    def seconds(self) -> dict[int, float]:
        """Return the duration of a run of each size that was measured, in ascending order."""
        with self._lock:
            return {size: self._seconds[size] for size in self.sizes if size in self._seconds}

    def estimate(self, rows: int) -> float | None:
        """Return the seconds of a batch of ``rows`` rows; None until its sizes were measured often enough."""
        with self._lock:
            if any(len(self._samples[size]) < _TRUSTED for size in self._needed(rows)):
                return None
            return sum(self._seconds[size] for size in self._fastest(rows))

    def forget(self) -> None:
        """Measure all sizes but the least again."""
        with self._lock:
            for size in self.sizes[1:]:
                self._samples[size].clear()
                self._set_seconds(size, None)

    def _set_seconds(self, size: int, seconds: float | None) -> None:
        """Record the time of a size, or that it is unknown."""
        if seconds != self._seconds.get(size):
            self._covers.clear()
            if seconds is None:
                del self._seconds[size]
            else:
                self._seconds[size] = seconds

    def cover(self, rows: int) -> Sequence[int]:
        """Return sizes of runs that together have at least ``rows`` rows, in the least time by measurement.

        Only the last run has rows to spare.  Sizes that are not measured come first: the least one that holds all
        rows, the greatest one that has none to spare, and the least of all.
        """
        least = self.sizes[0]
        if rows <= least:
            return [least]
        with self._lock:
            self._choices += 1
            size = self._to_measure(rows)
            if size is None:
                return self._fastest(rows)
            rest = rows - size
            return (
                [size] if rest <= 0 else [size, *(self._fastest(rest) if self._samples[least] else self._fewest(rest))]
            )

    def _needed(self, rows: int) -> list[int]:
        """Return the sizes among which those of ``rows`` rows are chosen."""
        above = min((size for size in self.sizes if size >= rows), default=self.sizes[-1])
        below = max((size for size in self.sizes if size <= rows), default=above)
        return list(dict.fromkeys((above, below, self.sizes[0])))

    def _to_measure(self, rows: int) -> int | None:
        """Return a size that ``rows`` rows may need and whose time is unknown, or the oldest now and then."""
        needed = self._needed(rows)
        unmeasured = [size for size in needed if not self._samples[size]]
        if unmeasured or self._choices % _REFRESH:
            return next(iter(unmeasured), None)
        return min(needed, key=lambda size: self._last[size])

    def _fewest(self, rows: int) -> list[int]:
        """Return the fewest sizes that have ``rows`` rows."""
        sizes = []
        while rows > 0:
            sizes.append(min((size for size in self.sizes if size >= rows), default=self.sizes[-1]))
            rows -= sizes[-1]
        return sizes

    def _fastest(self, rows: int) -> Sequence[int]:
        """Return the measured sizes that have ``rows`` rows in the least time, the greatest first."""
        cover = self._covers.get(rows)
        if cover is None:
            cover = self._covers[rows] = self._find_fastest(rows)
        return cover

    def _find_fastest(self, rows: int) -> list[int]:
        seconds = self._seconds
        best: list[tuple[float, int]] = [(0.0, 0)]  # for each number of rows the time, and the last size of it
        for count in range(1, rows + 1):
            best.append(min((time + best[max(count - size, 0)][0], size) for size, time in seconds.items()))
        sizes = []
        while rows > 0:
            sizes.append(best[rows][1])
            rows -= sizes[-1]
        return sorted(sizes, reverse=True)


class AnySize(BatchSizes):
    """Every number of rows up to ``most``, as one plan serves all of them: none is padded.

    ``on_host``: single rows need no plan, so they are measured before batches, and run alone where that is faster.
    """

    def __init__(self, most: int, *, on_host: bool = False) -> None:
        super().__init__(range(1, most + 1))
        self._on_host = on_host

    def cover(self, rows: int) -> Sequence[int]:
        """Return ``rows``, or 1 for each; before that, and now and then, what is to be measured."""
        if not self._on_host or rows == 1:
            return [rows]
        with self._lock:
            self._choices += 1
            if len(self._samples[1]) < _SAMPLES:
                return [1, rows - 1]
            fastest = self._fastest(rows)
            if self._choices % _REFRESH:
                return fastest
            return [1, rows - 1] if len(fastest) == 1 else [rows]

    def _needed(self, rows: int) -> list[int]:
        return [rows]

    def _fastest(self, rows: int) -> Sequence[int]:
        single, joined = self._seconds.get(1), self._seconds.get(rows)
        if not self._on_host or single is None or joined is None or len(self._samples[rows]) < _TRUSTED:
            return [rows]
        return [1] * rows if rows * single < joined else [rows]
