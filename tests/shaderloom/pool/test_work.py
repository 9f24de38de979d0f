"""Items that wait, and which worker gets how many of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from shaderloom.pool.work import Item, Work
from shaderloom.runtime.plan.errors import ClosedError

from ...support.patience import PATIENCE


class Taker:
    """A worker that takes items in a thread of its own."""

    def __init__(self, work: Work, is_busy: Callable[[], bool]) -> None:
        self.items: list[Item] = []
        self._wanted = threading.Event()
        self._wanted.set()
        self._thread = threading.Thread(target=self._take, args=(work, is_busy), daemon=True)
        self._thread.start()

    def _take(self, work: Work, is_busy: Callable[[], bool]) -> None:
        self.items = work.take(self._wanted, is_busy)

    def taken(self) -> list[int]:
        self._thread.join(PATIENCE)
        return [item.number for item in self.items]


@pytest.fixture
def work() -> Work:
    work = Work()
    work.chunk = 3
    return work


def test_an_idle_worker_gets_what_there_is(work):
    taker = Taker(work, lambda: False)
    work.add({})
    assert taker.taken() == [0]
    for _ in range(5):
        work.add({})
    assert Taker(work, lambda: False).taken() == [1, 2, 3]


def test_a_busy_worker_waits_for_a_chunk_or_until_it_is_idle(work):
    busy = threading.Event()
    busy.set()
    first = Taker(work, busy.is_set)
    work.add({})
    work.add({})
    assert not first.items
    work.add({})
    assert first.taken() == [0, 1, 2]
    second = Taker(work, busy.is_set)
    work.add({})
    assert not second.items
    busy.clear()
    work.wake()
    assert second.taken() == [3]


def test_items_go_to_the_idle_worker_beside_a_busy_one(work):
    busy = Taker(work, lambda: True)
    idle = Taker(work, lambda: False)
    work.add({})
    assert idle.taken() == [0]
    for _ in range(3):
        work.add({})
    assert busy.taken() == [1, 2, 3]


def test_what_an_idle_worker_leaves_wakes_a_busy_one(work):
    for _ in range(6):
        work.add({})
    busy, idle = Taker(work, lambda: True), Taker(work, lambda: False)
    assert sorted(busy.taken() + idle.taken()) == list(range(6))


def test_cancelled_items_are_not_taken(work):
    futures = [work.add({}) for _ in range(3)]
    futures[1].cancel()
    assert Taker(work, lambda: True).taken() == [0, 2]


def test_a_closed_pool_has_no_more_items(work):
    work.close()
    assert Taker(work, lambda: True).taken() == []
    with pytest.raises(ClosedError):
        work.add({})
