"""The queue of requests that wait to be joined."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from shaderloom.batching import requests
from shaderloom.batching.batch_sizes import AnySize
from shaderloom.batching.request_kind import RequestKind
from shaderloom.batching.requests import QueuedRequest, Request, RequestQueue
from shaderloom.runtime.plan.errors import ClosedError, LimitError

from ...support.patience import PATIENCE

LONG = 3600.0  #: seconds that no test waits
KIND = RequestKind(("y",), {"x": 0}, {"y": 0}, AnySize(4), lambda: 0.0)


def request(key: str = "a", rows: int = 1) -> Request:
    return Request(KIND, key, {"x": np.zeros(rows)}, rows)


def of(batch: list[QueuedRequest]) -> list[Request]:
    return [each.request for each in batch]


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """Set the time of the queue by hand."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(requests, "time", clock)
    return clock


def queue_for(callers: int, clock: SimpleNamespace, **options: float) -> RequestQueue:
    """Return a queue in which so many callers have waited in vain for others."""
    queue = RequestQueue(8, LONG, None, **options)
    for _ in range(callers):
        queue.put(request())
    clock.now += LONG
    assert len(queue.take()) == callers
    queue.end(callers)
    return queue


def test_a_full_batch_does_not_wait():
    queue = RequestQueue(4, LONG, None)
    asked = [request() for _ in range(5)]
    for each in asked:
        queue.put(each)
    assert of(queue.take()) == asked[:4]
    assert len(queue) == 1


def test_a_request_that_has_waited_is_taken_with_those_like_it():
    queue = RequestQueue(4, 0.0, None)
    asked = [request("a"), request("b"), request("a")]
    for each in asked:
        queue.put(each)
    assert of(queue.take()) == [asked[0], asked[2]]
    assert of(queue.take()) == [asked[1]]


def test_rows_of_a_batch_are_bounded_but_for_a_single_request():
    queue = RequestQueue(4, 0.0, None)
    asked = [request(rows=3), request(rows=2), request(rows=9)]
    for each in asked:
        queue.put(each)
    assert [of(queue.take()) for _ in asked] == [[each] for each in asked]


def test_nobody_waits_for_more_callers_than_there_are(clock):
    queue = queue_for(2, clock)
    assert queue.concurrency == 2
    asked = [request("a"), request("b")]
    for each in asked:
        queue.put(each)
    assert of(queue.take()) == asked[:1]
    assert of(queue.take()) == asked[1:]


def test_a_caller_whose_request_runs_is_not_waited_for(clock):
    queue = queue_for(2, clock)
    assert queue.begin()
    waiting = request()
    queue.put(waiting)
    assert of(queue.take()) == [waiting]


def test_further_callers_are_expected_from_then_on(clock):
    queue = queue_for(1, clock)
    assert queue.concurrency == 1
    assert queue.begin() and queue.begin()
    queue.end(1)
    queue.end(1)
    assert queue.concurrency == 2


def test_callers_that_do_not_come_are_not_expected_any_more(clock):
    queue = queue_for(3, clock)
    assert queue.concurrency == 3
    queue.put(request())
    clock.now += LONG
    assert len(queue.take()) == 1
    queue.end(1)
    assert queue.concurrency == 1


def test_runs_have_slots(clock):
    queue = queue_for(1, clock, slots=1)
    assert queue.begin()
    assert not queue.begin()
    batches = []
    thread = threading.Thread(target=lambda: batches.append(queue.take()))
    thread.start()
    waiting = request()
    queue.put(waiting)
    assert not batches  # as the slot is taken
    clock.now += LONG
    queue.end(1)
    thread.join(PATIENCE)
    assert of(batches[0]) == [waiting]


def test_what_waits_is_taken_after_the_end():
    queue = RequestQueue(4, LONG, None)
    waiting = request()
    queue.put(waiting)
    queue.close()
    assert of(queue.take()) == [waiting]
    assert queue.take() == []
    for ask in (lambda: queue.put(request()), queue.begin):
        with pytest.raises(ClosedError):
            ask()


def test_a_queue_has_a_limit():
    queue = RequestQueue(4, LONG, 2)
    queue.put(request())
    queue.put(request())
    with pytest.raises(LimitError, match="2 requests wait"):
        queue.put(request())


def test_a_thread_waits_for_a_request():
    queue = RequestQueue(1, LONG, None)
    batches = []
    thread = threading.Thread(target=lambda: batches.append(queue.take()))
    thread.start()
    waiting = request()
    queue.put(waiting)
    thread.join(PATIENCE)
    assert of(batches[0]) == [waiting]
