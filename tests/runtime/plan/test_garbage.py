"""Collections are rare in a block, and as before after it."""

import gc
import threading

import pytest

from shaderloom.runtime.plan.garbage import RareCollections


@pytest.fixture(autouse=True)
def thresholds():
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 5)
    yield
    gc.set_threshold(*before)


def test_blocks_of_several_threads_end_together():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with RareCollections():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with RareCollections():
        assert gc.get_threshold() == (50_000, 10, 5)
        thread.start()
        inside.wait(10)
        with RareCollections():
            pass
    assert gc.get_threshold() == (50_000, 10, 5)
    leave.set()
    thread.join()
    assert gc.get_threshold() == (700, 10, 5)


@pytest.mark.parametrize("chosen", [(0, 10, 10), (10**6, 1, 1)])
def test_what_the_caller_chose_stays(chosen):
    gc.set_threshold(*chosen)
    with RareCollections():
        assert gc.get_threshold() == chosen
    assert gc.get_threshold() == chosen
    with RareCollections():
        gc.set_threshold(900, 2, 2)
    assert gc.get_threshold() == (900, 2, 2)
