"""Sizes that keep changing: which are opened, in which ranges, and what is tried where a range is refused."""

from __future__ import annotations

import itertools
import json

import pytest

from shaderloom.model.open_sizes import SizeHistory
from shaderloom.model.served_sizes import points_among, served_with
from shaderloom.runtime.plan.plan import Symbol
from shaderloom.runtime.plan.size_range import SizeRange

from ...support.size_keys import counted, key


def test_axes_that_differ_by_a_number_share_a_size() -> None:
    seen = SizeHistory()
    for size in (4, 9):
        assert seen.generalise(key(a=(2, size), b=(size + 1, 7), c=(size % 4, 3))) is None
        seen.note(key(a=(2, size), b=(size + 1, 7), c=(size % 4 + 2, 3)))
    general = seen.generalise(key(a=(2, 5), b=(6, 7), c=(30, 3)))
    assert general is not None
    assert general.symbols == (Symbol("a[1]", 5, 8), Symbol("c[0]", 25, 32))
    general_key = general.key(key(a=(2, 5), b=(6, 7), c=(30, 3)))
    assert general_key == general.key(key(a=(2, 8), b=(9, 7), c=(32, 3))) is not None
    for other in (
        key(a=(2, 5), b=(7, 7), c=(30, 3)),
        key(a=(2, 9), b=(10, 7), c=(30, 3)),
        key(a=(2, 5), b=(6, 7), c=(8, 3)),
        key(a=(2, 1), b=(2, 7), c=(30, 3)),
        key(a=(2,), b=(6, 7), c=(30, 3)),
    ):
        assert general.key(other) is None
    assert general.key(key(a=(3, 5), b=(6, 7), c=(30, 3))) != general_key, "an axis that is not open"
    assert general.key(key(a=(2, 5), b=(6, 7), c=(30, 3), dtype="int32")) != general_key


def test_only_sizes_are_opened() -> None:
    """Other elements, types or ranks are other stages; and it takes three sizes."""
    seen = SizeHistory()
    seen.note(key(b"1", a=(4,)))
    seen.note(key(b"2", a=(5,)))
    seen.note(key(b"1", a=(6, 1)))
    seen.note(key(b"1", dtype="int32", a=(7,)))
    assert seen.generalise(key(b"1", a=(8,))) is None
    seen.note(key(b"1", a=(8,)))
    general = seen.generalise(key(b"1", a=(100,)))
    assert general is not None and general.symbols == (Symbol("a[0]", 73, 256),)
    assert seen.generalise(key(b"1", a=(1,))) is None
    seen.refuse(key(b"1", a=(100,)), general)
    other = seen.generalise(key(b"1", a=(100,)))
    assert other is not None and other.symbols == (Symbol("a[0]", 64, 256, 4),), "sizes that were met, and their step"
    seen.refuse(key(b"1", a=(100,)), other)
    assert seen.generalise(key(b"1", a=(100,))) is None
    assert seen.generalise(key(b"1", a=(102,))) is None


def test_numbers_that_are_no_sizes() -> None:
    seen = SizeHistory()
    for number in (1 << 30, 1 << 31):
        seen.note(counted(number))
    assert seen.generalise(counted(1 << 29)) is None
    seen = SizeHistory()
    for number in (-5, -9):
        seen.note(counted(number))
    assert seen.generalise(counted(-7)) is None
    many = SizeHistory()
    for number in (5, 9):
        many.note(counted(number, *range(8)))
    assert many.generalise(counted(7, *range(8))) is None


def test_axes_alone_where_integers_do_not_open() -> None:
    seen = SizeHistory()
    for count in (5, 9):
        seen.note(counted(count, a=(count,)))
    tried = 0
    while (both := seen.generalise(counted(12, a=(12,)))) is not None:
        seen.refuse(counted(12, a=(12,)), both)
        tried += 1
    assert tried == 2 and not seen.elements
    for size in (12, 13):
        assert seen.generalise(counted(12, a=(size,))) is None
        seen.note(counted(12, a=(size,)))
    general = seen.generalise(counted(12, a=(15,)))
    assert general is not None and list(general.sizes) == [("a", 0)]


