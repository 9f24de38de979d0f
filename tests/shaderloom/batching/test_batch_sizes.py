"""The sizes that a batch is run in."""

from __future__ import annotations

import itertools

import pytest

from shaderloom.batching.batch_sizes import AnySize, BatchSizes, DeviceTimes, sizes_up_to


def measured(seconds: dict[int, float]) -> BatchSizes:
    sizes = BatchSizes(tuple(seconds))
    for size, time in seconds.items():
        for each in (9.0, time, 2 * time):  # the first run compiles
            sizes.note(size, each)
    return sizes


def test_sizes_end_with_the_largest_batch():
    assert sizes_up_to(1) == (1,)
    assert sizes_up_to(16) == (1, 4, 16)
    assert sizes_up_to(24) == (1, 4, 16, 24)


def test_first_runs_do_not_count():
    assert measured({1: 0.5, 4: 1.0}).seconds() == {1: 0.5, 4: 1.0}


@pytest.mark.parametrize(
    ("seconds", "rows", "sizes"),
    [
        ({1: 1.0, 4: 1.5, 16: 3.0}, 16, [16]),
        ({1: 1.0, 4: 1.5, 16: 3.0}, 3, [4]),  # padded
        ({1: 1.0, 4: 3.5, 16: 13.0}, 5, [4, 1]),  # run smaller
        ({1: 1.0, 4: 5.0, 16: 20.0}, 6, [1] * 6),  # joining does not pay
        ({1: 1.0, 4: 1.5, 16: 3.0}, 13, [16]),
        ({1: 1.0, 4: 1.1, 16: 9.0}, 13, [4, 4, 4, 1]),
    ],
)
def test_the_fastest_sizes_are_chosen(seconds, rows, sizes):
    assert measured(seconds).cover(rows) == sizes


def test_the_fastest_sizes_are_found_again_where_times_change(monkeypatch):
    sizes = measured({1: 1.0, 4: 1.5, 16: 3.0})
    assert [sizes.cover(13), sizes.cover(13), sizes.cover(4)] == [[16], [16], [4]]
    monkeypatch.setattr(BatchSizes, "_find_fastest", lambda *_: pytest.fail("nothing has changed"))
    sizes.note(16, 3.5)  # not the least
    assert [sizes.cover(13), sizes.cover(4)] == [[16], [4]]
    monkeypatch.undo()
    sizes.note(4, 0.5)
    assert sizes.cover(13) == [4, 4, 4, 4]
    sizes.forget()
    assert sizes.cover(13) != [4, 4, 4, 4]


@pytest.mark.parametrize("rows", range(1, 17))
def test_no_other_sizes_are_faster(rows):
    seconds = {1: 1.0, 4: 2.7, 16: 9.5}
    chosen = measured(seconds).cover(rows)
    counts = itertools.product(range(rows + 1), range(rows // 4 + 2), range(2))
    times = [one + four * 2.7 + all_ * 9.5 for one, four, all_ in counts if one + 4 * four + 16 * all_ >= rows]
    assert sum(seconds[size] for size in chosen) == pytest.approx(min(times))
    assert sum(chosen) >= rows and sum(chosen[:-1]) < rows


def test_what_is_not_measured_is_run_and_then_compared():
    sizes = BatchSizes((1, 4, 16))
    runs = []
    for _ in range(12):
        chosen = sizes.cover(6)
        assert sum(chosen) >= 6
        for size in chosen:
            sizes.note(size, {1: 1.0, 4: 1.2, 16: 9.0}[size])
        runs.append(chosen)
    assert sizes.seconds() == {1: 1.0, 4: 1.2, 16: 9.0}
    assert runs[-1] == [4, 4]


def test_old_times_are_measured_again():
    sizes = measured({1: 1.0, 4: 50.0})
    chosen = [tuple(sizes.cover(4)) for _ in range(200)]
    assert 0 < chosen.count((4,)) < 10


def test_batches_are_estimated_by_several_times():
    sizes = measured({1: 1.0, 4: 1.5, 16: 3.0})
    assert sizes.estimate(5) is None
    for size in (1, 4, 16):
        sizes.note(size, 99.0)
    assert sizes.estimate(5) == 2.5
    assert sizes.estimate(16) == 3.0
    sizes.forget()
    assert sizes.estimate(16) is None
    assert sizes.estimate(1) == 1.0


def test_one_plan_for_all_sizes_pads_nothing():
    assert AnySize(16).cover(13) == [13]
    sizes = AnySize(16, on_host=True)
    for _ in range(9):  # single rows are measured first
        assert sizes.cover(13) == [1, 12]
        sizes.note(1, 1.0)
    assert sizes.cover(13) == [13]
    assert sizes.cover(1) == [1]


def test_a_run_that_waits_for_another_takes_what_follows_it():
    times = DeviceTimes()
    assert times.of(10.0, 12.0) == 2.0
    assert times.of(11.0, 15.0) == 3.0
    assert times.of(20.0, 21.0) == 1.0
    assert times.of(18.0, 20.5) == 0.0
    assert times.of(22.0, 23.0) == 1.0


def test_single_rows_of_the_host_are_measured_again():
    """As threads that take turns make a time too long, some count at first, and one now and then."""
    sizes = AnySize(8, on_host=True)
    for _ in range(9):
        assert sizes.cover(5) == [1, 4]
        sizes.note(1, 1.0)
    covers = [sizes.cover(5) for _ in range(128)]
    assert covers.count([1, 4]) == 2 and covers.count([5]) == 126
    assert sizes.cover(1) == [1]


def test_rows_of_the_host_run_alone_where_that_is_faster():
    """A batch of a large network takes the host no less than its rows; it is measured again now and then."""
    sizes = AnySize(8, on_host=True)
    for _ in range(9):
        sizes.cover(5)
        sizes.note(1, 1.0)
    for _ in range(4):  # the first does not count
        assert sizes.cover(5) == [5]
        sizes.note(5, 5.1)
    covers = [sizes.cover(5) for _ in range(128)]
    assert covers.count([1] * 5) == 126 and covers.count([5]) == 2
    assert sizes.estimate(5) == 5.0
    sizes.note(5, 4.9)
    assert sizes.cover(5) == [5] and sizes.estimate(5) == 4.9
