"""Sizes that keep changing: which are opened, in which ranges, and what is tried where a range is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from shaderloom.model.open_sizes import LEAST_HIGH, Key, SizeHistory
from shaderloom.runtime.plan.plan import Symbol


def key(known: bytes = b"", dtype: str = "float32", **shapes: tuple[int, ...]) -> Key:
    values = tuple((name, (dtype, shape)) for name, shape in shapes.items())
    return (*values, ("k", ("bool", (), known))) if known else values


def counted(count: int, *more: int, **shapes: tuple[int, ...]) -> Key:
    numbers = np.array([count, *more])
    return (*key(**shapes), ("n", ("int64", numbers.shape, numbers.tobytes())))


def test_axes_that_differ_by_a_number_share_a_size() -> None:
    seen = SizeHistory()
    for size in (4, 9):
        assert seen.generalise(key(a=(2, size), b=(size + 1, 7), c=(size % 4, 3))) is None
        seen.note(key(a=(2, size), b=(size + 1, 7), c=(size % 4 + 2, 3)))
    general = seen.generalise(key(a=(2, 5), b=(6, 7), c=(30, 3)))
    assert general is not None
    assert general.symbols == (Symbol("a[1]", 2, LEAST_HIGH), Symbol("c[0]", 2, LEAST_HIGH))
    general_key = general.key(key(a=(2, 5), b=(6, 7), c=(30, 3)))
    assert general_key == general.key(key(a=(2, 64), b=(65, 7), c=(2, 3))) is not None
    for other in (
        key(a=(2, 5), b=(7, 7), c=(30, 3)),
        key(a=(2, 65), b=(66, 7), c=(30, 3)),
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
    assert general is not None and general.symbols == (Symbol("a[0]", 2, 256),)
    assert seen.generalise(key(b"1", a=(1,))) is None
    seen.refuse(key(b"1", a=(100,)), general)
    other = seen.generalise(key(b"1", a=(100,)))
    assert other is not None and other.symbols == (Symbol("a[0]", 4, 256, 4),), "sizes that were met, and their step"
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
    both = seen.generalise(counted(12, a=(12,)))
    assert both is not None
    seen.refuse(counted(12, a=(12,)), both)
    assert not seen.elements and seen.generalise(counted(12, a=(12,))) is None
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
    seen.note(key(ids=(1, 23)), general)
    wider = seen.generalise(key(ids=(3, 40)))
    assert wider is not None and list(wider.sizes) == [("ids", 0), ("ids", 1)]
    seen.note(key(ids=(3, 40)), wider)
    assert seen.generalise(key(ids=(1, 50))) == general
    assert seen.generalise(key(ids=(2, 50))) == wider
    assert seen.generalise(key(ids=(1, 17))) is None, "it has a plan of its own"


def test_a_range_grows_when_it_is_exceeded() -> None:
    """To twice the size, as a power of two: few plans for thousands of sizes."""
    seen = SizeHistory()
    made = 0
    for size in range(10, 5000):
        general = seen.generalise(key(a=(size,)))
        if general is None or general not in seen.generals:
            seen.note(key(a=(size,)), general)
            made += 1
    assert made == 2 + 5
    assert [general.symbols[0].high for general in seen.generals] == [16384]


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
    assert restored.generalise(counted(3, a=(60, 61))) == general


@pytest.mark.parametrize(
    "data", [None, [], {}, {"plans": 3}, {"plans": [], "generals": [[["a", 0]]], "range_keys": [], "refused": []}]
)
def test_a_history_that_is_damaged_is_none(data) -> None:
    seen = SizeHistory()
    seen.restore(data)
    assert seen == SizeHistory()