def test_a_size_of_one_stays_beside_one_that_is_open() -> None:
    """A batch of 1 is no size to open, and those of 2 and 3 share a range with the lengths."""
    seen = SizeHistory()
    for length in (17, 29):
        seen.note(key(ids=(1, length)))
    general = seen.generalise(key(ids=(1, 23)))
    assert general is not None and list(general.sizes) == [("ids", 1)]
    seen.note(key(ids=(1, 23)), general, ["ids[1]"])
    wider = seen.generalise(key(ids=(3, 40)))
    assert wider is not None and list(wider.sizes) == [("ids", 0), ("ids", 1)]
    seen.note(key(ids=(3, 40)), wider, ["ids[0]", "ids[1]"])
    assert seen.generalise(key(ids=(1, 20))) == general
    assert seen.generalise(key(ids=(4, 36))) == wider
    assert seen.generalise(key(ids=(1, 17))) is None, "it has a plan of its own"


def test_ranges_and_points() -> None:
    """Every size has one of them, and thousands of sizes few."""
    for tiled, lows in ((False, (2, 9, 257)), (True, (2, 3, 5, 9, 17, 25, 33, 41, 49, 65, 73, 257))):
        served = [served_with(size, tiled=tiled) for size in range(5000)]
        assert all(sizes.allows(size) for size, sizes in enumerate(served))
        bounds = [0, 1, *lows, 1025, 4097, 16385]
        expected = [(low, following - 1, 1) for low, following in itertools.pairwise(bounds)]
        assert list(dict.fromkeys(served)) == expected


def test_points_of_declared_ranges() -> None:
    """One token is a point, whatever is past; a batch of one text is none."""
    declared = {
        "batch": SizeRange(1, 8), "text": SizeRange(1, 2048), "steps": SizeRange(1, 513, 4), "past": SizeRange(0, 64),
        "two": SizeRange(2, 9), "one": SizeRange(1, 1),
    }  # fmt: skip
    for sizes, points in (
        ({"text": 1}, {"text"}), ({"text": 2}, set()), ({"steps": 1}, {"steps"}), ({"past": 1}, set()),
        ({"two": 2}, set()), ({"one": 1}, set()), ({}, set()),
        ({"batch": 1, "text": 30}, set()), ({"batch": 3, "text": 1}, {"text"}),
        ({"batch": 1, "text": 1}, {"batch", "text"}),
        ({"past": 9, "text": 1}, set()), ({"text": 1, "steps": 1}, {"text", "steps"}),
    ):  # fmt: skip
        assert points_among(sizes, declared) == points


@pytest.mark.parametrize("tiled", [False, True])
def test_a_size_beyond_the_ranges_opens_the_next_at_once(tiled: bool) -> None:
    """Where no tile was fitted to the first range, the others are wide."""
    seen = SizeHistory()
    compiled = []
    for size in (*range(10, 5000), *range(2, 10)):
        if not any(seen.general_keys(key(a=(size,)))):
            general = seen.generalise(key(a=(size,)))
            seen.note(key(a=(size,)), general, ["a[0]"] if tiled else [])
            compiled.append(size)
    highs = [general.symbols[0].high for general in reversed(seen.generals)]
    if tiled:
        assert compiled == [10, 11, 12, 17, 25, 33, 41, 49, 65, 73, 257, 1025, 4097, 2, 3, 5]
        assert highs == [16, 24, 32, 40, 48, 64, 72, 256, 1024, 4096, 16384, 4, 8]
    else:
        assert compiled == [10, 11, 12, 17, 257, 1025, 4097, 2]
        assert highs == [16, 256, 1024, 4096, 16384, 8]


def test_a_point_and_a_range_for_the_rest() -> None:
    """Two rows have other tiles than three."""
    seen = SizeHistory()
    for size in (5, 9):
        seen.note(key(a=(size, 4 * size)))
    general = seen.generalise(key(a=(2, 12)))
    assert general is not None and general.symbols == (Symbol("a[1]", 9, 16),)
    for size in (30, 40):
        seen.note(key(b=(size,)))
    assert seen.generalise(key(b=(2,))) is None
    assert seen.generalise(key(b=(3,))) is not None


def test_ranges_of_stages_are_wide() -> None:
    seen = SizeHistory(narrow=False)
    for size in (5, 9):
        seen.note(key(a=(size,)))
    general = seen.generalise(key(a=(2,)))
    assert general is not None and general.symbols == (Symbol("a[0]", 2, 8),)


