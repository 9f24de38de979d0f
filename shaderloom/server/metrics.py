"""Counters of a server in the form of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

#: Upper bounds of the times of requests, in seconds
SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600)
#: A name, what it says, and a number; names that end in _total only grow
Reading = tuple[str, str, float]


class ServerMetrics:
    """Requests by path and status, their times, and what ``read`` returns of an API at the time of a question."""

    def __init__(self, read: Callable[[], Iterable[Reading]]) -> None:
        self._read = read
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "shaderloom_requests", "Requests that were answered", ("path", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "shaderloom_request_seconds",
            "Time from a request to the end of its answer",
            ("path",),
            registry=self._registry,
            buckets=SECONDS,
        )
        self._registry.register(self)

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count an answer; ``path`` is that of a route, so that their number is bounded."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield the API's own numbers."""
        for name, meaning, number in self._read():
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield family(name, meaning, value=number)

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return all, and the type of its content, in the newest form that a client accepts."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
