"""The queue of requests that wait to be joined."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from shaderloom.batching.requests import Request, RequestQueue
from shaderloom.runtime.plan.errors import ClosedError, LimitError

from ...support.patience import PATIENCE

LONG = 3600.0  #: seconds that no test waits


def request(key: str = "a", rows: int = 1) -> Request:
    return Request(key, {"x": np.zeros(rows)}, rows)


def test_a_full_batch_does_not_wait():
    queue = RequestQueue(4, LONG, None)
    requests = [request() for _ in range(5)]
    for each in requests:
        queue.put(each)
    assert queue.take() == requests[:4]
    assert len(queue) == 1


def test_a_request_that_has_waited_is_taken_with_those_like_it():
    queue = RequestQueue(4, 0.0, None)
    requests = [request("a"), request("b"), request("a")]
    for each in requests:
        queue.put(each)
    assert queue.take() == [requests[0], requests[2]]
    assert queue.take() == [requests[1]]


def test_rows_of_a_batch_are_bounded_but_for_a_single_request():
    queue = RequestQueue(4, 0.0, None)
    requests = [request(rows=3), request(rows=2), request(rows=9)]
    for each in requests:
        queue.put(each)
    assert [queue.take() for _ in requests] == [[each] for each in requests]


def test_what_waits_is_taken_after_the_end():
    queue = RequestQueue(4, LONG, None)
    waiting = request()
    queue.put(waiting)
    queue.close()
    assert queue.take() == [waiting]
    assert queue.take() == []
    with pytest.raises(ClosedError):
        queue.put(request())


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
    assert batches == [[waiting]]
