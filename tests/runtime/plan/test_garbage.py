"""Collections are rare in a block, and as before after it; what was made in it is not looked at when it ends."""

import gc
import threading

import pytest

from shaderloom.runtime.plan import garbage
from shaderloom.runtime.plan.garbage import RareCollections

from ...support.patience import PATIENCE


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
            leave.wait(PATIENCE)

    thread = threading.Thread(target=other)
    with RareCollections():
        assert gc.get_threshold() == (1_000_000, 10, 5)
        thread.start()
        inside.wait(PATIENCE)
        with RareCollections():
            pass
    assert gc.get_threshold() == (1_000_000, 10, 5)
    leave.set()
    thread.join()
    assert gc.get_threshold() == (700, 10, 5)


@pytest.mark.parametrize("chosen", [(0, 10, 10), (10**7, 1, 1)])
def test_what_the_caller_chose_stays(chosen):
    gc.set_threshold(*chosen)
    with RareCollections():
        assert gc.get_threshold() == chosen
    assert gc.get_threshold() == chosen
    with RareCollections():
        gc.set_threshold(900, 2, 2)
    assert gc.get_threshold() == (900, 2, 2)


@pytest.fixture
def collections():
    """The generations that are collected, as they are."""
    seen = []

    def note(phase, info):
        if phase == "start":
            seen.append(info["generation"])

    frozen, known = gc.get_freeze_count(), garbage._frozen
    gc.unfreeze()
    gc.collect()
    garbage._frozen = False
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    garbage._frozen = known
    if frozen:  # what the collection of tests made
        gc.freeze()


def make_circles(count):
    for _ in range(count):
        circle = []
        circle.append(circle)


def test_objects_of_a_block_are_not_looked_at_when_it_ends(collections):
    with RareCollections():
        made = [[] for _ in range(100_000)]
        make_circles(1000)
    more = [[] for _ in range(600)]
    assert collections == []
    assert len(made) + len(more) == 100_600
    assert gc.collect() >= 1000, "and are garbage for the collection of all"


def test_what_python_has_frozen_itself_makes_no_difference(collections, monkeypatch):
    """Version 3.12 starts with some hundred frozen objects."""
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 375)
    with RareCollections():
        made = [[] for _ in range(100_000)]
    more = [[] for _ in range(600)]
    assert collections == []
    assert len(made) + len(more) == 100_600


def test_blocks_do_not_hide_garbage_without_end(collections, monkeypatch):
    monkeypatch.setattr(garbage, "_OBJECTS", 50_000)
    for _ in range(8):
        with RareCollections():
            make_circles(20_000)
        [[] for _ in range(1000)]
    assert 0 in collections


def test_few_objects_are_collected_without_counting_the_frozen_ones(collections, monkeypatch):
    """A server may have frozen millions, and a block is entered for every model that is opened."""
    monkeypatch.setattr(gc, "get_freeze_count", lambda: pytest.fail("all frozen objects were counted"))
    with RareCollections():
        make_circles(1000)
    made = [[] for _ in range(100)]
    assert collections == [0] and len(made) == 100


def test_objects_that_the_program_has_frozen_stay_so(collections, monkeypatch):
    gc.freeze()
    frozen = gc.get_freeze_count()
    counts = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counts.append(frozen) or frozen)
    try:
        for _ in range(3):
            with RareCollections():
                make_circles(garbage._WORTH + 1)
        monkeypatch.undo()
        assert frozen > 0 and gc.get_freeze_count() == frozen
        assert counts == [frozen], "they are counted once"
    finally:
        gc.unfreeze()