def test_a_range_that_is_refused_says_little_about_others() -> None:
    """Windows that need nine elements: few sizes are refused with every step, and more have a range nevertheless."""
    seen = SizeHistory()
    for size in (6, 7):
        seen.note(key(a=(size,)))
    while (general := seen.generalise(key(a=(5,)))) is not None:
        seen.refuse(key(a=(5,)), general)
    more = seen.generalise(key(a=(40,)))
    assert more is not None and more.symbols == (Symbol("a[0]", 9, 256),)
    seen.note(key(a=(40,)), more)
    assert seen.generalise(key(a=(4,))) is None
    assert seen.generalise(key(a=(300,))) is not None


def test_ranges_that_are_all_refused_are_not_tried_for_ever() -> None:
    seen = SizeHistory()
    for size in (6, 7):
        seen.note(key(a=(size,)))
    tried = []
    for size in (5, 50, 500, 5000):
        while (general := seen.generalise(key(a=(size,)))) is not None:
            seen.refuse(key(a=(size,)), general)
            tried.append(size)
    assert set(tried) == {5, 50}


def test_the_step_of_one_range_is_that_of_the_next() -> None:
    seen = SizeHistory()
    for size in (16, 32):
        seen.note(key(a=(size,)))
    first = seen.generalise(key(a=(48,)))
    assert first is not None
    seen.refuse(key(a=(48,)), first)
    stepped = seen.generalise(key(a=(48,)))
    assert stepped is not None and stepped.symbols == (Symbol("a[0]", 16, 128, 8),)
    seen.note(key(a=(48,)), stepped)
    following = seen.generalise(key(a=(304,)))
    assert following is not None and following.symbols == (Symbol("a[0]", 264, 1024, 8),)


def test_all_axes_together_or_one_at_a_time() -> None:
    """Where the compiler refuses both ranges together, each is tried with the other size as it is."""
    seen = SizeHistory()
    for size in (5, 9):
        seen.note(key(a=(size, 2 * size)))
    opened = []
    while (general := seen.generalise(key(a=(13, 7)))) is not None:
        opened.append(sorted(general.sizes))
        seen.refuse(key(a=(13, 7)), general)
    both, first, second = [("a", 0), ("a", 1)], [("a", 0)], [("a", 1)]
    assert opened == [both, both, first, first, second, second]


def test_names_of_dimensions_are_those_of_symbols() -> None:
    seen = SizeHistory({("a", 0): "length"})
    for size in (5, 9):
        seen.note(key(a=(size, size * size)))
    general = seen.generalise(key(a=(6, 7)))
    assert general is not None and [str(size) for size in general.sizes.values()] == ["length", "a[1]"]


def test_a_history_outlives_its_process() -> None:
    seen = SizeHistory()
    for count in (8, 16):
        seen.note(counted(count, a=(count, count + 1)))
    general = seen.generalise(counted(24, a=(24, 25)))
    assert general is not None
    seen.refuse(counted(24, a=(24, 25)), general)
    for size in (8, 16):
        seen.note(counted(3, a=(size, size + 1)))
    general = seen.generalise(counted(3, a=(24, 25)))
    assert general is not None
    seen.note(counted(3, a=(24, 25)), general)
    restored = SizeHistory()
    restored.restore(json.loads(json.dumps(seen.to_json())))
    assert restored == seen
    assert restored.generalise(counted(3, a=(20, 21))) == general


def test_the_first_sizes_stay_among_many_ranges() -> None:
    seen = SizeHistory()
    for size in (5, 9):
        seen.note(key(a=(size, size)))
    for size in range(10, 40):
        seen.note(key(a=(size, size)), seen.generalise(key(a=(size, size))))
    assert [plan.sizes["a"] for plan in seen.plans if plan.own] == [(5, 5), (9, 9)]
    assert seen.generalise(key(a=(5, 5))) is None and len(seen.plans) < 16


@pytest.mark.parametrize(
    "data", [None, [], {}, {"plans": 3}, {"plans": [], "generals": [[["a", 0]]], "range_keys": [], "refused": []}]
)
def test_a_history_that_is_damaged_is_none(data) -> None:
    seen = SizeHistory()
    seen.restore(data)
    assert seen == SizeHistory()
