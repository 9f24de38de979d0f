"""Items that wait, and which worker gets how many of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import pytest

from shaderloom.pool.work import CHUNK_BYTES, Item, Work
from shaderloom.pool.workers import senders_for
from shaderloom.runtime.plan.errors import ClosedError

from ...support.patience import PATIENCE


class Taker:
    """A worker that takes items in a thread of its own."""

    def __init__(
        self, work: Work, is_busy: Callable[[], bool], hold: Callable[[Sequence[Item]], None] = lambda items: None
    ) -> None:
        self.items: list[Item] = []
        self._wanted = threading.Event()
        self._wanted.set()
        self._thread = threading.Thread(target=self._take, args=(work, is_busy, hold), daemon=True)
        self._thread.start()

    def _take(self, work: Work, is_busy: Callable[[], bool], hold: Callable[[Sequence[Item]], None]) -> None:
        self.items = work.take(self._wanted, is_busy, hold)

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
    work.add({}, Future())
    assert taker.taken() == [0]
    for _ in range(5):
        work.add({}, Future())
    assert Taker(work, lambda: False).taken() == [1, 2, 3]


def test_a_busy_worker_waits_for_a_chunk_or_until_it_is_idle(work):
    busy = threading.Event()
    busy.set()
    first = Taker(work, busy.is_set)
    work.add({}, Future())
    work.add({}, Future())
    assert not first.items
    work.add({}, Future())
    assert first.taken() == [0, 1, 2]
    second = Taker(work, busy.is_set)
    work.add({}, Future())
    assert not second.items
    busy.clear()
    work.wake()
    assert second.taken() == [3]


def test_items_go_to_the_idle_worker_beside_a_busy_one(work):
    busy = Taker(work, lambda: True)
    idle = Taker(work, lambda: False)
    work.add({}, Future())
    assert idle.taken() == [0]
    for _ in range(3):
        work.add({}, Future())
    assert busy.taken() == [1, 2, 3]


def test_what_an_idle_worker_leaves_wakes_a_busy_one(work):
    for _ in range(6):
        work.add({}, Future())
    busy, idle = Taker(work, lambda: True), Taker(work, lambda: False)
    assert sorted(busy.taken() + idle.taken()) == list(range(6))


def test_of_two_threads_of_a_worker_one_takes_what_there_is():
    """The other one, which sees a busy worker then, leaves the next item to a worker that is idle."""
    for _ in range(20):
        work, held = Work(), list[Item]()
        work.chunk = 3
        takers = [Taker(work, lambda held=held: bool(held), held.extend) for _ in range(2)]
        takers.append(Taker(work, lambda: False))

        def taken(takers: Sequence[Taker] = takers) -> list[int]:
            return sorted(item.number for taker in takers for item in taker.items)

        for numbers in ([0], [0, 1], [0, 1, 2, 3, 4]):
            for _ in range(len(numbers) - len(taken())):
                work.add({}, Future())
            deadline = time.monotonic() + PATIENCE
            while taken() != numbers and time.monotonic() < deadline:
                time.sleep(0)
            assert taken() == numbers


def test_cancelled_items_are_not_taken(work):
    futures: list[Future] = [Future() for _ in range(3)]
    for future in futures:
        work.add({}, future)
    futures[1].cancel()
    assert Taker(work, lambda: True).taken() == [0, 2]


def test_a_closed_pool_has_no_more_items(work):
    work.close()
    assert Taker(work, lambda: True).taken() == []
    with pytest.raises(ClosedError):
        work.add({}, Future())


@pytest.mark.parametrize(("cores", "senders"), [(1, 2), (8, 2), (12, 3), (16, 4), (128, 4)])
def test_more_threads_send_where_there_are_cores(cores, senders):
    assert senders_for(cores) == senders


def test_chunks_follow_from_measured_times(work):
    """In steps, in batches, and so that the slowest worker is not given more than it should."""
    work.set_chunk(4, 64)
    sizes = []
    for _ in range(6):
        work.measure("fast", 100, 1e-3, 0)
        sizes.append(work.chunk)
    assert sizes == [8, 16, 32, 64, 64, 64]
    work.measure("slow", 4, 1.0, 0)
    assert work.chunk == 4
    work.measure("slow", 100, 0.0, 0)
    work.measure("slow", 100, 20e-3, 0)
    assert work.chunk == 8
    for _ in range(5):
        work.measure("fast", 1, 1.0, 0)
    assert work.chunk == 4


@pytest.mark.parametrize(("size", "chunk"), [(0, 64), (CHUNK_BYTES // 64, 64), (CHUNK_BYTES // 20, 20), (1 << 30, 4)])
def test_chunks_are_no_larger_than_their_memory(size, chunk):
    work = Work()
    work.set_chunk(4, 64)
    for _ in range(6):
        work.measure("worker", 8, 0.0, 8 * size)
    assert work.chunk == chunk


def test_items_that_a_worker_was_lost_with_are_alone(work):
    futures: list[Future] = [Future() for _ in range(3)]
    for future in futures:
        work.add({}, future)
    lost = Taker(work, lambda: False)
    assert lost.taken() == [0, 1, 2]
    work.give_back(lost.items, "it ended")
    work.add({}, Future())
    assert [Taker(work, lambda: False).taken() for _ in range(4)] == [[0], [1], [2], [3]]
