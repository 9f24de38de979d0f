"""Items of a map: settled by one thread, waited for by another."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from shaderloom.pool.mapped import MappedItem

from ...support.patience import PATIENCE


def test_a_thread_waits_for_each_of_many_items():
    items = [MappedItem(number) for number in range(3000)]

    def settle() -> None:
        for item in items:
            item.set_result(item.number)

    thread = threading.Thread(target=settle)
    thread.start()
    for item in items:
        if not item.is_settled:
            item.wait()
        assert item.outcome == item.number
    thread.join(PATIENCE)


def test_settled_items_are_announced_and_cancelled_ones_are_not_wanted():
    settled: SimpleQueue[MappedItem] = SimpleQueue()
    first, second = MappedItem(0, settled), MappedItem(1, settled)
    second.set_result("b")
    first.set_result("a")
    assert [settled.get().outcome for _ in range(2)] == ["b", "a"]
    assert first.set_running_or_notify_cancel()
    first.cancel()
    assert not first.set_running_or_notify_cancel()
