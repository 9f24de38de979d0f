"""Items that are alike become groups, and come out of them as they were."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from shaderloom.pool.chunk import Chunk, Item, bytes_of, packed, unpacked


def passed(items: list[Item]) -> Chunk:
    """Return items as a worker gets them."""
    message, stacks = packed(items)
    return unpacked(message, [np.array(arrays, arrays[0].dtype) for arrays in stacks])


def row(length: int = 2, dtype: str = "f4") -> np.ndarray:
    return np.arange(length).astype(dtype)


def test_items_of_equal_names_dtypes_and_shapes_are_a_group():
    items = [
        {"x": row(), "s": np.array(1.5)},
        {"x": row(3), "s": np.array(2.5)},
        MappingProxyType({"x": row() + 1, "s": np.array(3.5)}),
        {"x": row(dtype="i4"), "s": np.array(4.5)},
        {"s": np.array(5.5), "x": row()},
        {"x": row(0), "s": np.array(6.5)},
        {"x": row(dtype=">f4"), "s": np.array(7.5)},
        {"x": row(0) + 1, "s": np.array(8.5)},
        {"x": row(4, ">f4")[::2], "s": np.array(9.5)},
    ]
    chunk = passed(list(enumerate(items, 10)))
    assert [group.numbers for group in chunk.groups] == [[10, 12], [15, 17], [16, 18]]
    assert [number for number, _ in chunk.singles] == [11, 13, 14]
    found = dict(chunk.items())
    for number, feeds in enumerate(items, 10):
        assert list(found[number]) == list(feeds)
        for name, array in feeds.items():
            assert type(found[number][name]) is np.ndarray and found[number][name].dtype == array.dtype
            np.testing.assert_array_equal(found[number][name], array, strict=True)


def test_other_items_stay_as_they_are():
    others = [
        {},
        None,
        {"x": [1.0, 2.0]},
        {"x": row(), "y": "text"},
        {"x": np.array(["text"], object)},
        {"x": np.ma.masked_array(row(), [True, False])},
    ]
    chunk = passed([(-2, {"x": row()}), *enumerate(others), (-1, {"x": row()})])
    assert [group.numbers for group in chunk.groups] == [[-2, -1]]
    assert list(chunk.singles) == list(enumerate(others))


def test_large_arrays_of_single_items_are_contiguous():
    (_, ((_, feeds),)), stacks = packed([(0, {"x": row(20_000)[::2], "y": row(20_000, "O")})])
    assert feeds["x"].flags.c_contiguous and feeds["y"].dtype == object and stacks == []
    np.testing.assert_array_equal(feeds["x"], row(20_000)[::2])


def test_bytes_are_those_of_all_arrays():
    items = [*enumerate([{"x": row(), "y": row(3)}] * 4), (4, {"x": row(7), "y": 2.5}), (5, None)]
    assert bytes_of(*packed(items)) == 4 * (8 + 12) + 28
